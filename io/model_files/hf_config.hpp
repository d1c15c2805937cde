#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>

#include "engine/models/model_spec.hpp"
#include "io/model_files/config_reader.hpp"
#include "io/model_files/quantized/quantization_config.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// Text of a JSON file and its name for messages.
struct ConfigText {
  std::string_view text;
  std::string file_name;
};

/// Whether the quantization that a config names must be a supported one (checked), or is left out (ignored).
enum class StoredQuantization : std::uint8_t { checked, ignored };

/// Reads config.json of a Hugging Face model folder, and generation_config.json where it exists: its end-of-sequence
/// ids override those of config.json. `tied` overrides tie_word_embeddings. Errors: bad_config when a file cannot be
/// read, else as parse_hf_config.
Result<models::ModelSpec> load_hf_config(const std::filesystem::path& folder,
                                         StoredQuantization quantization = StoredQuantization::checked,
                                         std::optional<bool> tied = std::nullopt);

/// Reads these files from texts; `generation` may be null. Errors: bad_config (a key that is missing, has another type,
/// lies outside its limits or contradicts another key), unsupported (a valid value that is not implemented: a rope
/// scaling, a quantization method). The message names file and key, and Error::param is the key.
Result<models::ModelSpec> parse_hf_config(const ConfigText& config, const ConfigText* generation,
                                          StoredQuantization quantization = StoredQuantization::checked,
                                          std::optional<bool> tied = std::nullopt);

/// Reads a parsed config, without a generation_config.json.
Result<models::ModelSpec> read_hf_config(ConfigReader& reader);

/// Returns the quantization of the folder's weights, by config.json or the file beside it; nothing when the weights are
/// not quantised. Errors: as load_hf_config.
Result<std::optional<QuantizationConfig>> load_quantization_config(const std::filesystem::path& folder);

}  // namespace pagoda::io
