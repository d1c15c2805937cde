#include "io/model_files/gguf/gguf_config.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "engine/models/rope_config.hpp"
#include "io/model_files/config_reader.hpp"
#include "io/model_files/file_text.hpp"
#include "io/model_files/generation_config.hpp"
#include "io/model_files/gguf/gguf_blocks.hpp"
#include "io/model_files/gguf/gguf_names.hpp"
#include "io/model_files/gguf/gguf_tokenizer.hpp"
#include "io/model_files/hf_config.hpp"

namespace pagoda::io {
namespace {

using nlohmann::json;

constexpr std::string_view kAttnFactor = "rope.scaling.attn_factor";

/// Keys of an architecture that do not change what is computed here.
constexpr std::array<std::string_view, 4> kIgnoredKeys{"vocab_size", "tensor_data_layout", "rope.scaling.finetuned",
                                                       "use_parallel_residual"};

/// Numbers are stored with 32 bits. Returns the decimal number that was meant: 1e-05 and not 9.999999747378752e-06.
double as_written(double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.7g", value);
  return std::strtod(text.data(), nullptr);
}

json to_json(const GgufValue& value) {
  return std::visit(
      [](const auto& v) -> json {
        using T = std::decay_t<decltype(v)>;
        if constexpr (std::is_same_v<T, double>) {
          return as_written(v);
        } else if constexpr (std::is_same_v<T, std::vector<std::string_view>>) {
          return json::array();
        } else {
          return json(v);
        }
      },
      value);
}

/// Makes the config.json of a GGUF file's model. names() maps its keys to the file's keys, for messages.
class ConfigOfGguf {
 public:
  ConfigOfGguf(const GgufFile& file, const GgufArchitecture& architecture)
      : file_(file), architecture_(architecture), prefix_(std::string(architecture.name) + ".") {}

  Status fill() {
    set_names(architecture_.hugging_face);
    if (Status status = copy_keys(); !status) return status;
    for (const auto step :
         {&ConfigOfGguf::add_sizes, &ConfigOfGguf::add_heads, &ConfigOfGguf::add_window, &ConfigOfGguf::refuse_experts,
          &ConfigOfGguf::refuse_no_positions, &ConfigOfGguf::add_rope, &ConfigOfGguf::add_kind_of_positions,
          &ConfigOfGguf::add_query_scalar, &ConfigOfGguf::add_tokens, &ConfigOfGguf::refuse_unknown_keys}) {
      if (Status status = (this->*step)(); !status) return status;
    }
    return {};
  }

  const json& config() const { return config_; }
  const std::map<std::string, std::string, std::less<>>& names() const { return names_; }

 private:
  std::string key(std::string_view name) const { return prefix_ + std::string(name); }

  /// Returns the value of a key of the architecture. The key counts as known from now on.
  template <class T>
  Result<std::optional<T>> get(std::string_view name) {
    known_.emplace(name);
    return file_.get<T>(key(name));
  }

  void set(const std::string& name, json value, std::string_view gguf_key) {
    config_[name] = std::move(value);
    names_[name] = gguf_key;
  }

  void set_names(const models::ModelNames& names) {
    config_["architectures"] = json::array({std::string(names.architecture)});
    config_["model_type"] = names.model_type;
  }

  Status copy_keys() {
    for (const models::GgufKey& entry : gguf_keys(architecture_)) {
      known_.emplace(entry.gguf);
      names_[std::string(entry.hugging_face)] = key(entry.gguf);
      const auto* value = file_.find(key(entry.gguf));
      if (value != nullptr) config_[std::string(entry.hugging_face)] = to_json(*value);
      if (value == nullptr && entry.is_required) return file_.bad(key(entry.gguf), "is missing");
    }
    return {};
  }

  Status add_sizes() {
    const auto* embedding = file_.tensor("token_embd.weight");
    if (embedding == nullptr) {
      return fail(ErrorCode::bad_file, file_.path() + ": tensor \"token_embd.weight\" is missing");
    }
    config_["vocab_size"] = embedding->shape.front();
    names_["vocab_size"] = "token_embd.weight";
    config_["tie_word_embeddings"] = file_.tensor("output.weight") == nullptr;
    config_["torch_dtype"] = dtype();
    if (file_.tensor("blk.0.attn_q.bias") != nullptr) config_["attention_bias"] = true;
    if (file_.tensor("blk.0.ffn_gate.bias") != nullptr) config_["mlp_bias"] = true;
    if (architecture_.norms_include_one) config_[kNormsIncludeOne] = true;
    if (!architecture_.packed_qkv.empty()) config_[kPackedQkv] = false;
    return {};
  }

