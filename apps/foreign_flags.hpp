#pragma once

/// Translates the command lines of `vllm serve` and `llama-server` for `pagoda serve`. Flags with the same meaning here
/// are taken. Flags that change nothing for the server's users are noted on standard error. All others are refused,
/// with advice on what to use instead. No flag is ignored silently.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/result.hpp"

namespace pagoda::apps {

/// A flag that Pagoda has under its own name. In this file, lists of names and values are words separated by commas.
struct TakenFlag {
  std::string_view names;  ///< names that the other server uses, with dashes
  std::string_view own;    ///< Pagoda's flag
};

/// Number of arguments after a flag that are its values.
enum class Values : std::uint8_t {
  none,
  one,
  maybe_switch,  ///< one if it is on, off, auto, true, false, 0 or 1; else none
  numbers,       ///< all numbers that follow
};

/// A flag that has no effect here and needs none.
struct NotedFlag {
  std::string_view names;
  Values values;
  std::string_view why;  ///< completes "FLAG has no effect: "
};

/// A flag that is refused.
struct RefusedFlag {
  std::string_view names;
  std::string_view advice;  ///< completes "FLAG ": what is missing, or which flag to use here
};

/// Rule for a flag with certain values. Rules are applied before the tables of flags.
struct ValueRule {
  enum class Fate : std::uint8_t { noted, refused };
  std::string_view names;
  std::string_view values;  ///< ">1": every number above 1; "*": every value that no earlier rule has
  Fate fate;
  std::string_view text;  ///< as NotedFlag::why or RefusedFlag::advice, printed after the flag and the value
};

/// Flags of one server.
struct ForeignServer {
  std::span<const std::string_view> same;  ///< flags with the same names, values and meaning as Pagoda's
  std::span<const TakenFlag> taken;
  std::span<const ValueRule> values;
  std::span<const NotedFlag> noted;
  std::span<const RefusedFlag> refused;
};
const ForeignServer& vllm();
const ForeignServer& llama_server();

/// Arguments of `pagoda serve`, without that word, as Pagoda's flags.
struct Translation {
  std::vector<std::string> arguments;
  std::vector<std::string> notes = {};  ///< one for each flag that has no effect
  std::vector<Error> problems = {};     ///< one for each refused flag: bad_config, with the flag as param
};

/// Translates arguments. Flags in no table are kept. Underscores in flag names count as dashes, as in vLLM.
Translation translate_flags(std::span<const std::string> arguments);

}  // namespace pagoda::apps
