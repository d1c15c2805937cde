#include "io/model_files/gguf/folder_from_gguf.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/layers/rotary.hpp"
#include "engine/models/transpose.hpp"
#include "io/model_files/file_text.hpp"
#include "io/model_files/gguf/element_changes.hpp"
#include "io/model_files/gguf/folder_tokenizer_of_gguf.hpp"
#include "io/model_files/gguf/gguf_blocks.hpp"
#include "io/model_files/gguf/gguf_config.hpp"
#include "io/model_files/gguf/gguf_names.hpp"
#include "io/model_files/gguf/gguf_tokenizer.hpp"
#include "io/model_files/hf_config.hpp"

namespace pagoda::io {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

const char* safetensors_type(GgmlType type) {
  if (type == ggml::kF32) return "F32";
  return type == ggml::kF16 ? "F16" : "BF16";
}

/// Finds the "llama3" scaling that gives `factors`, with the limits 1 and 4 that all models of Llama 3.1 and later
/// have, and a power of two of original positions. Returns null where all factors are 1, and nothing where no such
/// scaling exists.
std::optional<ordered_json> llama3_scaling(const json& config, const std::vector<double>& factors) {
  constexpr double kTolerance = 1e-5;  // files have factors that were computed in float64 or float32
  constexpr std::int64_t kUsualPositions = 8192;
  constexpr std::int64_t kMaxPositions = std::int64_t{1} << 24;
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
    if (other > kMaxPositions) return std::nullopt;
    positions = other;
  }
  return ordered_json{{"rope_type", "llama3"},
                      {"factor", most},
                      {"low_freq_factor", shape.scaling.low_freq_factor},
                      {"high_freq_factor", shape.scaling.high_freq_factor},
                      {"original_max_position_embeddings", positions}};
}

/// Adapts `config` to the keys that other programs read for Baichuan: for a model with rotary positions they decide by
/// the architecture's name "BaiChuanForCausalLM"; for a model with ALiBi they read the longest text from
/// model_max_length.
void adapt_to_baichuan(ordered_json& config) {
  if (config.at("position_embedding") == "ROPE") {
    config["architectures"] = {"BaiChuanForCausalLM"};
  } else if (const auto longest = config.find("max_position_embeddings"); longest != config.end()) {
    config["model_max_length"] = *longest;
    config.erase("max_position_embeddings");
  }
}