  /// Returns the type of plain weights, which is also the default type of the KV cache.
  const char* dtype() const {
    bool all_f32 = true;
    for (const auto& [name, tensor] : file_.tensors()) {
      if (tensor.shape.size() < 2) continue;
      const auto plain = ggml_type_info(tensor.type)->plain;
      if (plain == DType::bf16) return "bfloat16";
      if (plain != DType::f32) all_f32 = false;
    }
    return all_f32 ? "float32" : "float16";
  }

  Status add_heads() {
    const auto heads = file_.get<std::int64_t>(key("attention.head_count"));
    const auto width = file_.get<std::int64_t>(key("embedding_length"));
    if (!heads) return fail(heads.error());
    if (!width) return fail(width.error());
    const auto key_length = file_.get<std::int64_t>(key("attention.key_length"));
    if (!key_length) return fail(key_length.error());
    const std::int64_t num_heads = std::max<std::int64_t>(1, heads->value_or(1));
    head_dim_ = key_length->value_or(width->value_or(0) / num_heads);
    const auto value_length = get<std::int64_t>("attention.value_length");
    if (!value_length) return fail(value_length.error());
    if (value_length->value_or(head_dim_) != head_dim_) {
      return file_.bad(key("attention.value_length"), "differs from the length of keys, which is not supported",
                       ErrorCode::unsupported);
    }
    const auto& keys = architecture_.keys;
    const bool names_it = std::ranges::find(keys, "head_dim", &models::GgufKey::hugging_face) != keys.end();
    if (names_it && head_dim_ > 0) config_["head_dim"] = head_dim_;
    return {};
  }

  Status add_window() {
    using models::GgufWindow;
    constexpr std::string_view kWindow = "attention.sliding_window";
    const auto window = get<std::int64_t>(kWindow);
    if (!window) return fail(window.error());
    if (!*window && architecture_.window == GgufWindow::required) return file_.bad(key(kWindow), "is missing");
    if (!*window && architecture_.window == GgufWindow::usual) return add_layers_with_window();
    if (window->value_or(0) == 0) {
      config_["sliding_window"] = nullptr;
    } else if (architecture_.window == GgufWindow::unsupported) {
      return file_.bad(key(kWindow), "is not supported in this architecture", ErrorCode::unsupported);
    } else if (!architecture_.hugging_face_with_window.architecture.empty()) {
      set_names(architecture_.hugging_face_with_window);
    }
    return add_layers_with_window();
  }

  /// Reads which layers have the window: all except every n-th layer, or the layers for which an array has true.
  Status add_layers_with_window() {
    constexpr std::string_view kPattern = "attention.sliding_window_pattern";
    if (!architecture_.windows_by_layer) return {};
    if (const auto* value = file_.find(key(kPattern)); value != nullptr && std::get_if<std::vector<bool>>(value)) {
      known_.emplace(kPattern);
      return add_layer_types(std::get<std::vector<bool>>(*value), key(kPattern));
    }
    const auto interval = get<std::int64_t>(kPattern);
    if (!interval) return fail(interval.error());
    return *interval ? add_full_layers(**interval, key(kPattern)) : Status{};
  }

  /// Gives the window to all layers except every `interval`-th one.
  Status add_full_layers(std::int64_t interval, const std::string& from) {
    if (interval < 1) return file_.bad(from, "must be at least 1", ErrorCode::bad_config);
    const auto layers = file_.get<std::int64_t>(key("block_count"));
    if (!layers) return fail(layers.error());
    const std::int64_t num_layers = layers->value_or(0);
    if (num_layers < 0 || num_layers > models::kMaxLayers) return {};  // an error when the config is read
    std::vector<bool> has_window;
    for (std::int64_t layer = 1; layer <= num_layers; ++layer) has_window.push_back(layer % interval != 0);
    return add_layer_types(has_window, from);
  }

