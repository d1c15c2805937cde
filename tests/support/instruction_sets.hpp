#pragma once

#include <string>

#include "kernels/cpu/isa.hpp"

namespace pagoda::test {

/// The instruction set that rounds inputs to bfloat16 where they are multiplied with bfloat16 weights, keys and values.
inline const std::string kRoundingIsa = "avx512_bf16";

/// Returns the name of the machine's fastest instruction set that computes in float32 with weights of any type, as the
/// float32 goldens were computed.
inline std::string exact_isa() {
  const std::string fastest(kernels::to_string(kernels::choose_isa("").value()));
  return fastest == kRoundingIsa ? "avx512_vnni" : fastest;
}

inline bool has_rounding_isa() {
  return kernels::choose_isa(kRoundingIsa).has_value();
}

}  // namespace pagoda::test
