#pragma once

#include <string_view>
#include <vector>

#include "kernels/device.hpp"
#include "kernels/result.hpp"

namespace pagoda::kernels {

/// Returns "scalar", "avx2", "avx_vnni", "avx512", "avx512_vnni", "avx512_bf16", "avx512_amx", "neon" or
/// "neon_dotprod": the names of CpuDeviceOptions::isa.
std::string_view to_string(CpuIsa isa);

/// Returns whether the processor says that it has a matrix unit (AMX) for bytes and bfloat16. Kernels use it only if
/// the system lets them: then avx512_amx is available.
bool processor_has_matrix_unit();

/// Returns the instruction sets that this build contains and this machine runs, scalar first; later ones are usually
/// faster.
std::vector<CpuIsa> available_isas();

/// Returns the named instruction set, or the fastest available one for "". Errors: bad_config for an unknown name or a
/// set that this machine or this build lacks; the message lists the available sets.
Result<CpuIsa> choose_isa(std::string_view name);

}  // namespace pagoda::kernels
