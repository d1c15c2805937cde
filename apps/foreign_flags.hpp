#pragma once

/// The command lines of `vllm serve` and `llama-server`, for `pagoda serve`: flags with the same meaning here are taken
/// under their names, flags that change nothing for the server's users are noted on standard error, and the others are
/// refused with what to use instead. No flag is ignored without a word.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/result.hpp"

namespace pagoda::apps {

/// Lists of names and values are words with commas between them.
struct TakenFlag {
  std::string_view names;  ///< as the other server has them, with dashes
  std::string_view own;    ///< Pagoda's flag
};

/// How many arguments behind a flag are its values.
enum class Values : std::uint8_t {
  none,
  one,
  maybe_switch,  ///< one, if it is on, off, auto, true, false, 0 or 1
  numbers,       ///< all numbers that follow
};

/// A flag that has no effect here and need not have one.
struct NotedFlag {
  std::string_view names;
  Values values;
  std::string_view why;  ///< completes "FLAG has no effect: "
};

/// A flag that is refused.
struct RefusedFlag {
  std::string_view names;
  std::string_view advice;  ///< completes "FLAG ": what is missing, or which flag is for it here
};

/// What becomes of a flag because of its value. It goes before the tables of flags.
struct ValueRule {
  enum class Fate : std::uint8_t { noted, refused };
  std::string_view names;
  std::string_view values;  ///< ">1": every number above 1; "*": every value that no rule before has
  Fate fate;
  std::string_view text;  ///< as NotedFlag::why or RefusedFlag::advice, behind the flag and the value
};

/// One server's flags.
struct ForeignServer {
  std::span<const std::string_view> same;  ///< names, values and meaning are Pagoda's
  std::span<const TakenFlag> taken;
  std::span<const ValueRule> values;
  std::span<const NotedFlag> noted;
  std::span<const RefusedFlag> refused;
};
const ForeignServer& vllm();
const ForeignServer& llama_server();

/// Arguments of `pagoda serve`, behind that word, in Pagoda's flags.
struct Translation {
  std::vector<std::string> arguments;
  std::vector<std::string> notes = {};  ///< one for each flag that has no effect
  std::vector<Error> problems = {};     ///< one for each flag that is refused; bad_config, whose param is the flag
};

/// Leaves flags alone that are in no table. Underscores in the names of flags count as dashes, as with vLLM.
Translation translate_flags(std::span<const std::string> arguments);

}  // namespace pagoda::apps
