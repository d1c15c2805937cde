#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/types.hpp"
#include "kernels/dtype.hpp"

namespace pagoda::models {

/// How rotary frequencies are stretched to reach more positions than the model was first trained for.
struct RopeScaling {
  enum class Type : std::uint8_t { none, linear, dynamic, llama3, yarn };
  Type type = Type::none;
  double factor = 1.0;
  std::int64_t original_max_position_embeddings = 0;  ///< dynamic, llama3, yarn: positions before the stretch
  double low_freq_factor = 1.0;                       ///< llama3
  double high_freq_factor = 4.0;                      ///< llama3; above low_freq_factor
  double beta_fast = 32.0;        ///< yarn: waves that turn more often within the original positions are kept
  double beta_slow = 1.0;         ///< yarn: waves that turn less often are stretched by the whole factor
  bool truncate = true;           ///< yarn: the limits between those are rounded to whole dimensions
  double attention_factor = 1.0;  ///< yarn: cosines and sines are multiplied by it
};

/// How a model tells where a token stands.
enum class PositionKind : std::uint8_t { rotary, learned, alibi };

constexpr std::string_view to_string(PositionKind kind) {
  switch (kind) {
    case PositionKind::rotary:
      return "rotary";
    case PositionKind::learned:
      return "learned";
    case PositionKind::alibi:
      return "alibi";
  }
  return "?";
}

/// What a checkpoint's config.json says of its architecture, under our names. Filled by io/model_files; a model reads
/// the fields that its architecture knows.
struct ModelConfig {
  std::string architecture;  ///< architectures[0], for example "LlamaForCausalLM"
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  std::int64_t num_layers = 0;
  std::int64_t num_heads = 0;
  std::int64_t num_kv_heads = 0;
  std::int64_t head_dim = 0;
  std::int64_t max_position_embeddings = 0;
  double norm_eps = 1e-5;
  double rope_theta = 10000.0;
  RopeScaling rope_scaling;
  bool tie_word_embeddings = false;
  bool attention_bias = false;  ///< of the query, key and value projections
  bool attention_output_bias = false;
  bool mlp_bias = false;
  std::string hidden_act = "silu";
  bool gated_mlp = true;  ///< down(act(gate(x)) * up(x)), else down(act(up(x)))
  PositionKind positions = PositionKind::rotary;
  std::int32_t sliding_window = 0;          ///< tokens that every layer sees back; 0 = all
  std::vector<std::int32_t> layer_windows;  ///< the same per layer where layers differ; empty = as sliding_window
  bool normalized_head = false;             ///< rows of the head's weight are scaled to length 1 (Baichuan 2)
  bool post_norm = false;                   ///< norms follow attention and MLP instead of leading them (OPT 350m)
  bool final_norm = true;                   ///< a norm stands before the head
  bool affine_norms = true;                 ///< LayerNorms have a weight and a bias
  std::int64_t embedding_size = 0;          ///< width of the token embedding; other than hidden_size: projected
  DType checkpoint_dtype = DType::f32;      ///< torch_dtype
  std::optional<TokenId> bos_token_id;
  std::vector<TokenId> eos_token_ids;  ///< generation_config.json wins over config.json

  /// Positions that max_model_len may ask for: what the config says, or more where the rope scaling reaches further.
  std::int64_t position_limit() const;

  /// Tokens that `layer` sees back, itself included; 0 = all.
  std::int32_t window_of(std::int64_t layer) const {
    return layer_windows.empty() ? sliding_window : layer_windows[static_cast<std::size_t>(layer)];
  }
};

}  // namespace pagoda::models