  Status add_layer_types(const std::vector<bool>& has_window, const std::string& from) {
    const auto layers = file_.get<std::int64_t>(key("block_count"));
    if (!layers) return fail(layers.error());
    if (std::ssize(has_window) != layers->value_or(0)) {
      return file_.bad(from, "must have one boolean for each layer", ErrorCode::bad_config);
    }
    json types = json::array();
    for (const bool slides : has_window) types.push_back(slides ? "sliding_attention" : "full_attention");
    set("layer_types", std::move(types), from);
    return {};
  }

  Status refuse_experts() {
    for (const char* name : {"expert_count", "expert_used_count"}) {
      const auto count = get<std::int64_t>(name);
      if (!count) return fail(count.error());
      if (count->value_or(0) > 0) {
        return file_.bad(key(name), "is above 0, but mixtures of experts are not supported", ErrorCode::unsupported);
      }
    }
    return {};
  }

  Status refuse_no_positions() {
    constexpr std::string_view kFinetuned = "rope.scaling.finetuned";
    if (!architecture_.finetuned_means_rotary) return {};
    const auto is_finetuned = get<bool>(kFinetuned);
    if (!is_finetuned) return fail(is_finetuned.error());
    if (is_finetuned->value_or(true)) return {};
    return file_.bad(key(kFinetuned), "is false: a model without positions is not supported in this architecture",
                     ErrorCode::unsupported);
  }

  Status add_rope() {
    const auto turned = get<std::int64_t>("rope.dimension_count");
    if (!turned) return fail(turned.error());
    if (*turned && head_dim_ > 0 && **turned != head_dim_) {
      set("partial_rotary_factor", static_cast<double>(**turned) / static_cast<double>(head_dim_),
          key("rope.dimension_count"));
    }
    const auto type = get<std::string_view>("rope.scaling.type");
    const auto factor = get<double>("rope.scaling.factor");
    const auto old_factor = get<double>("rope.scale_linear");
    const auto original = get<std::int64_t>("rope.scaling.original_context_length");
    const auto yarn = read_yarn();
    if (!type) return fail(type.error());
    for (const auto* number : {&factor, &old_factor}) {
      if (!*number) return fail(number->error());
    }
    if (!original) return fail(original.error());
    if (!yarn) return fail(yarn.error());
    const std::string_view kind = type->value_or(*old_factor || *factor ? "linear" : "none");
    const double scale = factor->value_or(old_factor->value_or(1.0));
    for (const char* longrope : {"rope_factors_long.weight", "rope_factors_short.weight"}) {
      if (file_.tensor(longrope) != nullptr) {
        return fail(ErrorCode::unsupported,
                    file_.path() + ": tensor " + quote(longrope) + ": rope scaling by longrope is not supported");
      }
    }
    if (kind != "yarn" && yarn->attn_factor != 1.0) {
      return file_.bad(key(kAttnFactor), "must be 1 if the type of scaling is not yarn", ErrorCode::unsupported);
    }
    if (kind == "yarn" && yarn->ext_factor != 1.0) {
      return file_.bad(key("rope.scaling.yarn_ext_factor"), "must be 1: other values are not supported",
                       ErrorCode::unsupported);
    }
    json scaling = json::object();
    if (const auto* factors = file_.tensor(kRopeFactors)) {
      if (kind != "none" && !(kind == "linear" && scale == 1.0)) {
        return file_.bad(key("rope.scaling.type"), "must be none in a file with the tensor " + quote(kRopeFactors),
                         ErrorCode::unsupported);
      }
      auto values = factor_values(*factors);
      if (!values) return fail(values.error());
      scaling = {{"rope_type", "factors"}, {"factors", std::move(*values)}};
    } else if (kind == "linear" || kind == "yarn") {
      scaling["rope_type"] = kind;
      if (*factor || *old_factor) scaling["factor"] = as_written(scale);
      if (*original) scaling["original_max_position_embeddings"] = **original;
      if (kind == "linear" && scale == 1.0) return {};
      if (kind == "yarn" && !scaling.contains("factor")) return file_.bad(key("rope.scaling.factor"), "is missing");
      if (kind == "yarn") scaling.update(yarn->in_config(as_written(scale)));
    } else if (kind == "none") {
      return {};
    } else {
      return file_.bad(key("rope.scaling.type"), quote(kind) + " is not supported (none, linear and yarn are)",
                       ErrorCode::unsupported);
    }
    set("rope_scaling", std::move(scaling), key("rope.scaling"));
    return {};
  }

