#include "io/model_files/architecture_config.hpp"

#include <algorithm>
#include <string>
#include <string_view>

#include "engine/layers/mlp.hpp"
#include "engine/models/model.hpp"
#include "io/model_files/file_text.hpp"
#include "io/model_files/rope_config.hpp"

namespace pagoda::io {
namespace {

using models::ModelConfig;
using models::PositionKind;

// Far above any model there is; products of a few of them still fit 63 bits.
constexpr std::int64_t kMaxVocab = 1LL << 26;
constexpr std::int64_t kMaxWidth = 1LL << 22;
constexpr std::int64_t kMaxLayers = 4096;
constexpr std::int64_t kMaxHeads = 1LL << 14;

/// The sizes under the names that most configs use, all but the positions.
void read_sizes(ConfigReader& reader, ModelConfig& config, const char* intermediate_key = "intermediate_size") {
  config.vocab_size = reader.integer("vocab_size", 1, kMaxVocab);
  config.hidden_size = reader.integer("hidden_size", 1, kMaxWidth);
  config.intermediate_size = reader.integer(intermediate_key, 1, kMaxWidth);
  config.num_layers = reader.integer("num_hidden_layers", 1, kMaxLayers);
  config.num_heads = reader.integer("num_attention_heads", 1, kMaxHeads);
  config.num_kv_heads = config.num_heads;
}

/// head_dim, which follows from the hidden size where the config does not give it.
void read_head_dim(ConfigReader& reader, ModelConfig& config, const char* hidden_key = "hidden_size",
                   const char* heads_key = "num_attention_heads") {
  if (reader.has("head_dim")) {
    config.head_dim = reader.integer("head_dim", 1, kMaxWidth / config.num_heads);
  } else if (config.hidden_size % config.num_heads != 0) {
    reader.reject(hidden_key, std::to_string(config.hidden_size) + " is not a multiple of " + heads_key + " " +
                                  std::to_string(config.num_heads) + ", and there is no head_dim");
  } else {
    config.head_dim = config.hidden_size / config.num_heads;
  }
}

void read_kv_heads(ConfigReader& reader, ModelConfig& config) {
  config.num_kv_heads = reader.integer("num_key_value_heads", 1, kMaxHeads, config.num_heads);
  if (config.num_heads % config.num_kv_heads != 0) {
    reader.reject("num_key_value_heads", std::to_string(config.num_kv_heads) + " does not divide num_attention_heads " +
                                             std::to_string(config.num_heads));
  }
}

void read_activation(ConfigReader& reader, ModelConfig& config, const char* key, const char* default_name) {
  config.hidden_act = reader.string(key, default_name);
  if (!layers::activation_of(config.hidden_act)) {
    reader.reject(key, quote(config.hidden_act) + " is not supported", ErrorCode::unsupported);
  }
}

/// What Llama and its relatives have in common.
void read_llama_like(ConfigReader& reader, ModelConfig& config) {
  read_sizes(reader, config);
  read_kv_heads(reader, config);
  config.max_position_embeddings = reader.integer("max_position_embeddings", 1, kMaxPositions);
  read_head_dim(reader, config);
  config.norm_eps = reader.number("rms_norm_eps", 0.0, 1e-6);
  read_rope(reader, config);
  config.tie_word_embeddings = reader.boolean("tie_word_embeddings", false);
  read_activation(reader, config, "hidden_act", "silu");
  if (config.head_dim % 2 != 0) {
    reader.reject("head_dim", std::to_string(config.head_dim) + " is odd, but rotary embedding turns pairs");
  }
}

void read_llama(ConfigReader& reader, ModelConfig& config) {
  read_llama_like(reader, config);
  config.attention_bias = reader.boolean("attention_bias", false);
  config.attention_output_bias = config.attention_bias;
  config.mlp_bias = reader.boolean("mlp_bias", false);
}

struct ArchitectureConfig {
  std::string_view name;
  void (*read)(ConfigReader&, ModelConfig&);
};

constexpr ArchitectureConfig kArchitectureConfigs[] = {
    {"LlamaForCausalLM", read_llama},
};

}  // namespace

void read_architecture_config(ConfigReader& reader, ModelConfig& config) {
  const auto* found = std::ranges::find(kArchitectureConfigs, config.architecture, &ArchitectureConfig::name);
  if (found != std::ranges::end(kArchitectureConfigs)) {
    found->read(reader, config);
    return;
  }
  std::string reason = quote(config.architecture) + " is not known; known are";
  for (const auto& name : models::known_architectures()) reason += " " + name;
  reader.reject("architectures", reason);
}

}  // namespace pagoda::io
