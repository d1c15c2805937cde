#include "engine/request/request_spec.hpp"

namespace pagoda {

bool is_sound(const SharedSpec& spec) {
  if (spec == nullptr || spec->prompt == nullptr || spec->prompt->empty()) return false;
  const SamplingParams& sampling = spec->sampling;
  return sampling.n >= 1 && sampling.n <= sampling.num_sequences() &&
         sampling.num_sequences() <= SamplingLimits{}.max_sequences && sampling.max_tokens >= 1 &&
         sampling.thinking_token_budget.value_or(0) >= 0 && is_sound_time(spec->arrival_us);
}

}  // namespace pagoda