  /// YaRN's parameters in a file, without its factor. Converters copy the values of transformers, and here they have
  /// transformers' meaning. llama.cpp always uses the default values for the architectures that this file reads, and
  /// multiplies by attn_factor.
  struct Yarn {
    json in_config(double factor) const {
      json config = json::object();
      if (beta_fast) config["beta_fast"] = as_written(*beta_fast);
      if (beta_slow) config["beta_slow"] = as_written(*beta_slow);
      if (attention_factor || attn_factor != 1.0) {
        const double usual = models::yarn_attention_factor(factor);
        config["attention_factor"] =
            (attention_factor ? as_written(*attention_factor) : usual) * as_written(attn_factor);
      }
      return config;
    }

    std::optional<double> beta_fast;
    std::optional<double> beta_slow;
    std::optional<double> attention_factor;
    double attn_factor = 1.0;
    double ext_factor = 1.0;  ///< a value below 0 in a file means that the file does not set it
  };

  Result<Yarn> read_yarn() {
    const auto beta_fast = get<double>("rope.scaling.yarn_beta_fast");
    const auto beta_slow = get<double>("rope.scaling.yarn_beta_slow");
    const auto attention_factor = get<double>("rope.scaling.yarn_attn_factor");
    const auto extrapolation = get<double>("rope.scaling.yarn_ext_factor");
    const auto attn_factor = get<double>(kAttnFactor);
    for (const auto* number : {&beta_fast, &beta_slow, &attention_factor, &extrapolation, &attn_factor}) {
      if (!*number) return fail(number->error());
    }
    const double blend = extrapolation->value_or(1.0);
    return Yarn{*beta_fast, *beta_slow, *attention_factor, attn_factor->value_or(1.0), blend < 0 ? 1.0 : blend};
  }

  /// Sets the kind of positions where an architecture has two kinds. If the file does not name the kind, the number of
  /// layers decides.
  Status add_kind_of_positions() {
    if (architecture_.alibi_layers == 0) return {};
    const std::int64_t rotary_layers = architecture_.rotary_layers;
    const std::int64_t alibi_layers = architecture_.alibi_layers;
    const auto bias = get<double>(kMaxAlibiBias);
    if (!bias) return fail(bias.error());
    const auto layers = get<std::int64_t>("block_count");
    if (!layers) return fail(layers.error());
    if (!*bias && *layers != rotary_layers && *layers != alibi_layers) {
      return file_.bad(key(kMaxAlibiBias),
                       "is missing, and block_count is neither " + std::to_string(rotary_layers) + " nor " +
                           std::to_string(alibi_layers) +
                           ", so it is unknown whether positions are rotary (0) or ALiBi (8)",
                       ErrorCode::unsupported);
    }
    const double used = bias->value_or(*layers == alibi_layers ? kUsualAlibiBias : 0.0);
    if (used != 0.0 && used != kUsualAlibiBias) {
      return file_.bad(key(kMaxAlibiBias), "must be 0 or 8, other slopes are not supported", ErrorCode::unsupported);
    }
    set("position_embedding", used == 0.0 ? "ROPE" : "ALIBI", key(kMaxAlibiBias));
    return {};
  }

  /// Sets the factor of attention where an architecture has one. Files do not have it.
  Status add_query_scalar() {
    if (architecture_.layers_scaled_by_width == 0) return {};
    const auto layers = file_.get<std::int64_t>(key("block_count"));
    const auto heads = file_.get<std::int64_t>(key("attention.head_count"));
    const auto width = file_.get<std::int64_t>(key("embedding_length"));
    for (const auto* number : {&layers, &heads, &width}) {
      if (!*number) return fail(number->error());
    }
    const bool by_width = *layers == architecture_.layers_scaled_by_width && heads->value_or(0) > 0;
    config_["query_pre_attn_scalar"] = by_width ? width->value_or(0) / **heads : head_dim_;
    return {};
  }

  Result<json> factor_values(const GgufTensor& tensor) const {
    const auto* info = ggml_type_info(tensor.type);
    if (info->plain != DType::f32 || tensor.shape.size() != 1) {
      return fail(ErrorCode::unsupported, file_.path_of(tensor) + ": tensor " + quote(tensor.name) + " is not F32");
    }
    std::vector<float> values(static_cast<std::size_t>(tensor.elements()));
    dequantize_row(tensor.type, tensor.data.data(), tensor.elements(), values.data());
    if (!std::ranges::all_of(values, [](float x) { return std::isfinite(x) && x > 0; })) {
      return fail(ErrorCode::bad_file,
                  file_.path_of(tensor) + ": tensor " + quote(tensor.name) + " has values that are not above 0");
    }
    return json(std::vector<double>(values.begin(), values.end()));
  }

