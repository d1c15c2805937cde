#include "io/model_files/gguf/folder_from_gguf.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/layers/rotary.hpp"
#include "io/model_files/file_text.hpp"
#include "io/model_files/gguf/folder_tokenizer_of_gguf.hpp"
#include "io/model_files/gguf/gguf_architecture.hpp"
#include "io/model_files/gguf/gguf_blocks.hpp"
#include "io/model_files/gguf/gguf_config.hpp"
#include "io/model_files/gguf/gguf_tokenizer.hpp"
#include "io/model_files/hf_config.hpp"

namespace pagoda::io {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr std::array<std::pair<std::string_view, const char*>, 5> kModelTypes{{
    {"LlamaForCausalLM", "llama"},
    {"MistralForCausalLM", "mistral"},
    {"Phi3ForCausalLM", "phi3"},
    {"Qwen2ForCausalLM", "qwen2"},
    {"Qwen3ForCausalLM", "qwen3"},
}};

const char* safetensors_type(GgmlType type) {
  if (type == ggml::kF32) return "F32";
  return type == ggml::kF16 ? "F16" : "BF16";
}

/// The scaling "llama3" that `config`'s factors say, as all models of Llama 3.1 and later have it: with their limits of
/// 1 and 4, and a power of two of original positions. Null where all factors are 1; nothing where there is none.
std::optional<ordered_json> llama3_scaling(const json& config, const std::vector<double>& factors) {
  constexpr double kTolerance = 1e-5;  // files have what was computed in float64 or float32
  constexpr std::int64_t kUsualPositions = 8192;
  constexpr std::int64_t kMostPositions = std::int64_t{1} << 24;
  const double most = *std::ranges::max_element(factors);
  if (most == 1.0) return ordered_json();
  layers::RotaryShape shape{.rotary_dim = 2 * std::ssize(factors),
                            .theta = config.value("rope_theta", layers::RotaryShape().theta),
                            .scaling = {.type = layers::RopeScaling::Type::llama3, .factor = most}};
  const auto fits = [&](std::int64_t positions) {
    shape.scaling.original_max_position_embeddings = positions;
    return std::ranges::equal(factors, layers::llama3_factors(shape), [&](double wanted, float factor) {
      return std::abs(wanted - double{factor}) <= kTolerance * wanted;
    });
  };
  std::int64_t positions = kUsualPositions;
  for (std::int64_t other = 2; !fits(positions); other *= 2) {
    if (other > kMostPositions) return std::nullopt;
    positions = other;
  }
  return ordered_json{{"rope_type", "llama3"},
                      {"factor", most},
                      {"low_freq_factor", shape.scaling.low_freq_factor},
                      {"high_freq_factor", shape.scaling.high_freq_factor},
                      {"original_max_position_embeddings", positions}};
}

/// config.json in an order that people know.
Result<ordered_json> folder_config(const GgufFile& file) {
  auto said = gguf_as_hf_config(file);
  if (!said) return fail(std::move(said.error()));
  const std::string architecture = said->at("architectures").at(0);
  const auto* type = std::ranges::find(kModelTypes, architecture, &decltype(kModelTypes)::value_type::first);
  if (type == kModelTypes.end()) {
    return file.bad("general.architecture",
                    "is " + quote(architecture) + ", of which no folder in the format of compressed-tensors is written",
                    ErrorCode::unsupported);
  }
  ordered_json config{{"architectures", {architecture}}, {"model_type", type->second}, {"hidden_act", "silu"}};
  for (const auto& [key, value] : said->items()) {
    if (!value.is_null()) config[key] = value;
  }
  // One is no list, and none is not said.
  const json& ends = said->at("eos_token_id");
  if (ends.empty()) config.erase("eos_token_id");
  if (ends.size() == 1) config["eos_token_id"] = ends.front();
  if (const auto scaling = said->find("rope_scaling"); scaling != said->end() && scaling->contains("factors")) {
    auto llama3 = llama3_scaling(*said, scaling->at("factors").get<std::vector<double>>());
    if (!llama3) {
      return fail(ErrorCode::unsupported,
                  file.path() + ": tensor " + quote(kRopeFactors) +
                      " has other factors than Llama 3's scaling makes, " + "which config.json cannot say",
                  "model");
    }
    config["rope_scaling"] = std::move(*llama3);
  }
  if (const auto padding = gguf_token_id(file, "padding"); padding && *padding) config["pad_token_id"] = **padding;
  config["use_cache"] = true;
  return config;
}

Result<std::string> generation_config(const GgufFile& file, const ordered_json& config) {
  const auto defaults = gguf_as_generation_config(file);
  if (!defaults) return fail(defaults.error());
  ordered_json generation = ordered_json::object();
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    if (config.contains(key)) generation[key] = config.at(key);
  }
  if (const auto temperature = defaults->find("temperature"); temperature != defaults->end()) {
    generation["do_sample"] = *temperature > 0;
  }
  for (const auto& [key, value] : defaults->items()) generation[key] = value;
  return generation.dump(2) + "\n";
}

