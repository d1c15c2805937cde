#include "io/model_files/architecture_config.hpp"

#include <algorithm>
#include <functional>
#include <string>
#include <string_view>
#include <utility>

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

/// head_dim, which follows from the hidden size where neither the config nor the architecture (`default_dim`) gives it.
void read_head_dim(ConfigReader& reader, ModelConfig& config, std::int64_t default_dim) {
  if (reader.has("head_dim") || default_dim > 0) {
    config.head_dim = reader.integer("head_dim", 1, kMaxWidth / config.num_heads, default_dim);
  } else if (config.hidden_size % config.num_heads != 0) {
    reader.reject("hidden_size", std::to_string(config.hidden_size) + " is not a multiple of num_attention_heads " +
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

/// What Llama and its relatives have in common. config.positions is known before.
void read_llama_like(ConfigReader& reader, ModelConfig& config, std::int64_t default_head_dim = 0,
                     const char* positions_key = "max_position_embeddings") {
  read_sizes(reader, config);
  read_kv_heads(reader, config);
  config.max_position_embeddings = reader.integer(positions_key, 1, kMaxPositions);
  read_head_dim(reader, config, default_head_dim);
  config.norm_eps = reader.number("rms_norm_eps", 0.0, 1e-6);
  read_rope(reader, config);
  config.tie_word_embeddings = reader.boolean("tie_word_embeddings", false);
  read_activation(reader, config, "hidden_act", "silu");
  if (config.positions == PositionKind::rotary && config.head_dim % 2 != 0) {
    reader.reject("head_dim", std::to_string(config.head_dim) + " is odd, but rotary embedding turns pairs");
  }
}

void read_llama(ConfigReader& reader, ModelConfig& config) {
  read_llama_like(reader, config);
  config.attention_bias = reader.boolean("attention_bias", false);
  config.attention_output_bias = config.attention_bias;
  config.mlp_bias = reader.boolean("mlp_bias", false);
}

/// Tokens that a layer sees back; 0 = all, which is what null says. Without the key it is the 4096 of transformers.
std::int32_t read_window(ConfigReader& reader) {
  const std::int64_t default_window = reader.mentions("sliding_window") ? 0 : 4096;
  return static_cast<std::int32_t>(reader.integer("sliding_window", 1, kMaxPositions, default_window));
}

void read_mistral(ConfigReader& reader, ModelConfig& config) {
  read_llama_like(reader, config);
  config.sliding_window = read_window(reader);
}

/// Gives `window` to the layers that layer_types marks, or where it is absent to those from max_window_layers on.
void read_window_of_layers(ConfigReader& reader, ModelConfig& config, std::int32_t window) {
  const auto first = reader.integer("max_window_layers", 0, kMaxLayers, 28);
  const auto* types = reader.find("layer_types");
  if (types != nullptr && (!types->is_array() || std::cmp_not_equal(types->size(), config.num_layers))) {
    reader.reject("layer_types", "must be an array with one entry per layer");
    return;
  }
  for (std::int64_t layer = 0; layer < config.num_layers; ++layer) {
    bool slides = layer >= first;
    if (types != nullptr) {
      const auto& type = types->at(static_cast<std::size_t>(layer));
      slides = type == "sliding_attention";
      if (!slides && type != "full_attention") {
        reader.reject("layer_types", shown(type) + " is not supported (full_attention, sliding_attention)",
                      ErrorCode::unsupported);
      }
    }
    config.layer_windows.push_back(slides ? window : 0);
  }
  if (std::ranges::adjacent_find(config.layer_windows, std::not_equal_to{}) == config.layer_windows.end()) {
    config.sliding_window = config.layer_windows.front();
    config.layer_windows.clear();
  }
}

void read_qwen(ConfigReader& reader, ModelConfig& config, std::int64_t default_head_dim = 0) {
  read_llama_like(reader, config, default_head_dim);
  if (!reader.boolean("use_sliding_window", false)) return;
  if (const auto window = read_window(reader); window > 0) read_window_of_layers(reader, config, window);
}

void read_qwen2(ConfigReader& reader, ModelConfig& config) {
  read_qwen(reader, config);
  config.attention_bias = true;
}

void read_qwen3(ConfigReader& reader, ModelConfig& config) {
  constexpr std::int64_t kHeadDim = 128;
  read_qwen(reader, config, kHeadDim);
  config.attention_bias = reader.boolean("attention_bias", false);
  config.attention_output_bias = config.attention_bias;
}

/// The published configs of Baichuan do not say which of the models they belong to; its users tell by the name and two
/// sizes. BaiChuanForCausalLM (Baichuan 7B) and a hidden size of 4096 (Baichuan 2 7B) mean rotary positions, any other
/// is 13B with ALiBi; a vocabulary of 125696 means Baichuan 2 with its normalised head. For other sizes the keys
/// position_embedding ("ROPE", "ALIBI") and norm_head say it.
void read_baichuan(ConfigReader& reader, ModelConfig& config) {
  constexpr std::int64_t kHiddenOf7b = 4096;
  constexpr std::int64_t kVocabOfBaichuan2 = 125696;
  const auto hidden = reader.integer("hidden_size", 1, kMaxWidth);
  const bool rotary = config.architecture == "BaiChuanForCausalLM" || hidden == kHiddenOf7b;
  const auto positions = reader.string("position_embedding", rotary ? "ROPE" : "ALIBI");
  if (positions != "ROPE" && positions != "ALIBI") {
    reader.reject("position_embedding", "must be \"ROPE\" or \"ALIBI\", not " + quote(positions));
  }
  config.positions = positions == "ROPE" ? PositionKind::rotary : PositionKind::alibi;
  const bool usual_key = reader.has("max_position_embeddings") || !reader.has("model_max_length");
  read_llama_like(reader, config, 0, usual_key ? "max_position_embeddings" : "model_max_length");
  config.normalized_head = reader.boolean("norm_head", config.vocab_size == kVocabOfBaichuan2);
}

/// One key and value head for each head, no gate, learned positions.
void use_plain_heads(ConfigReader& reader, ModelConfig& config, const char* hidden_key, const char* heads_key) {
  config.num_kv_heads = config.num_heads;
  config.head_dim = config.hidden_size / config.num_heads;
  config.positions = PositionKind::learned;
  config.gated_mlp = false;
  config.embedding_size = config.hidden_size;
  if (config.hidden_size % config.num_heads != 0) {
    reader.reject(hidden_key, std::to_string(config.hidden_size) + " is not a multiple of " + heads_key + " " +
                                  std::to_string(config.num_heads));
  }
}

void read_gpt2(ConfigReader& reader, ModelConfig& config) {
  config.vocab_size = reader.integer("vocab_size", 1, kMaxVocab);
  config.hidden_size = reader.integer("n_embd", 1, kMaxWidth);
  config.intermediate_size = reader.integer("n_inner", 1, kMaxWidth, 4 * config.hidden_size);
  config.num_layers = reader.integer("n_layer", 1, kMaxLayers);
  config.num_heads = reader.integer("n_head", 1, kMaxHeads);
  config.max_position_embeddings = reader.integer("n_positions", 1, kMaxPositions);
  config.norm_eps = reader.number("layer_norm_epsilon", 0.0, 1e-5);
  config.tie_word_embeddings = reader.boolean("tie_word_embeddings", true);
  read_activation(reader, config, "activation_function", "gelu_new");
  if (!reader.boolean("scale_attn_weights", true) || reader.boolean("scale_attn_by_inverse_layer_idx", false)) {
    reader.reject("scale_attn_weights", "only the usual scale 1/sqrt(head size) is supported", ErrorCode::unsupported);
  }
  use_plain_heads(reader, config, "n_embd", "n_head");
}

void read_opt(ConfigReader& reader, ModelConfig& config) {
  read_sizes(reader, config, "ffn_dim");
  config.max_position_embeddings = reader.integer("max_position_embeddings", 1, kMaxPositions);
  config.tie_word_embeddings = reader.boolean("tie_word_embeddings", true);
  read_activation(reader, config, "activation_function", "relu");
  config.post_norm = !reader.boolean("do_layer_norm_before", true);
  config.final_norm = !config.post_norm;
  if (!config.post_norm && reader.boolean("_remove_final_layer_norm", false)) {
    reader.reject("_remove_final_layer_norm", "is not supported with do_layer_norm_before", ErrorCode::unsupported);
  }
  config.affine_norms = reader.boolean("layer_norm_elementwise_affine", true);
  config.attention_bias = config.attention_output_bias = config.mlp_bias = reader.boolean("enable_bias", true);
  use_plain_heads(reader, config, "hidden_size", "num_attention_heads");
  config.embedding_size = reader.integer("word_embed_proj_dim", 1, config.hidden_size, config.hidden_size);
}

struct ArchitectureConfig {
  std::string_view name;
  void (*read)(ConfigReader&, ModelConfig&);
};

constexpr ArchitectureConfig kArchitectureConfigs[] = {
    {"BaiChuanForCausalLM", read_baichuan}, {"BaichuanForCausalLM", read_baichuan}, {"GPT2LMHeadModel", read_gpt2},
    {"LlamaForCausalLM", read_llama},       {"MistralForCausalLM", read_mistral},   {"OPTForCausalLM", read_opt},
    {"Qwen2ForCausalLM", read_qwen2},       {"Qwen3ForCausalLM", read_qwen3},
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
