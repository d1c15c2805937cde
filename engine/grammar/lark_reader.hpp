#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "kernels/result.hpp"

namespace pagoda::grammar {

/// Returns an invalid_request with the message "line 3 of the grammar: ...".
Error lark_error(std::int64_t line, const std::string& problem);

/// Takes the parts of a Lark grammar's text one after another. After the first problem the reader is at the end.
class LarkReader {
 public:
  explicit LarkReader(std::string_view text) : text_(text) {}

  bool at_end() const { return error_ || position_ >= text_.size(); }
  bool next_is(char c) const { return !at_end() && text_[position_] == c; }
  std::string_view rest() const { return text_.substr(position_); }
  bool take(std::string_view what);
  std::int64_t line();
  void refuse(const std::string& what);

  /// Skips blanks and comments; in groups it skips line ends, too.
  void skip_blanks();
  void skip_line_ends();
  /// Takes a name; empty if there is none.
  std::string name();
  /// Takes a number; returns kMaxRepetitions + 1 if it is greater.
  std::optional<std::int64_t> number();
  /// Takes a text between double quotes and resolves its escapes.
  std::string quoted();
  /// Takes an object or array of JSON as it is written.
  std::string json_text();

 protected:
  std::string_view text_;
  std::size_t position_ = 0;
  int depth_ = 0;  ///< depth of nested groups
  std::optional<Error> error_;

 private:
  bool escape(std::string& text);
  bool hex(int num_digits, std::string& text);

  std::int64_t line_ = 1;
  std::size_t line_place_ = 0;  ///< position whose line is line_
};

}  // namespace pagoda::grammar
