#include "engine/layers/normalized_rows.hpp"
#include "engine/models/families.hpp"
#include "engine/models/llama_decoder.hpp"

namespace pagoda::models {
namespace {

using layers::PositionKind;

/// Returns a head whose rows are those of lm_head, or of the embedding if the two are tied, scaled to length 1.
layers::Linear load_normalized_head(const layers::WeightLoader& root, const DecoderConfig& config) {
  if (!config.place.is_in_last_stage()) return {};
  const auto module = root / "lm_head";
  const auto stored = config.tie_word_embeddings ? root / "model" / "embed_tokens" : module;
  return layers::Linear::derived(module,
                                 {.tensor = stored.full_name("weight"),
                                  .stored_rows = config.vocab_part().num_rows,
                                  .stored_columns = config.hidden_size,
                                  .rows = config.vocab_part().num_rows,
                                  .columns = config.hidden_size,
                                  .derive = layers::normalize_rows},
                                 false);
}

/// Baichuan 1 and 2 (Yang et al. 2023): Llama's decoder with queries, keys and values from one projection. The 13B
/// models use ALiBi instead of rotary positions. Baichuan 2 scales the rows of the head to length 1. The published
/// configs do not name their model: `is_rotary` follows from the architecture's name and the sizes, and a vocabulary of
/// 125696 means Baichuan 2. The keys position_embedding ("ROPE", "ALIBI") and norm_head override both, for sizes that
/// were never published. GGUF files keep queries, keys and values apart: packed_qkv is false there.
ModelSpec describe(ConfigSource& config, bool is_rotary) {
  constexpr std::int64_t kVocabOfBaichuan2 = 125696;
  const auto positions = config.string("position_embedding", is_rotary ? "ROPE" : "ALIBI");
  if (positions != "ROPE" && positions != "ALIBI") {
    config.reject("position_embedding", "must be \"ROPE\" or \"ALIBI\", not " + config.shown("position_embedding"));
  }
  const bool usual_key = config.has("max_position_embeddings") || !config.has("model_max_length");
  const DecoderConfig decoder =
      read_decoder(config, {.positions = positions == "ROPE" ? PositionKind::rotary : PositionKind::alibi,
                            .max_positions = usual_key ? "max_position_embeddings" : "model_max_length"});
  const bool packed = config.boolean("packed_qkv", true);
  const bool normalized_head = config.boolean("norm_head", decoder.vocab_size == kVocabOfBaichuan2);
  LlamaWeights weights{
      .layer = [packed](const layers::WeightLoader& layer, const DecoderConfig& sizes, std::int64_t index) {
        const auto attention = layer / "self_attn";
        return llama_layer(layer, sizes, index,
                           packed ? load_packed_qkv(attention, "W_pack", sizes) : load_qkv(attention, sizes),
                           load_gated_mlp(layer / "mlp", sizes));
      }};
  if (normalized_head) weights.head = load_normalized_head;
  ModelSpec spec = llama_decoder(decoder, std::move(weights));
  spec.facts.emplace_back("normalized_head", normalized_head);
  return spec;
}

}  // namespace

/// Describes Baichuan 7B, which has an architecture name of its own.
ModelSpec describe_baichuan_7b(ConfigSource& config) {
  return describe(config, true);
}

/// Describes Baichuan 13B or Baichuan 2. A hidden size of 4096 means a 7B model, any other a 13B model.
ModelSpec describe_baichuan(ConfigSource& config) {
  constexpr std::int64_t kHiddenOf7b = 4096;
  return describe(config, config.integer("hidden_size", 1, kMaxWidth) == kHiddenOf7b);
}

constexpr GgufArchitecture kBaichuanGguf{.name = "baichuan",
                                         .hugging_face = {"BaichuanForCausalLM", "baichuan"},
                                         .interleaved_heads = true,
                                         .packed_qkv = "self_attn.W_pack",
                                         .rotary_layers = 32,
                                         .alibi_layers = 40};

}  // namespace pagoda::models
