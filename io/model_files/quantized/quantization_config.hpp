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
  fp8,             ///< the formats of Hugging Face and vLLM, and of fbgemm
  int8_rows,       ///< bitsandbytes with load_in_8bit
  four_bit_table,  ///< bitsandbytes with load_in_4bit
};

/// The quantization that config.json describes. The tensors themselves tell which modules are quantised, and for
/// compressed-tensors bits, groups and zero points of a module.
struct QuantizationConfig {
  QuantizationMethod method = QuantizationMethod::awq;
  std::string name;  ///< name for people: "GPTQ int4"
  /// Bits of integers packed into words: 4 or 8; where groups of modules differ, those of the last group.
  int bits = 4;
  std::int64_t group_size = 128;   ///< awq and gptq: number of columns that share a scale; 0: all
  bool zeros_lack_one = false;     ///< gptq: whether stored zero points are one less than their values
  std::int64_t block_rows = 0;     ///< rows of a block of 8-bit floats with a common scale, else 0
  std::int64_t block_columns = 0;  ///< columns of such a block, else 0
  /// compressed-tensors: whether quantised modules are linear layers, whose packed weights are [out, in]. This also
  /// holds for models that have Conv1D with weights [in, out] in transformers (GPT-2). vLLM reads them in this way too.
  bool packs_linear = false;
  /// compressed-tensors: name of the rotation of kernels/rotation.hpp; empty where there is none. A module NAME with a
  /// rotation has its matrix in the tensor NAME.<rotation>_input.weight.
  std::string rotation;
  DType dtype = DType::bf16;  ///< type of weights that are used dequantised, by config.json
};

/// Returns whether config.json has a key that describes a quantization.
bool has_quantization(const ConfigReader& config);
/// Removes these keys from a config.json, an object.
void erase_quantization(nlohmann::json& config);

/// Reads the quantization of a config.json. Returns nothing when there is none, and after an error, which is then in
/// config.status(): `unsupported`, with the list of supported values, for an unknown method, number of bits or format.
std::optional<QuantizationConfig> read_quantization_config(ConfigReader& config);

/// Files that describe the quantization where config.json does not, in the order in which they are looked for: that of
/// AutoGPTQ and that of AutoAWQ.
inline constexpr const char* kQuantizationFiles[] = {"quantize_config.json", "quant_config.json"};
/// Reads one of these files. The result has no meaning after an error in file.status() or config.status().
QuantizationConfig read_quantization_file(ConfigReader& file, ConfigReader& config);

}  // namespace pagoda::io
