#pragma once

#include <string>
#include <vector>

#include "kernels/cpu/isa.hpp"

namespace pagoda::test {

/// Returns the instruction sets of this machine that round inputs to bfloat16 where they are multiplied with bfloat16
/// weights.
inline std::vector<std::string> rounding_isas() {
  std::vector<std::string> isas;
  for (const char* isa : {"avx512_bf16", "avx512_amx"}) {
    if (kernels::choose_isa(isa).has_value()) isas.emplace_back(isa);
  }
  return isas;
}

/// Returns the name of the machine's fastest instruction set that computes in float32 with weights of any type, as the
/// float32 goldens were computed.
inline std::string exact_isa() {
  const std::string fastest(kernels::to_string(kernels::choose_isa("").value()));
  return fastest == "avx512_amx" || fastest == "avx512_bf16" ? "avx512_vnni" : fastest;
}

}  // namespace pagoda::test
