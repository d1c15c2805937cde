#pragma once

#include <cstdint>
#include <string_view>

#include "kernels/result.hpp"

namespace pagoda {

enum class SpeculationMethod : std::uint8_t {
  none,
  ngram,  ///< drafts are what followed the last tokens of a sequence where they stood before, in prompt or output
};
constexpr SpeculationMethod last_value(SpeculationMethod) {
  return SpeculationMethod::ngram;
}

/// How the engine finds drafts: tokens that probably follow. Each draft is verified by the model in the next step, so
/// drafts change no token.
struct SpeculationConfig {
  /// Maximum of max_drafts and max_match.
  static constexpr std::int32_t kMaxTokens = 64;

  SpeculationMethod method = SpeculationMethod::none;
  /// Maximum number of drafts of a sequence in a step. The scheduler takes as many as pay.
  std::int32_t max_drafts = 16;
  /// Minimum number of last tokens that must have stood before.
  std::int32_t min_match = 3;
  /// Maximum number of last tokens that are compared: places that agree in as many are equally good.
  std::int32_t max_match = 32;

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.method, self.max_drafts, self.min_match, self.max_match);
  }
  bool operator==(const SpeculationConfig&) const = default;

  bool is_on() const { return method != SpeculationMethod::none; }
};

/// Reads the JSON object of --speculative-config, whose keys are those of vLLM: method, num_speculative_tokens
/// (max_drafts), prompt_lookup_min and prompt_lookup_max (min_match and max_match). An empty text means no speculation.
/// An error names the key that is wrong.
Result<SpeculationConfig> parse_speculation_config(std::string_view json);

}  // namespace pagoda
