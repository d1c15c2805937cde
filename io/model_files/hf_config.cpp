#include "io/model_files/hf_config.hpp"

#include <algorithm>
#include <limits>
#include <optional>
#include <utility>
#include <vector>

#include "engine/models/families.hpp"
#include "io/model_files/config_reader.hpp"
#include "io/model_files/file_text.hpp"
#include "io/model_files/mapped_file.hpp"

namespace pagoda::io {
namespace {

constexpr std::int64_t kMaxConfigBytes = 16LL << 20;

/// Returns null when the architecture is missing or unknown.
const models::Family* read_family(ConfigReader& reader) {
  const auto* value = reader.find("architectures");
  if (value == nullptr) {
    reader.reject("architectures", "is missing");
  } else if (!value->is_array() || value->empty() || !value->front().is_string()) {
    reader.reject("architectures", "must be an array with the architecture's name");
  } else {
    const auto& name = value->front().get_ref<const std::string&>();
    if (const auto* family = models::find_family(name)) return family;
    std::string reason = quote(name) + " is not supported; supported are";
    for (const auto& known : models::known_architectures()) reason += " " + known;
    reader.reject("architectures", reason);
  }
  return nullptr;
}

DType read_dtype(ConfigReader& reader) {
  const char* key = reader.has("dtype") ? "dtype" : "torch_dtype";
  auto name = reader.string(key, "float32");
  if (name.starts_with("torch.")) name.erase(0, 6);
  for (const auto dtype : {DType::f32, DType::f16, DType::bf16}) {
    if (name == to_string(dtype)) return dtype;
  }
  reader.reject(key, quote(name) + " is not supported (float32, float16, bfloat16)", ErrorCode::unsupported);
  return DType::f32;
}

std::optional<TokenId> read_token(ConfigReader& reader, const char* key, const nlohmann::json& value) {
  const bool fits = value.is_number_unsigned()
                        ? std::in_range<TokenId>(value.get<std::uint64_t>())
                        : value.is_number_integer() && std::in_range<TokenId>(value.get<std::int64_t>());
  if (!fits || value.get<std::int64_t>() < 0) {
    reader.reject(key, "must be a token id, not " + shown_value(value));
    return std::nullopt;
  }
  return static_cast<TokenId>(value.get<std::int64_t>());
}

/// Reads eos_token_id, one id or a list of ids; nothing when the key is absent.
std::optional<std::vector<TokenId>> read_eos(ConfigReader& reader) {
  constexpr std::size_t kMaxEosTokens = 64;
  const auto* value = reader.find("eos_token_id");
  if (value == nullptr) return std::nullopt;
  std::vector<TokenId> tokens;
  if (!value->is_array()) {
    if (const auto token = read_token(reader, "eos_token_id", *value)) tokens.push_back(*token);
    return tokens;
  }
  if (value->size() > kMaxEosTokens) {
    reader.reject("eos_token_id", "has more than " + std::to_string(kMaxEosTokens) + " entries");
    return tokens;
  }
  for (const auto& entry : *value) {
    const auto token = read_token(reader, "eos_token_id", entry);
    if (token && std::ranges::find(tokens, *token) == tokens.end()) tokens.push_back(*token);
  }
  return tokens;
}

void check_tokens(ConfigReader& reader, const models::ModelSpec& spec) {
  const auto check = [&](const char* key, TokenId token) {
    if (token >= spec.vocab_size) {
      reader.reject(key, std::to_string(token) + " is not below vocab_size " + std::to_string(spec.vocab_size));
    }
  };
  if (spec.bos_token_id) check("bos_token_id", *spec.bos_token_id);
  for (const auto token : spec.eos_token_ids) check("eos_token_id", token);
}

Result<nlohmann::json> parse_object(const ConfigText& text) {
  auto root = parse_json(text.text, text.file_name, ErrorCode::bad_config);
  if (root && !root->is_object()) return fail(ErrorCode::bad_config, text.file_name + ": not a JSON object");
  return root;
}

std::string_view text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

Result<MappedFile> open_config(const std::filesystem::path& path) {
  auto file = MappedFile::open(path);
  if (!file) return fail(ErrorCode::bad_config, file.error().message);
  if (std::cmp_greater(file->bytes().size(), kMaxConfigBytes)) {
    return fail(ErrorCode::bad_config, file->path() + ": more than " + std::to_string(kMaxConfigBytes) + " bytes");
  }
  return file;
}

}  // namespace

Result<models::ModelSpec> read_hf_config(ConfigReader& reader) {
  const models::Family* family = read_family(reader);
  if (family == nullptr) return fail(reader.status().error());
  models::ModelSpec spec = family->describe(reader);
  if (!reader.status()) return fail(reader.status().error());
  spec.architecture = family->architecture;
  spec.checkpoint_dtype = read_dtype(reader);
  read_quantization_config(reader);
  if (const auto* bos = reader.find("bos_token_id")) spec.bos_token_id = read_token(reader, "bos_token_id", *bos);
  if (auto eos = read_eos(reader)) spec.eos_token_ids = std::move(*eos);
  check_tokens(reader, spec);
  if (!reader.status()) return fail(reader.status().error());
  return spec;
}

Result<models::ModelSpec> parse_hf_config(const ConfigText& config_text, const ConfigText* generation,
                                          StoredQuantization quantization, std::optional<bool> tied) {
  auto root = parse_object(config_text);
  if (!root) return fail(root.error());
  if (tied) (*root)["tie_word_embeddings"] = *tied;
  if (quantization == StoredQuantization::ignored) erase_quantization(*root);
  ConfigReader reader(*root, config_text.file_name);
  auto spec = read_hf_config(reader);
  if (!spec || generation == nullptr) return spec;
  const auto generation_root = parse_object(*generation);
  if (!generation_root) return fail(generation_root.error());
  ConfigReader generation_reader(*generation_root, generation->file_name);
  if (auto eos = read_eos(generation_reader)) spec->eos_token_ids = std::move(*eos);
  check_tokens(generation_reader, *spec);
  if (!generation_reader.status()) return fail(generation_reader.status().error());
  return spec;
}

Result<std::optional<QuantizationConfig>> load_quantization_config(const std::filesystem::path& folder) {
  const auto file = open_config(folder / "config.json");
  if (!file) return fail(file.error());
  const auto root = parse_object({text_of(*file), file->path()});
  if (!root) return fail(root.error());
  ConfigReader reader(*root, file->path());
  auto config = read_quantization_config(reader);
  if (!reader.status()) return fail(reader.status().error());
  if (config) return config;
  for (const char* name : kQuantizationFiles) {
    if (!has_entry(folder / name)) continue;
    const auto own_file = open_config(folder / name);
    if (!own_file) return fail(own_file.error());
    const auto own_root = parse_object({text_of(*own_file), own_file->path()});
    if (!own_root) return fail(own_root.error());
    ConfigReader own(*own_root, own_file->path());
    config = read_quantization_file(own, reader);
    if (!own.status()) return fail(own.status().error());
    if (!reader.status()) return fail(reader.status().error());
    return config;
  }
  return config;
}

Result<models::ModelSpec> load_hf_config(const std::filesystem::path& folder, StoredQuantization quantization,
                                         std::optional<bool> tied) {
  const auto config_file = open_config(folder / "config.json");
  if (!config_file) return fail(config_file.error());
  const ConfigText config{text_of(*config_file), config_file->path()};

  const auto generation_path = folder / "generation_config.json";
  if (!has_entry(generation_path)) return parse_hf_config(config, nullptr, quantization, tied);
  const auto generation_file = open_config(generation_path);
  if (!generation_file) return fail(generation_file.error());
  const ConfigText generation{text_of(*generation_file), generation_file->path()};
  return parse_hf_config(config, &generation, quantization, tied);
}

}  // namespace pagoda::io
