#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// Searches for fixed texts in a text that is still growing. A result stays valid whatever text follows.
namespace pagoda::text {

enum class Match : std::uint8_t {
  no,
  maybe,  ///< depends on the text that follows
  yes,
};

/// Returns whether `text` begins with `mark`.
Match begins_with(std::string_view text, std::string_view mark);

/// Returns the first place where `mark` stands in `text` or may begin; the end of `text` if there is no such place.
std::size_t find_mark(std::string_view text, std::string_view mark);

/// Returns whether the byte is ASCII white space, as around JSON and marks.
bool is_white(char byte);
std::size_t leading_white(std::string_view text);   ///< number of white bytes at the begin of `text`
std::size_t trailing_white(std::string_view text);  ///< number of white bytes at the end of `text`
std::string_view without_leading_white(std::string_view text);
std::string_view without_outer_white(std::string_view text);

/// A set of marks to search for at once. At one place the longest mark wins. For few and short marks: each place is
/// compared with every mark.
class MarkSet {
 public:
  /// Ignores an empty mark.
  void add(std::string_view mark, std::size_t id);

  struct Found {
    Match match = Match::no;
    std::size_t at = 0;    ///< where the mark begins or may begin; the end of the text if it does neither
    std::size_t size = 0;  ///< size of the mark
    std::size_t id = 0;
  };
  /// Returns the mark that `text` begins with. `over`: whether no text follows.
  Found at_begin(std::string_view text, bool over) const;
  /// Returns the first place where a mark stands or may begin.
  Found find(std::string_view text, bool over) const;

 private:
  struct Mark {
    std::string text;
    std::size_t id;
  };
  std::vector<Mark> marks_;
  std::bitset<256> first_bytes_;
};

}  // namespace pagoda::text
