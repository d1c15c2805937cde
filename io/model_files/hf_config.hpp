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

/// Text of a JSON file and the name that messages give it.
struct ConfigText {
  std::string_view text;
  std::string file_name;
};

/// Whether a config's way to quantise must be one that is built.
enum class StoredQuantization : std::uint8_t { checked, ignored };

/// Reads config.json of a Hugging Face model folder, and generation_config.json where there is one (for its eos ids,
/// which win). `tied` overrides tie_word_embeddings. Errors: bad_config when config.json cannot be read, else as
/// parse_hf_config.
Result<models::ModelSpec> load_hf_config(const std::filesystem::path& folder,
                                         StoredQuantization quantization = StoredQuantization::checked,
                                         std::optional<bool> tied = std::nullopt);

/// The same from texts; `generation` may be null. A key that is missing, has another type, lies outside its limits or
/// contradicts another is bad_config; a meaning that is right but not built (a rope scaling, a way to quantise) is
/// unsupported. The message names file and key, and Error::param is the key.
Result<models::ModelSpec> parse_hf_config(const ConfigText& config, const ConfigText* generation,
                                          StoredQuantization quantization = StoredQuantization::checked,
                                          std::optional<bool> tied = std::nullopt);

/// The same from a config that has been parsed, without a generation_config.json.
Result<models::ModelSpec> read_hf_config(ConfigReader& reader);

/// How config.json says that the folder's weights are quantised; nothing when they are not. Errors: as load_hf_config.
Result<std::optional<QuantizationConfig>> load_quantization_config(const std::filesystem::path& folder);

}  // namespace pagoda::io
