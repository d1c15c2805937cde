#pragma once

#include <string>

#include "kernels/cpu/isa.hpp"

namespace pagoda::test {

/// Rounds to bfloat16 what meets bfloat16 weights, keys and values.
inline const std::string kRoundingIsa = "avx512_bf16";

/// The name of the fastest instruction set here that computes in float32 with any weights, as float32 goldens were.
inline std::string exact_isa() {
  const std::string fastest(kernels::to_string(kernels::choose_isa("").value()));
  return fastest == kRoundingIsa ? "avx512_vnni" : fastest;
}

inline bool has_rounding_isa() {
  return kernels::choose_isa(kRoundingIsa).has_value();
}

}  // namespace pagoda::test
