#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace pagoda::models {

/// A module's name in Hugging Face's files and in GGUF.
struct GgufModule {
  std::string_view hugging_face;
  std::string_view gguf;
};

/// A key of GGUF's metadata and the key of config.json with the same meaning.
struct GgufKey {
  std::string_view gguf;  ///< after "<architecture>."
  std::string_view hugging_face;
  bool is_real = false;  ///< whether the value is a float32; else it is a uint32
  /// Value of a model whose config.json does not have the key. GGUF cannot express null for such a key.
  std::optional<double> default_value{};
  bool is_required = false;  ///< whether a file without the key is refused
};

/// Names in config.json: architectures[0] and model_type.
struct ModelNames {
  std::string_view architecture;
  std::string_view model_type;
};

/// The meaning of attention.sliding_window in the files of an architecture.
enum class GgufWindow : std::uint8_t {
  unsupported,  ///< The key must be absent or 0.
  optional,     ///< A file without the key has no window.
  usual,        ///< A file without the key has the window of a config.json without sliding_window.
  required,     ///< A file without the key is refused.
};

// The names of Llama, which most architectures have.

inline constexpr std::array kGgufKeys{
    GgufKey{"block_count", "num_hidden_layers"},
    GgufKey{"context_length", "max_position_embeddings"},
    GgufKey{"embedding_length", "hidden_size"},
    GgufKey{"feed_forward_length", "intermediate_size"},
    GgufKey{"attention.head_count", "num_attention_heads"},
    GgufKey{"attention.head_count_kv", "num_key_value_heads"},
    GgufKey{"attention.key_length", "head_dim"},
    GgufKey{"attention.sliding_window", "sliding_window"},
    GgufKey{"rope.freq_base", "rope_theta", true},
};
inline constexpr std::array kGgufOuter{
    GgufModule{"model.embed_tokens", "token_embd"},
    GgufModule{"model.norm", "output_norm"},
    GgufModule{"lm_head", "output"},
};
inline constexpr std::array kGgufLayers{
    GgufModule{"input_layernorm", "attn_norm"},
    GgufModule{"self_attn.q_proj", "attn_q"},
    GgufModule{"self_attn.k_proj", "attn_k"},
    GgufModule{"self_attn.v_proj", "attn_v"},
    GgufModule{"self_attn.qkv_proj", "attn_qkv"},
    GgufModule{"self_attn.q_norm", "attn_q_norm"},
    GgufModule{"self_attn.k_norm", "attn_k_norm"},
    GgufModule{"self_attn.o_proj", "attn_output"},
    GgufModule{"post_attention_layernorm", "ffn_norm"},
    GgufModule{"mlp.gate_proj", "ffn_gate"},
    GgufModule{"mlp.up_proj", "ffn_up"},
    GgufModule{"mlp.gate_up_proj", "ffn_up"},  // where gate and values are packed, there is no gate_proj
    GgufModule{"mlp.down_proj", "ffn_down"},
};

/// GGUF's names of a family, and the differences between its files and Hugging Face's. The defaults are Llama's.
struct GgufArchitecture {
  std::string_view name;    ///< general.architecture
  ModelNames hugging_face;  ///< names of the config.json as which a file is read
  /// Names for a file with a window, if they are others.
  ModelNames hugging_face_with_window{};

  std::span<const GgufKey> keys = kGgufKeys;
  GgufKey norm_eps{"attention.layer_norm_rms_epsilon", "rms_norm_eps", true};
  std::span<const GgufKey> own_keys{};               ///< keys beside `keys` and norm_eps
  std::span<const GgufModule> outer = kGgufOuter;    ///< modules outside the layers
  std::span<const GgufModule> layers = kGgufLayers;  ///< modules of a layer
  std::span<const GgufModule> own_layers{};          ///< modules of a layer; they win over `layers`
  std::string_view layer_prefix = "model.layers.";   ///< GGUF's is "blk."
  std::string_view optional_module{};                ///< leading part of names that some folders leave out

  /// The only activation that files of this architecture can have, and its key in config.json.
  const char* activation = "silu";
  const char* activation_key = "hidden_act";

  GgufWindow window = GgufWindow::unsupported;
  /// Whether layers may differ in their windows. A config.json has layer_types then, and a file
  /// attention.sliding_window_pattern.
  bool windows_by_layer = false;
  /// Whether norms are stored with 1 added to the weights of Hugging Face's files.
  bool norms_include_one = false;
  /// Whether rows of queries and keys are in the order for rotations of neighbours (2i, 2i + 1). Hugging Face's order
  /// is for rotations of (i, i + head_dim / 2).
  bool interleaved_heads = false;
  /// Whether a file whose rope.scaling.finetuned is false has no positions. Such files are refused.
  bool finetuned_means_rotary = false;
  /// Whether linear layers are [out, in] where Hugging Face has them transposed.
  bool untransposed = false;
  /// Name of a module of layers whose rows are queries, keys and values, which are three tensors in GGUF. Empty: none.
  std::string_view packed_qkv{};

  // Values that follow from the number of layers, as in llama.cpp. 0 = no model of the architecture.

  /// Numbers of layers of the models with rotary positions and of those with ALiBi, if the architecture has both. A
  /// file with attention.max_alibi_bias may have another number.
  std::int64_t rotary_layers = 0;
  std::int64_t alibi_layers = 0;
  /// Number of layers of the model whose query_pre_attn_scalar is hidden_size / num_attention_heads. It is head_dim in
  /// the other models of the architecture.
  std::int64_t layers_scaled_by_width = 0;
};

}  // namespace pagoda::models
