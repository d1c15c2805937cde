#include "io/model_files/gguf/gguf_config_writer.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "engine/layers/rotary.hpp"
#include "engine/models/families.hpp"
#include "engine/models/rope_config.hpp"
#include "io/model_files/config_reader.hpp"
#include "io/model_files/file_text.hpp"

namespace pagoda::io {
namespace {

using layers::RopeScaling;
using models::DecoderConfig;

constexpr std::size_t kMaxBytesOfConfig = std::size_t{16} << 20;

std::string family_of(ConfigReader& reader) {
  const auto* names = reader.find("architectures");
  if (names != nullptr && names->is_array() && !names->empty() && names->front().is_string()) {
    return names->front().get<std::string>();
  }
  reader.reject("architectures", "must be an array with the architecture's name");
  return {};
}

/// Writes one config.json. Errors are in the reader's status.
class ConfigWriter {
 public:
  ConfigWriter(ConfigReader& reader, GgufMetadata& metadata) : reader_(reader), metadata_(metadata) {}

  GgufConfig write() {
    const std::string family = family_of(reader_);
    result_.architecture = find_gguf_architecture(family);
    if (result_.architecture == nullptr) {
      refuse("architectures",
             quote(family) + " is not supported in GGUF files; supported are " + gguf_architecture_names());
      return result_;
    }
    metadata_.set("general.architecture", result_.architecture->name);
    const models::ModelSpec spec = models::find_family(family)->describe(reader_);
    if (!reader_.status()) return result_;
    result_.vocab_size = spec.vocab_size;
    result_.heads = {spec.decoder.attention.num_heads, spec.decoder.attention.num_kv_heads};
    check_activation(spec.decoder.activation);
    if (family == "GPT2LMHeadModel") {
      write_gpt2(spec.decoder);
    } else {
      write_decoder(spec.decoder);
    }
    return result_;
  }

 private:
  void refuse(const char* key, const std::string& reason) { reader_.reject(key, reason, ErrorCode::unsupported); }

  std::string key(std::string_view name) const {
    return std::string(result_.architecture->name).append(".").append(name);
  }

  /// Writes those `values`, under Hugging Face's names, for which the architecture has keys.
  void write_keys(const nlohmann::json& values) {
    for (const GgufKey& entry : result_.architecture->keys) {
      const auto value = values.find(entry.hugging_face);
      if (value == values.end()) continue;
      if (entry.is_real) {
        metadata_.set(key(entry.gguf), value->get<float>());
      } else {
        metadata_.set(key(entry.gguf), value->get<std::uint32_t>());
      }
    }
  }

  void check_activation(kernels::Activation activation) {
    if (activation == result_.architecture->activation) return;
    const bool is_silu = result_.architecture->activation == kernels::Activation::silu;
    for (const char* key : {"activation_function", "hidden_activation", "hidden_act"}) {
      if (reader_.has(key)) return refuse(key, is_silu ? "GGUF supports only silu" : "GGUF supports only gelu_new");
    }
  }

  void write_decoder(const DecoderConfig& config) {
    const layers::AttentionShape& attention = config.attention;
    const layers::PositionShape& positions = config.positions.front();
    const bool is_rotary = positions.kind == layers::PositionKind::rotary;
    nlohmann::json values{{"num_hidden_layers", config.num_layers()},
                          {"max_position_embeddings", config.max_position_embeddings},
                          {"hidden_size", config.hidden_size},
                          {"intermediate_size", config.intermediate_size},
                          {"num_attention_heads", attention.num_heads},
                          {"num_key_value_heads", attention.num_kv_heads},
                          {"head_dim", attention.head_dim},
                          {"rms_norm_eps", config.norm_eps},
                          {"layer_norm_eps", config.norm_eps}};
    if (is_rotary) values["rope_theta"] = positions.rotary.theta;
    if (config.positions.size() > 1) values["rope_local_base_freq"] = config.positions[1].rotary.theta;
    if (attention.softcap > 0.0) values["attn_logit_softcapping"] = attention.softcap;
    write_logit_scale(values);
    if (config.positions.size() > 1 && config.positions[1].rotary.scaling.type != RopeScaling::Type::none) {
      refuse("rope_parameters", "GGUF does not support rope scaling in layers with a window");
    }
    write_window(config, values);
    write_keys(values);
    metadata_.set(key("attention.value_length"), static_cast<std::uint32_t>(attention.head_dim));
    metadata_.set(key("rope.dimension_count"), static_cast<std::uint32_t>(positions.rotary.rotary_dim));
    metadata_.set(key("vocab_size"), static_cast<std::uint32_t>(config.vocab_size));
    if (is_rotary) write_scaling(positions.rotary);
    if (result_.architecture->name == "baichuan") metadata_.set(key(kMaxAlibiBias), is_rotary ? 0.0F : kUsualAlibiBias);
  }

