#pragma once

#include <vector>

#include "engine/adapters/adapter.hpp"
#include "engine/layers/adapter_modules.hpp"
#include "kernels/device.hpp"
#include "kernels/result.hpp"

namespace pagoda::adapters {

/// Returns the factors of DoRA (Liu et al. 2024, equation 5), [out_features]: magnitude[n] / ||W_n + scale * (B A)_n||,
/// where W is the base's weight in the device's memory, dequantised if it is quantised. The columns of an embedding's
/// table are scaled in place of rows. `lora` has a magnitude and fits the module. Errors: bad_file if a norm is 0 or
/// not finite; out_of_memory.
Result<std::vector<float>> dora_factors(const LoraChange& lora, const layers::AdapterModule& module,
                                        kernels::Device& device);

}  // namespace pagoda::adapters
