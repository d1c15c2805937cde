#include "engine/models/families.hpp"

namespace pagoda::models {
namespace {

using layers::PositionKind;

/// Baichuan 1 and 2 (Yang et al. 2023): Llama's decoder with queries, keys and values from one projection. The 13B
/// models use ALiBi instead of rotary positions. Baichuan 2 scales the rows of the head to length 1. The published
/// configs do not name their model: `is_rotary` follows from the architecture's name and the sizes, and a vocabulary of
/// 125696 means Baichuan 2. The keys position_embedding ("ROPE", "ALIBI") and norm_head override both, for sizes that
/// were never published. GGUF files keep queries, keys and values apart: packed_qkv is false there.
GatedDecoderConfig read(ConfigSource& config, bool is_rotary) {
  constexpr std::int64_t kVocabOfBaichuan2 = 125696;
  const auto positions = config.string("position_embedding", is_rotary ? "ROPE" : "ALIBI");
  if (positions != "ROPE" && positions != "ALIBI") {
    config.reject("position_embedding", "must be \"ROPE\" or \"ALIBI\", not " + config.shown("position_embedding"));
  }
  const bool usual_key = config.has("max_position_embeddings") || !config.has("model_max_length");
  GatedDecoderConfig decoder =
      read_gated_decoder(config, {.positions = positions == "ROPE" ? PositionKind::rotary : PositionKind::alibi,
                                  .max_positions = usual_key ? "max_position_embeddings" : "model_max_length"});
  if (config.boolean("packed_qkv", true)) decoder.packed_qkv = "W_pack";
  decoder.normalized_head = config.boolean("norm_head", decoder.vocab_size == kVocabOfBaichuan2);
  return decoder;
}

}  // namespace

/// Reads Baichuan 7B, which has an architecture name of its own.
GatedDecoderConfig read_baichuan_7b(ConfigSource& config) {
  return read(config, true);
}

/// Reads Baichuan 13B or Baichuan 2. A hidden size of 4096 means a 7B model, any other a 13B model.
GatedDecoderConfig read_baichuan(ConfigSource& config) {
  constexpr std::int64_t kHiddenOf7b = 4096;
  return read(config, config.integer("hidden_size", 1, kMaxWidth) == kHiddenOf7b);
}

}  // namespace pagoda::models
