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

/// Returns whether the checkpoint has the weight of `module` in quantised form.
bool is_quantized(const Checkpoint& checkpoint, QuantizationMethod method, std::string_view module);

/// Opens the weight [rows, columns] of a quantised `module` in the mapped file; `checkpoint` must outlive the result.
/// All shapes, types and indices are checked here. Errors: bad_file (a tensor is missing or does not fit; the message
/// names file, tensor and reason).
Result<std::shared_ptr<const weights::QuantizedRows>> open_quantized_module(const Checkpoint& checkpoint,
                                                                            const QuantizationConfig& config,
                                                                            const std::string& module,
                                                                            std::int64_t rows, std::int64_t columns);

/// Returns the ending of the name of a tensor with a module's rotation.
inline std::string rotation_ending(const QuantizationConfig& config) {
  return "." + config.rotation + "_input.weight";
}

/// Calls `use` with the names of all tensors that may belong to a quantised module. Tensors for its activations are
/// among them, although Pagoda quantises activations without them.
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
