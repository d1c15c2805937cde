#pragma once

#include <string_view>
#include <vector>

#include "kernels/device.hpp"
#include "kernels/result.hpp"

namespace pagoda::kernels {

/// "scalar", "avx2", "avx_vnni", "avx512", "avx512_vnni", "avx512_bf16", "neon", "neon_dotprod": the names of
/// CpuDeviceOptions::isa.
std::string_view to_string(CpuIsa isa);

/// The instruction sets that this build contains and this machine can run, scalar first; later ones are
/// faster as a rule.
std::vector<CpuIsa> available_isas();

/// The named instruction set, or the fastest one for "". Errors (bad_config): an unknown name, or one that this machine
/// or this build lacks; the message lists what is available.
Result<CpuIsa> choose_isa(std::string_view name);

}  // namespace pagoda::kernels
