#pragma once

#include <cstdint>
#include <optional>

#include "engine/request/sampling_params.hpp"

namespace pagoda {

/// Values that a model's maker recommends (generation_config.json) for the sampling fields that a client left open.
struct SamplingDefaults {
  std::optional<std::int64_t> max_tokens;  ///< max_new_tokens in the file
  std::optional<double> temperature;
  std::optional<double> top_p;
  std::optional<std::int64_t> top_k;
  std::optional<double> min_p;
  std::optional<double> repetition_penalty;

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.max_tokens, self.temperature, self.top_p, self.top_k, self.min_p, self.repetition_penalty);
  }
};

/// Marks the fields above that a client left open. The value of an unmarked field counts as the client's choice.
struct OpenSamplingFields {
  bool max_tokens = false;
  bool temperature = false;
  bool top_p = false;
  bool top_k = false;
  bool min_p = false;
  bool repetition_penalty = false;

  static constexpr OpenSamplingFields all() { return {true, true, true, true, true, true}; }

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.max_tokens, self.temperature, self.top_p, self.top_k, self.min_p, self.repetition_penalty);
  }
};

/// Returns `params` with the open fields filled from `defaults` where these have a value. Beam search draws nothing and
/// takes only max_tokens.
SamplingParams with_defaults(SamplingParams params, const OpenSamplingFields& open, const SamplingDefaults& defaults);

}  // namespace pagoda
