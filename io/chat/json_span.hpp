#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace pagoda::chat {

/// Finds where a JSON object, array or string ends that comes piece by piece. Looks at its structure only: strings,
/// escapes and how many brackets are open.
class JsonSpan {
 public:
  /// Whether a value that begins with `byte` is one of these.
  static bool begins_with(char byte) { return byte == '{' || byte == '[' || byte == '"'; }

  /// How many bytes of `piece` belong to the value: all of them until it ends. The first piece begins with it.
  std::size_t take(std::string_view piece);
  bool is_over() const { return is_over_; }

 private:
  std::size_t depth_ = 0;
  bool in_string_ = false;
  bool is_escaped_ = false;
  bool is_over_ = false;
};

/// Appends `text` as it stands within a JSON string.
void append_json_escaped(std::string& out, std::string_view text);

}  // namespace pagoda::chat
