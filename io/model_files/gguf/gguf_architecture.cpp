#include "io/model_files/gguf/gguf_architecture.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "engine/models/config_source.hpp"
#include "io/model_files/file_text.hpp"

namespace pagoda::io {
namespace {

// ---- Llama and its relatives: gated decoders.

constexpr std::array kGatedOuter{
    GgufModule{"model.embed_tokens", "token_embd"},
    GgufModule{"model.norm", "output_norm"},
    GgufModule{"lm_head", "output"},
};
constexpr std::array kGatedLayers{
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
constexpr std::array kGatedKeys{
    GgufKey{"block_count", "num_hidden_layers"},
    GgufKey{"context_length", "max_position_embeddings"},
    GgufKey{"embedding_length", "hidden_size"},
    GgufKey{"feed_forward_length", "intermediate_size"},
    GgufKey{"attention.head_count", "num_attention_heads"},
    GgufKey{"attention.head_count_kv", "num_key_value_heads"},
    GgufKey{"attention.layer_norm_rms_epsilon", "rms_norm_eps", true},
    GgufKey{"attention.key_length", "head_dim"},
    GgufKey{"attention.sliding_window", "sliding_window"},
    GgufKey{"rope.freq_base", "rope_theta", true},
};

// ---- Gemma 2 and 3.

constexpr std::array kGemmaLayers{
    GgufModule{"input_layernorm", "attn_norm"},
    GgufModule{"self_attn.q_proj", "attn_q"},
    GgufModule{"self_attn.k_proj", "attn_k"},
    GgufModule{"self_attn.v_proj", "attn_v"},
    GgufModule{"self_attn.q_norm", "attn_q_norm"},
    GgufModule{"self_attn.k_norm", "attn_k_norm"},
    GgufModule{"self_attn.o_proj", "attn_output"},
    GgufModule{"post_attention_layernorm", "post_attention_norm"},
    GgufModule{"pre_feedforward_layernorm", "ffn_norm"},
    GgufModule{"mlp.gate_proj", "ffn_gate"},
    GgufModule{"mlp.up_proj", "ffn_up"},
    GgufModule{"mlp.down_proj", "ffn_down"},
    GgufModule{"post_feedforward_layernorm", "post_ffw_norm"},
};
constexpr std::array kGemma2Keys{
    GgufKey{"block_count", "num_hidden_layers"},
    GgufKey{"context_length", "max_position_embeddings"},
    GgufKey{"embedding_length", "hidden_size"},
    GgufKey{"feed_forward_length", "intermediate_size"},
    GgufKey{"attention.head_count", "num_attention_heads"},
    GgufKey{"attention.head_count_kv", "num_key_value_heads"},
    GgufKey{"attention.layer_norm_rms_epsilon", "rms_norm_eps", true},
    GgufKey{"attention.key_length", "head_dim"},
    GgufKey{"attention.sliding_window", "sliding_window"},
    GgufKey{"attention.sliding_window_pattern", "sliding_window_pattern"},
    GgufKey{"rope.freq_base", "rope_theta", true},
    GgufKey{"attn_logit_softcapping", "attn_logit_softcapping", true},
    GgufKey{"final_logit_softcapping", "final_logit_softcapping", true},
};
constexpr std::array kGemma3Keys{
    GgufKey{"block_count", "num_hidden_layers"},
    GgufKey{"context_length", "max_position_embeddings"},
    GgufKey{"embedding_length", "hidden_size"},
    GgufKey{"feed_forward_length", "intermediate_size"},
    GgufKey{"attention.head_count", "num_attention_heads"},
    GgufKey{"attention.head_count_kv", "num_key_value_heads"},
    GgufKey{"attention.layer_norm_rms_epsilon", "rms_norm_eps", true},
    GgufKey{"attention.key_length", "head_dim"},
    GgufKey{"attention.sliding_window", "sliding_window"},
    GgufKey{"attention.sliding_window_pattern", "sliding_window_pattern"},
    GgufKey{"rope.freq_base", "rope_theta", true},
    GgufKey{"rope.freq_base_swa", "rope_local_base_freq", true},
    GgufKey{"final_logit_softcapping", "final_logit_softcapping", true},
};

// ---- Cohere 2.

constexpr std::array kCohere2Keys{
    GgufKey{"block_count", "num_hidden_layers"},
    GgufKey{"context_length", "max_position_embeddings"},
    GgufKey{"embedding_length", "hidden_size"},
    GgufKey{"feed_forward_length", "intermediate_size"},
    GgufKey{"attention.head_count", "num_attention_heads"},
    GgufKey{"attention.head_count_kv", "num_key_value_heads"},
    GgufKey{"attention.layer_norm_epsilon", "layer_norm_eps", true},
    GgufKey{"attention.key_length", "head_dim"},
    GgufKey{"attention.sliding_window", "sliding_window"},
    GgufKey{"attention.sliding_window_pattern", "sliding_window_pattern"},
    GgufKey{"rope.freq_base", "rope_theta", true},
    GgufKey{"logit_scale", "logit_scale", true},
};

// ---- GPT-2.

constexpr std::array kGpt2Outer{
    GgufModule{"transformer.wte", "token_embd"},
    GgufModule{"transformer.wpe", "position_embd"},
    GgufModule{"transformer.ln_f", "output_norm"},
    GgufModule{"lm_head", "output"},
};
constexpr std::array kGpt2Layers{
    GgufModule{"ln_1", "attn_norm"}, GgufModule{"attn.c_attn", "attn_qkv"}, GgufModule{"attn.c_proj", "attn_output"},
    GgufModule{"ln_2", "ffn_norm"},  GgufModule{"mlp.c_fc", "ffn_up"},      GgufModule{"mlp.c_proj", "ffn_down"},
};
constexpr std::array kGpt2Keys{
    GgufKey{"block_count", "n_layer"},         GgufKey{"context_length", "n_positions"},
    GgufKey{"embedding_length", "n_embd"},     GgufKey{"feed_forward_length", "n_inner"},
    GgufKey{"attention.head_count", "n_head"}, GgufKey{"attention.layer_norm_epsilon", "layer_norm_epsilon", true},
};

constexpr std::string_view kDecoderLayers = "model.layers.";
constexpr std::string_view kGgufLayers = "blk.";

/// The order in which they are packed into one module.
constexpr std::array<std::string_view, 3> kQkv{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"};

constexpr GgufArchitecture gated(std::string_view name, std::string_view hugging_face, bool interleaved_heads = false) {
  return {.name = name,
          .hugging_face = hugging_face,
          .keys = kGatedKeys,
          .outer = kGatedOuter,
          .layers = kGatedLayers,
          .layer_prefix = kDecoderLayers,
          .interleaved_heads = interleaved_heads};
}

constexpr GgufArchitecture baichuan() {
  GgufArchitecture architecture = gated("baichuan", "BaichuanForCausalLM", true);
  architecture.packed_qkv = "self_attn.W_pack";
  return architecture;
}

constexpr GgufArchitecture with_window(GgufArchitecture architecture) {
  architecture.has_window = true;
  return architecture;
}

constexpr GgufArchitecture gemma(std::string_view name, std::string_view hugging_face, std::span<const GgufKey> keys) {
  GgufArchitecture architecture = with_window(gated(name, hugging_face));
  architecture.keys = keys;
  architecture.layers = kGemmaLayers;
  architecture.activation = kernels::Activation::gelu_tanh;
  architecture.norms_include_one = true;
  return architecture;
}

constexpr GgufArchitecture cohere2() {
  GgufArchitecture architecture = with_window(gated("cohere2", "Cohere2ForCausalLM"));
  architecture.keys = kCohere2Keys;
  return architecture;
}

constexpr std::array kArchitectures{
    with_window(gated("llama", "LlamaForCausalLM", true)),
    with_window(gated("phi3", "Phi3ForCausalLM")),
    gated("qwen2", "Qwen2ForCausalLM"),
    gated("qwen3", "Qwen3ForCausalLM"),
    gated("smollm3", "SmolLM3ForCausalLM", true),
    gemma("gemma2", "Gemma2ForCausalLM", kGemma2Keys),
    gemma("gemma3", "Gemma3ForCausalLM", kGemma3Keys),
    cohere2(),
    baichuan(),
    GgufArchitecture{.name = "gpt2",
                     .hugging_face = "GPT2LMHeadModel",
                     .keys = kGpt2Keys,
                     .outer = kGpt2Outer,
                     .layers = kGpt2Layers,
                     .layer_prefix = "transformer.h.",
                     .optional_module = "transformer.",
                     .activation = kernels::Activation::gelu_tanh,
                     .untransposed = true},
};

std::optional<std::string> module_name(const GgufArchitecture& architecture, std::string_view module) {
  if (!module.starts_with(architecture.layer_prefix)) {
    const auto found = std::ranges::find(architecture.outer, module, &GgufModule::hugging_face);
    if (found == architecture.outer.end()) return std::nullopt;
    return std::string(found->gguf);
  }
  const auto in_layers = module.substr(architecture.layer_prefix.size());
  const auto dot = in_layers.find('.');
  if (dot == in_layers.npos) return std::nullopt;
  const auto found = std::ranges::find(architecture.layers, in_layers.substr(dot + 1), &GgufModule::hugging_face);
  if (found == architecture.layers.end()) return std::nullopt;
  return std::string(kGgufLayers) + std::string(in_layers.substr(0, dot)) + "." + std::string(found->gguf);
}

}  // namespace

Result<const GgufArchitecture*> find_gguf_architecture(const GgufFile& file) {
  constexpr const char* kKey = "general.architecture";
  const auto name = file.get<std::string_view>(kKey);
  if (!name) return fail(name.error());
  if (!*name) return file.bad(kKey, "is missing");
  const auto* found = std::ranges::find(kArchitectures, **name, &GgufArchitecture::name);
  if (found != kArchitectures.end()) return found;
  return file.bad(kKey, quote(**name) + " is not supported; supported are " + gguf_architecture_names(),
                  ErrorCode::unsupported);
}

const GgufArchitecture* find_gguf_architecture(std::string_view hugging_face) {
  if (hugging_face == "MistralForCausalLM") hugging_face = "LlamaForCausalLM";  // with or without a sliding window
  if (hugging_face == "BaiChuanForCausalLM") hugging_face = "BaichuanForCausalLM";
  const auto* found = std::ranges::find(kArchitectures, hugging_face, &GgufArchitecture::hugging_face);
  return found == kArchitectures.end() ? nullptr : found;
}

std::string gguf_architecture_names() {
  std::string names;
  for (const auto& architecture : kArchitectures) {
    names.append(names.empty() ? "" : ", ").append(architecture.name);
  }
  return names;
}

std::optional<std::string> gguf_tensor_name(const GgufArchitecture& architecture, std::string_view name) {
  const auto dot = name.rfind('.');
  if (dot == name.npos) return std::nullopt;
  const std::string_view module = name.substr(0, dot);
  auto gguf_name = module_name(architecture, module);
  if (!gguf_name && !architecture.optional_module.empty()) {
    gguf_name = module_name(architecture, std::string(architecture.optional_module).append(module));
  }
  if (gguf_name) gguf_name->append(name.substr(dot));
  return gguf_name;
}

std::optional<std::string> hugging_face_tensor_name(const GgufArchitecture& architecture, std::string_view name,
                                                    const GgufFile& file) {
  const auto dot = name.rfind('.');
  if (dot == name.npos) return std::nullopt;
  const std::string_view module = name.substr(0, dot);
  const std::string_view ending = name.substr(dot);
  if (!module.starts_with(kGgufLayers)) {
    const auto found = std::ranges::find(architecture.outer, module, &GgufModule::gguf);
    if (found == architecture.outer.end()) return std::nullopt;
    return std::string(found->hugging_face).append(ending);
  }
  const auto end = module.find('.', kGgufLayers.size());
  if (end == module.npos) return std::nullopt;
  const std::string_view number = module.substr(kGgufLayers.size(), end - kGgufLayers.size());
  const std::string_view in_layer = module.substr(end + 1);
  const bool is_packed =
      in_layer == "ffn_up" && file.tensor(std::string(module.substr(0, end)) + ".ffn_gate.weight") == nullptr;
  for (const GgufModule& known : architecture.layers) {
    if (known.gguf != in_layer || (is_packed && known.hugging_face == "mlp.up_proj")) continue;
    return std::string(architecture.layer_prefix).append(number).append(".").append(known.hugging_face).append(ending);
  }
  return std::nullopt;
}

Result<GgufHeads> read_gguf_heads(const GgufFile& file, const GgufArchitecture& architecture) {
  const auto read = [&](const char* name, std::int64_t otherwise) -> Result<std::int64_t> {
    const std::string key = std::string(architecture.name) + ".attention." + name;
    const auto heads = file.get<std::int64_t>(key);
    if (!heads) return fail(heads.error());
    const std::int64_t count = heads->value_or(otherwise);
    if (count < 1 || count > models::kMaxHeads) {
      return file.bad(key, "must be from 1 to " + std::to_string(models::kMaxHeads), ErrorCode::bad_config);
    }
    return count;
  };
  const auto queries = read("head_count", 1);
  if (!queries) return fail(queries.error());
  const auto keys = read("head_count_kv", *queries);
  if (!keys) return fail(keys.error());
  return GgufHeads{*queries, *keys};
}

std::vector<GgufRowRange> gguf_tensors_of(const GgufArchitecture& architecture, std::string_view name,
                                          std::int64_t num_rows, const GgufHeads& heads) {
  if (auto gguf_name = gguf_tensor_name(architecture, name)) return {{std::move(*gguf_name), 0, num_rows}};
  const std::int64_t num_heads = heads.queries + 2 * heads.keys;
  const std::size_t packed = architecture.packed_qkv.empty() ? name.npos : name.find(architecture.packed_qkv);
  if (packed == name.npos || num_heads < 1 || num_rows % num_heads != 0) return {};
  std::vector<GgufRowRange> ranges;
  std::int64_t first_row = 0;
  for (const std::string_view module : kQkv) {
    const std::int64_t count = module == kQkv.front() ? heads.queries : heads.keys;
    std::string alone(name);
    alone.replace(packed, architecture.packed_qkv.size(), module);
    auto gguf_name = gguf_tensor_name(architecture, alone);
    if (!gguf_name) return {};
    const std::int64_t rows = num_rows / num_heads * count;
    ranges.push_back({std::move(*gguf_name), first_row, rows});
    first_row += rows;
  }
  return ranges;
}

std::optional<GgufPackedTensor> packed_tensor_of(const GgufArchitecture& architecture, std::string_view name) {
  if (architecture.packed_qkv.empty()) return std::nullopt;
  const auto* const module =
      std::ranges::find_if(kQkv, [&](std::string_view each) { return name.find(each) != name.npos; });
  if (module == kQkv.end()) return std::nullopt;
  const auto with = [&](std::string_view other) {
    return std::string(name).replace(name.find(*module), module->size(), other);
  };
  GgufPackedTensor packed{with(architecture.packed_qkv), {}};
  for (const std::string_view part : kQkv) packed.parts.push_back(gguf_tensor_name(architecture, with(part)).value());
  return packed;
}

bool includes_one(const GgufArchitecture& architecture, std::string_view name) {
  return architecture.norms_include_one && name.ends_with("_norm.weight");
}

bool is_transposed_in_folders(const GgufArchitecture& architecture, std::string_view name) {
  return architecture.untransposed && name.starts_with(kGgufLayers);
}

std::int64_t interleaved_heads(const GgufArchitecture& architecture, std::string_view name, const GgufHeads& heads) {
  if (!architecture.interleaved_heads) return 0;
  if (name.find(".attn_q.") != name.npos) return heads.queries;
  if (name.find(".attn_k.") != name.npos) return heads.keys;
  return 0;
}

std::int64_t interleaved_row(std::int64_t row, std::int64_t head_dim) {
  // Row i of half `half` of a head is stored at row 2i + half.
  const std::int64_t in_head = row % head_dim;
  const std::int64_t half = head_dim / 2;
  return row - in_head + 2 * (in_head % half) + in_head / half;
}

}  // namespace pagoda::io
