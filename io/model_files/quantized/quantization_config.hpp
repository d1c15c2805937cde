#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "io/model_files/config_reader.hpp"
#include "kernels/dtype.hpp"

namespace pagoda::io {

enum class QuantizationMethod : std::uint8_t {
  awq,
  gptq,
  compressed_tensors,
  fp8,             ///< that of Hugging Face and vLLM, and fbgemm's
  int8_rows,       ///< bitsandbytes with load_in_8bit
  four_bit_table,  ///< bitsandbytes with load_in_4bit
};

/// What config.json says about the quantised tensors beside it. Which modules are quantised, and what a module's own
/// tensors tell (bits, groups and zero points of compressed-tensors), is seen in the tensors.
struct QuantizationConfig {
  QuantizationMethod method = QuantizationMethod::awq;
  std::string name;  ///< for people: "GPTQ int4"
  int bits = 4;      ///< of integers packed into words: 4 or 8; where groups of modules differ, of the last
  std::int64_t group_size = 128;   ///< of awq and gptq: columns that share a scale; 0 = all
  bool zeros_lack_one = false;     ///< of gptq: stored zero points are one less than they mean
  std::int64_t block_rows = 0;     ///< of 8-bit floats with a scale per block, else 0
  std::int64_t block_columns = 0;  ///< likewise
  /// Of compressed-tensors: what is quantised are linear layers, whose packed weights are [out, in], also in models
  /// that have Conv1D in their place in transformers (GPT-2), whose weights are [in, out]. vLLM reads them so.
  bool packs_linear = false;
  /// Of compressed-tensors: what the rotation of kernels/rotation.hpp is called, where modules have it; a module NAME
  /// that has it holds its matrix in the tensor NAME.<rotation>_input.weight. Else empty.
  std::string rotation;
  DType dtype = DType::bf16;  ///< of weights that are used dequantised: the config's own
};

/// The keys of config.json under which a quantisation may be written.
bool has_quantization(const ConfigReader& config);
/// Takes them out of a config.json, an object.
void erase_quantization(nlohmann::json& config);

/// Reads them; nothing when it is not quantised, or when something is wrong: then config.status() says what, which is
/// `unsupported` with the list of what is known for methods, bits and formats that are not built.
std::optional<QuantizationConfig> read_quantization_config(ConfigReader& config);

/// Beside a config.json that says nothing of it: the file that AutoGPTQ (the first) and AutoAWQ write, the best first.
inline constexpr const char* kQuantizationFiles[] = {"quantize_config.json", "quant_config.json"};
/// Reads one. Means nothing when file.status() or config.status() says that something is wrong.
QuantizationConfig read_quantization_file(ConfigReader& file, ConfigReader& config);

}  // namespace pagoda::io
