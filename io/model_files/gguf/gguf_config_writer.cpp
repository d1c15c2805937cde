#include "io/model_files/gguf/gguf_config_writer.hpp"

#include <array>
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
using models::GatedDecoderConfig;
using models::PlainDecoderConfig;

constexpr std::size_t kMaxBytesOfConfig = std::size_t{16} << 20;

using ReadGated = GatedDecoderConfig (*)(models::ConfigSource& config);
constexpr std::array<std::pair<std::string_view, ReadGated>, 7> kGatedFamilies{{
    {"BaiChuanForCausalLM", models::read_baichuan_7b},
    {"BaichuanForCausalLM", models::read_baichuan},
    {"LlamaForCausalLM", models::read_llama},
    {"MistralForCausalLM", models::read_mistral},
    {"Phi3ForCausalLM", models::read_phi3},
    {"Qwen2ForCausalLM", models::read_qwen2},
    {"Qwen3ForCausalLM", models::read_qwen3},
}};

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
    if (family == "GPT2LMHeadModel") {
      write_plain(models::read_gpt2(reader_));
    } else {
      for (const auto& [name, read] : kGatedFamilies) {
        if (name == family) write_gated(read(reader_));
      }
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

  void write_gated(const GatedDecoderConfig& config) {
    if (!reader_.status()) return;
    const layers::AttentionShape& attention = config.attention;
    const layers::RotaryShape& rotary = config.positions.rotary;
    if (config.activation != kernels::Activation::silu) refuse("hidden_act", "GGUF supports only silu");
    const bool has_window_key = result_.architecture->name == "llama" || result_.architecture->name == "phi3";
    if (!config.layer_windows.empty() || (attention.window > 0 && !has_window_key)) {
      refuse("use_sliding_window", "GGUF files of this architecture do not support a sliding window");
    }
    nlohmann::json values{{"num_hidden_layers", config.num_layers},
                          {"max_position_embeddings", config.max_position_embeddings},
                          {"hidden_size", config.hidden_size},
                          {"intermediate_size", config.intermediate_size},
                          {"num_attention_heads", attention.num_heads},
                          {"num_key_value_heads", attention.num_kv_heads},
                          {"head_dim", attention.head_dim},
                          {"rms_norm_eps", config.norm_eps}};
    const bool is_rotary = config.positions.kind == layers::PositionKind::rotary;
    if (is_rotary) values["rope_theta"] = rotary.theta;
    if (attention.window > 0) values["sliding_window"] = attention.window;
    write_keys(values);
    metadata_.set(key("attention.value_length"), static_cast<std::uint32_t>(attention.head_dim));
    metadata_.set(key("rope.dimension_count"), static_cast<std::uint32_t>(rotary.rotary_dim));
    metadata_.set(key("vocab_size"), static_cast<std::uint32_t>(config.vocab_size));
    if (is_rotary) write_scaling(rotary);
    if (result_.architecture->name == "baichuan") metadata_.set(key(kMaxAlibiBias), is_rotary ? 0.0F : kUsualAlibiBias);
    result_.heads = {attention.num_heads, attention.num_kv_heads};
    result_.vocab_size = config.vocab_size;
  }

  void write_plain(const PlainDecoderConfig& config) {
    if (!reader_.status()) return;
    if (config.activation != kernels::Activation::gelu_tanh) {
      refuse("activation_function", "GGUF supports only gelu_new");
    }
    write_keys({{"n_layer", config.num_layers},
                {"n_positions", config.max_position_embeddings},
                {"n_embd", config.hidden_size},
                {"n_inner", config.intermediate_size},
                {"n_head", config.attention.num_heads},
                {"layer_norm_epsilon", config.norm_eps}});
    result_.heads = {config.attention.num_heads, config.attention.num_heads};
    result_.vocab_size = config.vocab_size;
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
