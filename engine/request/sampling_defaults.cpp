#include "engine/request/sampling_defaults.hpp"

namespace pagoda {

SamplingParams with_defaults(SamplingParams params, const OpenSamplingFields& open, const SamplingDefaults& defaults) {
  const auto fill = [](bool is_open, const auto& value, auto& field) {
    if (is_open && value) field = *value;
  };
  fill(open.max_tokens, defaults.max_tokens, params.max_tokens);
  if (params.use_beam_search) return params;
  fill(open.temperature, defaults.temperature, params.temperature);
  fill(open.top_p, defaults.top_p, params.top_p);
  fill(open.top_k, defaults.top_k, params.top_k);
  fill(open.min_p, defaults.min_p, params.min_p);
  fill(open.repetition_penalty, defaults.repetition_penalty, params.repetition_penalty);
  return params;
}

}  // namespace pagoda