  Status add_tokens() {
    const auto bos = gguf_token_id(file_, "bos");
    if (!bos) return fail(bos.error());
    if (*bos) set("bos_token_id", **bos, "tokenizer.ggml.bos_token_id");
    std::set<std::int64_t> ends;
    for (const char* name : {"eos", "eot", "eom"}) {
      const auto end = gguf_token_id(file_, name);
      if (!end) return fail(end.error());
      if (*end) ends.insert(**end);
    }
    const auto tokens = file_.get<std::vector<std::string_view>>(kGgufTokensKey);
    if (!tokens) return fail(tokens.error());
    if (*tokens) {
      for (std::size_t id = 0; id < (*tokens)->size(); ++id) {
        if (ends_answer((**tokens)[id])) ends.insert(static_cast<std::int64_t>(id));
      }
    }
    set("eos_token_id", std::vector<std::int64_t>(ends.begin(), ends.end()), "tokenizer.ggml.eos_token_id");
    return {};
  }

  Status refuse_unknown_keys() {
    known_.insert(kIgnoredKeys.begin(), kIgnoredKeys.end());
    for (const auto& [name, value] : file_.metadata()) {
      if (!name.starts_with(prefix_) || known_.contains(std::string_view(name).substr(prefix_.size()))) continue;
      return file_.bad(name, "is not known, and may change what the model computes", ErrorCode::unsupported);
    }
    return {};
  }

  const GgufFile& file_;
  const GgufArchitecture& architecture_;
  std::string prefix_;
  std::int64_t head_dim_ = 0;
  json config_ = json::object();
  std::map<std::string, std::string, std::less<>> names_;
  std::set<std::string, std::less<>> known_;  // keys, without the prefix, that have been read
};

}  // namespace

Result<models::ModelSpec> read_gguf_spec(const GgufFile& file) {
  const auto architecture = find_gguf_architecture(file);
  if (!architecture) return fail(architecture.error());
  ConfigOfGguf config(file, **architecture);
  if (const Status status = config.fill(); !status) return fail(status.error());
  ConfigReader reader(config.config(), file.path(), &config.names());
  return read_hf_config(reader);
}

Result<json> gguf_as_hf_config(const GgufFile& file) {
  const auto architecture = find_gguf_architecture(file);
  if (!architecture) return fail(architecture.error());
  ConfigOfGguf config(file, **architecture);
  if (const Status status = config.fill(); !status) return fail(status.error());
  return config.config();
}

Result<json> gguf_as_generation_config(const GgufFile& file) {
  constexpr std::string_view kPrefix = "general.sampling.";
  constexpr std::array<std::pair<const char*, const char*>, 5> kKeys{{{"temp", "temperature"},
                                                                      {"top_k", "top_k"},
                                                                      {"top_p", "top_p"},
                                                                      {"min_p", "min_p"},
                                                                      {"penalty_repeat", "repetition_penalty"}}};
  json defaults = json::object();
  for (const auto& [gguf, name] : kKeys) {
    const std::string key = std::string(kPrefix) + gguf;
    const auto value = file.get<double>(key);
    if (!value) return fail(value.error());
    if (*value) defaults[name] = to_json(*file.find(key));
  }
  return defaults;
}

Result<SamplingDefaults> read_gguf_sampling_defaults(const GgufFile& file) {
  const auto defaults = gguf_as_generation_config(file);
  if (!defaults) return fail(defaults.error());
  return parse_sampling_defaults(defaults->dump(), file.path() + ": general.sampling.*");
}

bool has_same_attention(const models::ModelSpec& a, const models::ModelSpec& b) {
  constexpr double kRounding = 1e-6;  // of float32 in a file
  const auto same = [](double x, double y) { return std::abs(x - y) <= kRounding * std::max(1.0, std::abs(x)); };
  return a.decoder.layer_shapes == b.decoder.layer_shapes &&
         same(a.decoder.attention.scale, b.decoder.attention.scale) &&
         same(a.decoder.attention.softcap, b.decoder.attention.softcap);
}

}  // namespace pagoda::io
