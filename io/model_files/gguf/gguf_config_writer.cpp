#include "io/model_files/gguf/gguf_config_writer.hpp"

#include <cmath>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "engine/layers/mlp.hpp"
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
    const models::Family* const found = models::find_family(family);
    result_.architecture = found == nullptr ? nullptr : found->gguf;
    if (result_.architecture == nullptr) {
      refuse("architectures",
             quote(family) + " is not supported in GGUF files; supported are " + gguf_architecture_names());
      return result_;
    }
    metadata_.set("general.architecture", result_.architecture->name);
    const models::ModelSpec spec = found->describe(reader_);
    if (!reader_.status()) return result_;
    result_.vocab_size = spec.vocab_size;
    result_.heads = {spec.decoder.attention.num_heads, spec.decoder.attention.num_kv_heads};
    check_activation(spec.decoder.activation);
    write_decoder(spec.decoder);
    return result_;
  }

 private:
  void refuse(const char* key, const std::string& reason) { reader_.reject(key, reason, ErrorCode::unsupported); }

  std::string key(std::string_view name) const {
    return std::string(result_.architecture->name).append(".").append(name);
  }

  void write_key(const models::GgufKey& entry, double value) {
    if (entry.is_real) {
      metadata_.set(key(entry.gguf), static_cast<float>(value));
    } else {
      metadata_.set(key(entry.gguf), static_cast<std::uint32_t>(value));
    }
  }

  /// Writes the keys of the architecture: those `values`, by the names of GGUF, for which it has keys, and its own keys
  /// from config.json.
  void write_keys(const std::map<std::string_view, double>& values) {
    for (const models::GgufKey& entry : gguf_keys(*result_.architecture)) {
      if (const auto value = values.find(entry.gguf); value != values.end()) write_key(entry, value->second);
    }
    for (const models::GgufKey& entry : result_.architecture->own_keys) {
      if (values.contains(entry.gguf)) continue;
      const std::string name(entry.hugging_face);
      if (reader_.has(name.c_str())) {
        write_key(entry, reader_.number(name.c_str(), 0.0));
      } else if (entry.default_value && reader_.mentions(name.c_str())) {
        refuse(name.c_str(), "GGUF does not support null in this architecture");
      } else if (entry.default_value) {
        write_key(entry, *entry.default_value);
      }
    }
  }

  void check_activation(kernels::Activation activation) {
    const models::GgufArchitecture& architecture = *result_.architecture;
    if (activation == layers::activation_of(architecture.activation)) return;
    refuse(architecture.activation_key, std::string("GGUF supports only ") + architecture.activation);
  }

  void write_decoder(const DecoderConfig& config) {
    const layers::AttentionShape& attention = config.attention;
    const layers::PositionShape& positions = config.positions.front();
    const bool is_rotary = positions.kind == layers::PositionKind::rotary;
    const auto real = [](std::int64_t value) { return static_cast<double>(value); };
    std::map<std::string_view, double> values{
        {"block_count", real(config.num_layers())},          {"context_length", real(config.max_position_embeddings)},
        {"embedding_length", real(config.hidden_size)},      {"feed_forward_length", real(config.intermediate_size)},
        {"attention.head_count", real(attention.num_heads)}, {"attention.head_count_kv", real(attention.num_kv_heads)},
        {"attention.key_length", real(attention.head_dim)},  {result_.architecture->norm_eps.gguf, config.norm_eps}};
    if (is_rotary) values["rope.freq_base"] = positions.rotary.theta;
    if (config.positions.size() > 1) values["rope.freq_base_swa"] = config.positions[1].rotary.theta;
    if (attention.softcap > 0.0) values["attn_logit_softcapping"] = attention.softcap;
    if (config.positions.size() > 1 && config.positions[1].rotary.scaling.type != RopeScaling::Type::none) {
      refuse("rope_parameters", "GGUF does not support rope scaling in layers with a window");
    }
    if (const auto window = window_of(config); window > 0) values["attention.sliding_window"] = window;
    write_keys(values);
    if (positions.kind == layers::PositionKind::learned) return;
    metadata_.set(key("attention.value_length"), static_cast<std::uint32_t>(attention.head_dim));
    metadata_.set(key("rope.dimension_count"), static_cast<std::uint32_t>(positions.rotary.rotary_dim));
    metadata_.set(key("vocab_size"), static_cast<std::uint32_t>(config.vocab_size));
    if (is_rotary) write_scaling(positions.rotary);
    if (result_.architecture->alibi_layers != 0) {
      metadata_.set(key(kMaxAlibiBias), is_rotary ? 0.0F : kUsualAlibiBias);
    }
  }

  /// Returns the window of the layers that have one. check_gguf_of_folder() checks which layers have it.
  std::int32_t window_of(const DecoderConfig& config) {
    const std::int32_t window = config.largest_window();
    if (window > 0 && result_.architecture->window == models::GgufWindow::unsupported) {
      refuse("use_sliding_window", "GGUF files of this architecture do not support a sliding window");
    }
    return window;
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
