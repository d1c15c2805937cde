#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace pagoda::chat {

/// Finds the end of a JSON object, array or string that arrives in pieces. Checks only its structure: strings, escapes
/// and the number of open brackets.
class JsonSpan {
 public:
  /// Returns whether `byte` begins such a value.
  static bool begins_with(char byte) { return byte == '{' || byte == '[' || byte == '"'; }

  /// Returns how many bytes of `piece` belong to the value: all of them until it ends. The first piece must begin with
  /// the value.
  std::size_t consume(std::string_view piece);
  bool is_over() const { return is_over_; }

 private:
  std::size_t depth_ = 0;
  bool in_string_ = false;
  bool is_escaped_ = false;
  bool is_over_ = false;
};

/// Appends `text`, escaped as within a JSON string.
void append_json_escaped(std::string& out, std::string_view text);

}  // namespace pagoda::chat
