#include "engine/models/families.hpp"
#include "engine/models/llama_decoder.hpp"

namespace pagoda::models {

/// Phi 3 and 4 (Abdin et al. 2024): Llama's decoder with queries, keys and values from one projection and with gate and
/// values of the MLP from another. Every layer has a sliding window if the config gives one. The config may rotate only
/// a part of each head.
ModelSpec describe_phi3(ConfigSource& config) {
  DecoderConfig decoder = read_decoder(config, {.default_norm_eps = 1e-5, .partial_rotary = true});
  decoder.set_window_of_all_layers(static_cast<std::int32_t>(config.integer("sliding_window", 1, kMaxPositions, 0)));
  if (decoder.positions.front().rotary.scaling.type != layers::RopeScaling::Type::none) {
    // transformers supports no other scaling here; "yarn" is an old name of longrope.
    config.reject(config.has("rope_scaling") ? "rope_scaling" : "rope_parameters",
                  "the only scaling of Phi 3 is longrope, which is not supported", ErrorCode::unsupported);
  }
  return llama_decoder(
      decoder, {.layer = [](const layers::WeightLoader& layer, const DecoderConfig& sizes, std::int64_t index) {
        return llama_layer(layer, sizes, index, load_packed_qkv(layer / "self_attn", "qkv_proj", sizes),
                           load_packed_gated_mlp(layer / "mlp", sizes));
      }});
}

constexpr GgufArchitecture kPhi3Gguf{
    .name = "phi3", .hugging_face = {"Phi3ForCausalLM", "phi3"}, .window = GgufWindow::optional};

}  // namespace pagoda::models