  /// Adds the factor and the softcap of logits to `values`. Files of Gemma 2 cannot have none: readers take the usual.
  void write_logit_scale(nlohmann::json& values) {
    constexpr const char* kSoftcap = "final_logit_softcapping";
    constexpr double kUsualScaleOfCohere2 = 0.0625;
    const std::string_view name = result_.architecture->name;
    if (reader_.has(kSoftcap)) {
      values[kSoftcap] = reader_.number(kSoftcap, 0.0);
    } else if (name == "gemma2" && reader_.mentions(kSoftcap)) {
      refuse(kSoftcap, "GGUF does not support Gemma 2 without a softcap");
    }
    if (name == "cohere2") values["logit_scale"] = reader_.number("logit_scale", 0.0, kUsualScaleOfCohere2);
  }

  /// Adds the window of the layers to `values`. check_gguf_of_folder() checks which layers have it.
  void write_window(const DecoderConfig& config, nlohmann::json& values) {
    std::int32_t window = 0;
    for (const models::LayerShape& layer : config.layer_shapes) window = std::max(window, layer.window);
    if (window == 0) return;
    if (!result_.architecture->has_window) {
      refuse("use_sliding_window", "GGUF files of this architecture do not support a sliding window");
    }
    values["sliding_window"] = window;
  }

  void write_gpt2(const DecoderConfig& config) {
    write_keys({{"n_layer", config.num_layers()},
                {"n_positions", config.max_position_embeddings},
                {"n_embd", config.hidden_size},
                {"n_inner", config.intermediate_size},
                {"n_head", config.attention.num_heads},
                {"layer_norm_epsilon", config.norm_eps}});
  }

  void write_scaling(const layers::RotaryShape& rotary) {
    const RopeScaling& scaling = rotary.scaling;
    switch (scaling.type) {
      case RopeScaling::Type::none:
        return;
      case RopeScaling::Type::linear:
        metadata_.set(key("rope.scaling.type"), "linear");
        metadata_.set(key("rope.scaling.factor"), static_cast<float>(scaling.factor));
        return;
      case RopeScaling::Type::yarn:
        return write_yarn(scaling);
      case RopeScaling::Type::llama3:
        result_.rope_factors = layers::llama3_factors(rotary);
        return;
      case RopeScaling::Type::factors:
        result_.rope_factors.assign(scaling.factors.begin(), scaling.factors.end());
        return;
      case RopeScaling::Type::dynamic:
        return refuse(scaling_key(), "GGUF does not support dynamic scaling");
    }
  }

  void write_yarn(const RopeScaling& scaling) {
    if (!scaling.truncate) return refuse(scaling_key(), "GGUF does not support yarn without truncate");
    metadata_.set(key("rope.scaling.type"), "yarn");
    metadata_.set(key("rope.scaling.factor"), static_cast<float>(scaling.factor));
    metadata_.set(key("rope.scaling.original_context_length"),
                  static_cast<std::uint32_t>(scaling.original_max_position_embeddings));
    const auto set_unless = [&](double usual, const char* name, double value) {
      if (std::abs(value - usual) > 1e-6) metadata_.set(key(name), static_cast<float>(value));
    };
    const RopeScaling usual;
    set_unless(usual.beta_fast, "rope.scaling.yarn_beta_fast", scaling.beta_fast);
    set_unless(usual.beta_slow, "rope.scaling.yarn_beta_slow", scaling.beta_slow);
    // Some programs ignore yarn_attn_factor and use the usual attention factor; they multiply it by attn_factor.
    set_unless(1.0, "rope.scaling.attn_factor",
               scaling.attention_factor / models::yarn_attention_factor(scaling.factor));
  }

  const char* scaling_key() const { return reader_.has("rope_scaling") ? "rope_scaling" : "rope_parameters"; }

  ConfigReader& reader_;
  GgufMetadata& metadata_;
  GgufConfig result_;
};

}  // namespace

Result<GgufConfig> write_gguf_config(const std::filesystem::path& folder, GgufMetadata& metadata) {
  const std::filesystem::path path = folder / "config.json";
  const auto root = read_json_file(path, kMaxBytesOfConfig, ErrorCode::bad_config);
  if (!root) return fail(root.error());
  if (!root->is_object()) return fail(ErrorCode::bad_config, path.string() + ": is not a JSON object");
  ConfigReader reader(*root, path.string());
  GgufConfig config = ConfigWriter(reader, metadata).write();
  if (!reader.status()) return fail(reader.status().error());
  return config;
}

void write_gguf_sampling_defaults(const SamplingDefaults& defaults, GgufMetadata& metadata) {
  const auto set = [&](const char* key, const std::optional<double>& value) {
    if (value) metadata.set(std::string("general.sampling.") + key, static_cast<float>(*value));
  };
  set("temp", defaults.temperature);
  set("top_p", defaults.top_p);
  set("min_p", defaults.min_p);
  set("penalty_repeat", defaults.repetition_penalty);
  if (defaults.top_k) metadata.set("general.sampling.top_k", static_cast<std::int32_t>(*defaults.top_k));
}

}  // namespace pagoda::io