/// Returns config.json with its keys in the usual order.
Result<ordered_json> folder_config(const GgufFile& file) {
  const auto architecture = find_gguf_architecture(file);
  if (!architecture) return fail(architecture.error());
  auto said = gguf_as_hf_config(file);
  if (!said) return fail(std::move(said.error()));
  ordered_json config{{"architectures", said->at("architectures")},
                      {"model_type", said->at("model_type")},
                      {(*architecture)->activation_key, (*architecture)->activation}};
  for (const auto& [key, value] : said->items()) {
    if (!value.is_null()) config[key] = value;
  }
  for (const char* key : {kNormsIncludeOne, kPackedQkv}) config.erase(key);
  if (config.at("model_type") == "baichuan") adapt_to_baichuan(config);
  if ((*architecture)->windows_by_layer && said->contains("sliding_window") && said->at("sliding_window").is_null()) {
    // Readers take a window of 4096 where the key is absent.
    config["layer_types"] =
        std::vector<std::string>(said->value("num_hidden_layers", std::size_t{0}), "full_attention");
  }
  // A single id stands without a list, and without an id the key is left out.
  const json& ends = said->at("eos_token_id");
  if (ends.empty()) config.erase("eos_token_id");
  if (ends.size() == 1) config["eos_token_id"] = ends.front();
  if (const auto scaling = said->find("rope_scaling"); scaling != said->end() && scaling->contains("factors")) {
    auto llama3 = llama3_scaling(*said, scaling->at("factors").get<std::vector<double>>());
    if (!llama3) {
      return fail(ErrorCode::unsupported,
                  file.path() + ": tensor " + quote(kRopeFactors) +
                      " does not have the factors of a Llama 3 scaling, and config.json cannot express other factors",
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

/// A tensor of the file, whose rows are written in Hugging Face's order.
struct Rows {
  const GgufTensor* tensor = nullptr;
  std::int64_t interleaved_heads = 0;  ///< 0: rows are in order already
};

void append_in_order(const Rows& rows, std::vector<std::byte>& memory) {
  const std::span<const std::byte> data = rows.tensor->data;
  const std::size_t begin = memory.size();
  memory.insert(memory.end(), data.begin(), data.end());
  if (rows.interleaved_heads == 0) return;
  const std::int64_t num_rows = rows.tensor->shape.front();
  const std::size_t row_bytes = data.size() / static_cast<std::size_t>(num_rows);
  for (std::int64_t row = 0; row < num_rows; ++row) {
    const auto from = static_cast<std::size_t>(interleaved_row(row, num_rows / rows.interleaved_heads));
    std::memcpy(memory.data() + begin + static_cast<std::size_t>(row) * row_bytes, data.data() + from * row_bytes,
                row_bytes);
  }
}

/// Returns the rows of all `parts`, one part after the other.
std::span<const std::byte> in_order(const std::vector<Rows>& parts, std::vector<std::byte>& memory) {
  if (parts.size() == 1 && parts.front().interleaved_heads == 0) return parts.front().tensor->data;
  memory.clear();
  for (const Rows& rows : parts) append_in_order(rows, memory);
  return memory;
}

std::span<const std::byte> transposed(const GgufTensor& tensor, std::vector<std::byte>& memory) {
  memory.resize(tensor.data.size());
  models::transpose(
      {tensor.data.data(), *ggml_type_info(tensor.type)->plain, tensor.shape.front(), tensor.shape.back()},
      memory.data());
  return memory;
}

/// Adds the tensors of a file as tensors of a folder.
class TensorsOfGguf {
 public:
  TensorsOfGguf(std::shared_ptr<const GgufFile> file, const GgufArchitecture& architecture, const GgufHeads& heads,
                FolderParts& parts)
      : file_(std::move(file)), architecture_(architecture), heads_(heads), parts_(parts) {}

  Status add_all() {
    for (const auto& [name, tensor] : file_->tensors()) {
      if (name == kRopeFactors) continue;  // its factors are in config.json
      if (Status status = add(tensor); !status) return status;
    }
    return {};
  }

 private:
  Status refuse(const GgufTensor& tensor, const std::string& reason) const {
    return fail(ErrorCode::unsupported, file_->path_of(tensor) + ": tensor " + quote(tensor.name) + " " + reason,
                "model");
  }

  Status add(const GgufTensor& tensor) {
    const auto name = hugging_face_tensor_name(architecture_, tensor.name, *file_);
    if (!name) return refuse(tensor, "has no name in a folder");
    if (const auto packed = packed_tensor_of(architecture_, *name)) return add_packed(tensor, *packed);
    const auto rows = rows_of(tensor);
    if (!rows) return fail(rows.error());
    if (tensor.shape.size() == 2 && is_transposed_in_folders(architecture_, tensor.name)) {
      add_tensor(*name, tensor, {tensor.shape[1], tensor.shape[0]}, tensor.data.size(),
                 [&tensor](auto& memory) { return transposed(tensor, memory); });
    } else if (includes_one(architecture_, tensor.name)) {
      if (tensor.type != ggml::kF32) return refuse(tensor, "is not F32");
      add_tensor(*name, tensor, tensor.shape, tensor.data.size(), [&tensor](auto& memory) {
        memory.assign(tensor.data.begin(), tensor.data.end());
        add_to_floats(-1.0F, memory);
        return std::span<const std::byte>(memory);
      });
    } else {
      add_rows(*name, {*rows});
    }
    return {};
  }

  /// Adds the packed tensor with all its parts, when the first part is found.
  Status add_packed(const GgufTensor& tensor, const GgufPackedTensor& packed) {
    std::vector<Rows> all;
    for (const std::string& name : packed.parts) {
      const GgufTensor* const part = file_->tensor(name);
      const std::string whole = "is a part of a folder's " + quote(packed.name) + ", ";
      if (part == nullptr) return refuse(tensor, whole + "but there is no " + quote(name));
      if (part->type != tensor.type) return refuse(tensor, whole + "but " + quote(name) + " has another type");
      const bool is_vector = part->shape.size() == 1 && tensor.shape.size() == 1;
      if (!is_vector && !(part->shape.size() == 2 && tensor.shape.size() == 2 && part->shape[1] == tensor.shape[1])) {
        return refuse(tensor, whole + "but " + quote(name) + " has other columns");
      }
      const auto rows = rows_of(*part);
      if (!rows) return fail(rows.error());
      all.push_back(*rows);
    }
    if (tensor.name != packed.parts.front()) return {};
    if (tensor.shape.size() == 2) add_joined(packed);
    add_rows(packed.name, std::move(all));
    return {};
  }

  Result<Rows> rows_of(const GgufTensor& tensor) const {
    if (!ggml_type_info(tensor.type)->plain) return fail(refuse(tensor, "is quantised").error());
    const std::int64_t num_heads = interleaved_heads(architecture_, tensor.name, heads_);
    if (num_heads != 0 && tensor.shape.front() % (2 * num_heads) != 0) {
      return fail(refuse(tensor, "is not " + std::to_string(num_heads) + " heads of an even size").error());
    }
    return Rows{&tensor, num_heads};
  }

  void add_rows(const std::string& name, std::vector<Rows> rows) {
    const GgufTensor& first = *rows.front().tensor;
    std::vector<std::int64_t> shape = first.shape;
    shape.front() = 0;
    std::size_t bytes = 0;
    for (const Rows& each : rows) {
      shape.front() += each.tensor->shape.front();
      bytes += each.tensor->data.size();
    }
    add_tensor(name, first, std::move(shape), bytes,
               [rows = std::move(rows)](auto& memory) { return in_order(rows, memory); });
  }

  template <class Data>
  void add_tensor(const std::string& name, const GgufTensor& of_type, std::vector<std::int64_t> shape,
                  std::size_t bytes, Data data) {
    parts_.tensors.push_back(
        {name, safetensors_type(of_type.type), std::move(shape), bytes,
         [file = file_, data = std::move(data)](std::vector<std::byte>& memory) { return data(memory); }});
  }

  /// Records the parts of `packed` as linear layers that the file's model has instead of the joined layer.
  void add_joined(const GgufPackedTensor& packed) {
    const auto module_of = [](std::string_view name) { return std::string(name.substr(0, name.rfind('.'))); };
    FolderParts::Joined joined{module_of(packed.name), {}};
    for (const std::string& part : packed.parts) {
      joined.modules.push_back(module_of(*hugging_face_tensor_name(architecture_, part, *file_)));
    }
    parts_.joined.push_back(std::move(joined));
  }

  std::shared_ptr<const GgufFile> file_;
  const GgufArchitecture& architecture_;
  GgufHeads heads_;
  FolderParts& parts_;
};

Status add_tensors(const std::shared_ptr<const GgufFile>& file, FolderParts& parts) {
  const auto architecture = find_gguf_architecture(*file);
  if (!architecture) return fail(architecture.error());
  const auto heads = read_gguf_heads(*file, **architecture);
  if (!heads) return fail(heads.error());
  return TensorsOfGguf(file, **architecture, *heads, parts).add_all();
}

/// Checks that the folder's config describes the model that the file describes.
Status check_config(const GgufFile& file, const models::ModelSpec& wanted, const ordered_json& config,
                    const std::string& generation) {
  const std::string text = config.dump();
  const ConfigText generation_text{generation, "generation_config.json"};
  const auto spec = parse_hf_config({text, "config.json"}, &generation_text);
  if (!spec) return fail(spec.error());
  if (spec->facts == wanted.facts && has_same_attention(*spec, wanted) && spec->vocab_size == wanted.vocab_size &&
      spec->max_position_embeddings == wanted.max_position_embeddings &&
      spec->position_limit == wanted.position_limit && spec->tie_word_embeddings == wanted.tie_word_embeddings &&
      spec->eos_token_ids == wanted.eos_token_ids && spec->bos_token_id == wanted.bos_token_id) {
    return {};
  }
  return fail(ErrorCode::unsupported, file.path() + ": config.json cannot express all of its metadata", "model");
}

}  // namespace

Result<FolderParts> folder_parts_of_gguf(const std::shared_ptr<const GgufFile>& file) {
  const auto spec = read_gguf_spec(*file);  // which checks the values of keys
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
