#pragma once

/// The flags of `vllm serve` and `llama-server`, for `pagoda serve`: taken where Pagoda has their meaning, else refused
/// with what to use instead. None is ignored.

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/result.hpp"

namespace pagoda::apps {

/// A flag that Pagoda takes under a name of its own, or that of a server beside it.
struct TakenFlag {
  std::string_view name;  ///< as the other server has it, with dashes
  std::string_view own;   ///< Pagoda's flag for it
};

/// A flag that is refused.
struct RefusedFlag {
  std::string_view names;   ///< as the other server has them, with commas
  std::string_view advice;  ///< completes "FLAG ": why it is not needed, or what does it here
};

/// A value that is refused of a flag that is taken.
struct RefusedValue {
  std::string_view names;   ///< of the flag, with commas
  std::string_view values;  ///< with commas; >1: every number above 1
  std::string_view advice;  ///< completes "FLAG VALUE "
};

/// vLLM's flags that have another name here, and those that are refused.
std::span<const TakenFlag> taken_of_vllm();
std::span<const RefusedFlag> refused_of_vllm();
/// vLLM's flags whose names, values and meaning are Pagoda's.
std::span<const std::string_view> same_as_vllm();
std::span<const RefusedValue> refused_values_of_vllm();
/// llama-server's.
std::span<const RefusedFlag> refused_of_llama_server();

/// Arguments of `pagoda serve`, behind that word, in Pagoda's flags.
struct Translation {
  std::vector<std::string> arguments;
  std::vector<Error> problems;  ///< one for each flag that is refused; bad_config, whose param is the flag
};

/// Flags that are nobody's pass as they are. Underscores in the names of flags count as dashes, as with vLLM.
Translation translate_flags(std::span<const std::string> arguments);

}  // namespace pagoda::apps
