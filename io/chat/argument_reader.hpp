#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "io/chat/json_span.hpp"
#include "io/chat/marks.hpp"

namespace pagoda::chat {

/// Result of a reader's step: how much of the text it consumed.
struct ReadResult {
  enum class State : std::uint8_t {
    more,      ///< call again with the text that was not consumed and more text after it
    over,      ///< the part is complete; the text that was not consumed follows it
    mismatch,  ///< the text that was not consumed does not fit
  };

  State state = State::more;
  std::size_t bytes = 0;  ///< number of bytes consumed, from the begin of the text
};

/// Calls `step` with the remaining text, while its result is `over`, until the reader `is_over`.
template <class Step>
ReadResult consume_steps(std::string_view text, const bool& is_over, Step step) {
  ReadResult all{ReadResult::State::over, 0};
  while (all.state == ReadResult::State::over && !is_over) {
    const ReadResult one = step(text.substr(all.bytes));
    all = {one.state, all.bytes + one.bytes};
  }
  return all;
}

/// Limit on the bytes of a key or a name.
inline constexpr std::size_t kMaxNameBytes = 256;

/// Reads arguments that are a JSON object already.
class JsonArguments {
 public:
  /// Appends to `json` the part of the object in `text`.
  ReadResult consume(std::string_view text, std::string& json) {
    const std::size_t begin = has_begun_ ? 0 : leading_white(text);
    if (begin == text.size()) return {ReadResult::State::more, begin};
    if (!has_begun_ && text[begin] != '{') return {ReadResult::State::mismatch, begin};
    has_begun_ = true;
    const std::size_t size = span_.consume(text.substr(begin));
    json += text.substr(begin, size);
    return {span_.is_over() ? ReadResult::State::over : ReadResult::State::more, begin + size};
  }

 private:
  JsonSpan span_;
  bool has_begun_ = false;
};

}  // namespace pagoda::chat
