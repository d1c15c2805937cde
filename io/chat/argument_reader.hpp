#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "io/chat/json_span.hpp"
#include "io/chat/marks.hpp"

namespace pagoda::chat {

/// How far a reader of a part got with the text it was given.
struct Taken {
  enum class State : std::uint8_t {
    more,      ///< wants what was not taken again, with more behind it
    over,      ///< the part is complete; what was not taken is behind it
    mismatch,  ///< what was not taken is no such thing
  };

  State state = State::more;
  std::size_t bytes = 0;  ///< of the text, from its begin, that were taken
};

/// Takes steps of a reader, each at the begin of the text that is left and `over` where another may follow, until the
/// reader `is_over`, or a step is not.
template <class Step>
Taken take_steps(std::string_view text, const bool& is_over, Step step) {
  Taken all{Taken::State::over, 0};
  while (all.state == Taken::State::over && !is_over) {
    const Taken one = step(text.substr(all.bytes));
    all = {one.state, all.bytes + one.bytes};
  }
  return all;
}

/// A key or a name is no longer than this.
inline constexpr std::size_t kMaxNameBytes = 256;

/// Arguments that are a JSON object already.
class JsonArguments {
 public:
  /// Appends to `json` what `text` makes known.
  Taken take(std::string_view text, std::string& json) {
    const std::size_t begin = has_begun_ ? 0 : leading_white(text);
    if (begin == text.size()) return {Taken::State::more, begin};
    if (!has_begun_ && text[begin] != '{') return {Taken::State::mismatch, begin};
    has_begun_ = true;
    const std::size_t size = span_.take(text.substr(begin));
    json += text.substr(begin, size);
    return {span_.is_over() ? Taken::State::over : Taken::State::more, begin + size};
  }

 private:
  JsonSpan span_;
  bool has_begun_ = false;
};

}  // namespace pagoda::chat
