#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "engine/weights/weight_source.hpp"
#include "io/model_files/checkpoint.hpp"
#include "io/model_files/quantized/quantization_config.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// Whether the checkpoint holds the weight of `module` quantised.
bool is_quantized(const Checkpoint& checkpoint, QuantizationMethod method, std::string_view module);

/// The weight [rows, columns] of `module`, which is_quantized, in the mapped file; `checkpoint` must outlive it. All
/// shapes, types and indices are checked here. Errors: bad_file (a tensor that is missing, or does not fit; the message
/// names file, tensor and reason).
Result<std::shared_ptr<const weights::QuantizedRows>> open_quantized_module(const Checkpoint& checkpoint,
                                                                            const QuantizationConfig& config,
                                                                            const std::string& module,
                                                                            std::int64_t rows, std::int64_t columns);

/// How the name of the tensor ends that holds a module's rotation.
inline std::string rotation_ending(const QuantizationConfig& config) {
  return "." + config.rotation + "_input.weight";
}

/// The tensors that may belong to a quantised module, those of its activations too, which Pagoda quantises by itself:
/// calls `use` with the names of all.
template <class Use>
void for_each_tensor_of(const QuantizationConfig& config, std::string_view module, const Use& use) {
  if (!config.rotation.empty()) use(std::string(module) + rotation_ending(config));
  for (const char* ending : {".weight",
                             ".qweight",
                             ".qzeros",
                             ".scales",
                             ".g_idx",
                             ".weight_packed",
                             ".weight_scale",
                             ".weight_shape",
                             ".weight_zero_point",
                             ".weight_g_idx",
                             ".weight_scale_inv",
                             ".input_scale",
                             ".input_zero_point",
                             ".output_scale",
                             ".output_zero_point",
                             ".input_scale_ub",
                             ".SCB",
                             ".weight_format",
                             ".weight.absmax",
                             ".weight.quant_map",
                             ".weight.nested_absmax",
                             ".weight.nested_quant_map",
                             ".weight.quant_state.bitsandbytes__nf4",
                             ".weight.quant_state.bitsandbytes__fp4"}) {
    use(std::string(module) + ending);
  }
}

}  // namespace pagoda::io