/// Rows of a tensor whose heads are interleaved, in the order of folders.
std::span<const std::byte> in_folder_order(const GgufTensor& tensor, std::int64_t num_heads,
                                           std::vector<std::byte>& memory) {
  const std::int64_t num_rows = tensor.shape.front();
  const std::size_t row_bytes = tensor.data.size() / static_cast<std::size_t>(num_rows);
  memory.resize(tensor.data.size());
  for (std::int64_t row = 0; row < num_rows; ++row) {
    const auto from = static_cast<std::size_t>(interleaved_row(row, num_rows / num_heads));
    std::memcpy(memory.data() + static_cast<std::size_t>(row) * row_bytes, tensor.data.data() + from * row_bytes,
                row_bytes);
  }
  return memory;
}

Status add_tensors(const std::shared_ptr<const GgufFile>& file, FolderParts& parts) {
  const auto architecture = find_gguf_architecture(*file);
  if (!architecture) return fail(architecture.error());
  const auto heads = read_gguf_heads(*file, **architecture);
  if (!heads) return fail(heads.error());
  for (const auto& [name, tensor] : file->tensors()) {
    if (name == kRopeFactors) continue;  // config.json has them
    const auto refuse = [&, path = file->path_of(tensor)](const std::string& reason) {
      return fail(ErrorCode::unsupported, path + ": tensor " + quote(tensor.name) + " " + reason, "model");
    };
    const auto folder_name = hugging_face_tensor_name(**architecture, name, *file);
    if (!folder_name) return refuse("has no name in a folder");
    if (!ggml_type_info(tensor.type)->plain) return refuse("is quantised");
    const std::int64_t num_heads = interleaved_heads(**architecture, name, *heads);
    if (num_heads != 0 && tensor.shape.front() % (2 * num_heads) != 0) {
      return refuse("is not " + std::to_string(num_heads) + " heads of an even size");
    }
    parts.tensors.push_back({*folder_name, safetensors_type(tensor.type), tensor.shape, tensor.data.size(),
                             [file, &tensor = tensor, num_heads](std::vector<std::byte>& memory) {
                               return num_heads == 0 ? tensor.data : in_folder_order(tensor, num_heads, memory);
                             }});
  }
  return {};
}

/// Whether the folder's config says what the file says.
Status check_config(const GgufFile& file, const models::ModelSpec& wanted, const ordered_json& config,
                    const std::string& generation) {
  const std::string text = config.dump();
  const ConfigText generation_text{generation, "generation_config.json"};
  const auto spec = parse_hf_config({text, "config.json"}, &generation_text);
  if (!spec) return fail(spec.error());
  if (spec->facts == wanted.facts && spec->vocab_size == wanted.vocab_size &&
      spec->max_position_embeddings == wanted.max_position_embeddings &&
      spec->position_limit == wanted.position_limit && spec->tie_word_embeddings == wanted.tie_word_embeddings &&
      spec->eos_token_ids == wanted.eos_token_ids && spec->bos_token_id == wanted.bos_token_id) {
    return {};
  }
  return fail(ErrorCode::unsupported, file.path() + ": config.json cannot say all of its metadata", "model");
}

}  // namespace

Result<FolderParts> folder_parts_of_gguf(const std::shared_ptr<const GgufFile>& file) {
  const auto spec = read_gguf_spec(*file);  // which looks at the values of keys
  if (!spec) return fail(spec.error());
  FolderParts parts;
  auto config = folder_config(*file);
  if (!config) return fail(std::move(config.error()));
  auto generation = generation_config(*file, *config);
  if (!generation) return fail(std::move(generation.error()));
  if (Status status = check_config(*file, *spec, *config, *generation); !status) return fail(std::move(status.error()));
  auto tokenizer = folder_tokenizer_of_gguf(*file);
  if (!tokenizer) return fail(std::move(tokenizer.error()));
  if (Status status = add_tensors(file, parts); !status) return fail(std::move(status.error()));
  parts.config = std::move(*config);
  parts.texts = std::move(*tokenizer);
  parts.texts["generation_config.json"] = std::move(*generation);
  return parts;
}

}  // namespace pagoda::io
