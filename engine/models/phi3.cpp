#include "engine/models/families.hpp"

namespace pagoda::models {

/// Phi 3 and 4 (Abdin et al. 2024): Llama's decoder with queries, keys and values from one projection and with gate and
/// values of the MLP from another. Every layer has a sliding window if the config gives one. The config may rotate only
/// a part of each head.
GatedDecoderConfig read_phi3(ConfigSource& config) {
  GatedDecoderConfig decoder = read_gated_decoder(config, {.partial_rotary = true});
  decoder.packed_qkv = "qkv_proj";
  decoder.packed_gate_up = "gate_up_proj";
  decoder.norm_eps = config.number("rms_norm_eps", 0.0, 1e-5);
  decoder.attention.window = static_cast<std::int32_t>(config.integer("sliding_window", 1, kMaxPositions, 0));
  if (decoder.positions.rotary.scaling.type != layers::RopeScaling::Type::none) {
    // transformers supports no other scaling here; "yarn" is an old name of longrope.
    config.reject(config.has("rope_scaling") ? "rope_scaling" : "rope_parameters",
                  "the only scaling of Phi 3 is longrope, which is not supported", ErrorCode::unsupported);
  }
  return decoder;
}

}  // namespace pagoda::models
