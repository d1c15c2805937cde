#pragma once

#include <bitset>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

/// Looking for fixed texts in a text that is still growing: what a function says holds whatever comes behind.
namespace pagoda::text {

enum class Match : std::uint8_t {
  no,
  maybe,  ///< depends on what comes behind
  yes,
};

/// Whether `text` begins with `mark`.
Match begins_with(std::string_view text, std::string_view mark);

/// The first place where `mark` stands in `text` or may begin; the end of `text` for neither.
std::size_t find_mark(std::string_view text, std::string_view mark);

/// ASCII white space, as around JSON and marks.
bool is_white(char byte);
std::size_t leading_white(std::string_view text);   ///< how many bytes of it `text` begins with
std::size_t trailing_white(std::string_view text);  ///< how many bytes of it `text` ends with
std::string_view without_leading_white(std::string_view text);
std::string_view without_outer_white(std::string_view text);

/// Some marks to look for at once. At one place the longest wins. Few and short: a look at one place compares each.
class MarkSet {
 public:
  /// Empty marks are left out.
  void add(std::string_view mark, std::size_t id);

  struct Found {
    Match match = Match::no;
    std::size_t at = 0;    ///< where the mark begins or may begin; the end of the text for neither
    std::size_t size = 0;  ///< of the mark
    std::size_t id = 0;
  };
  /// What `text` begins with. With `over` nothing comes behind it.
  Found at_begin(std::string_view text, bool over) const;
  /// The first place where a mark stands or may begin.
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
