#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kernels/result.hpp"

namespace pagoda {

enum class SpeculationMethod : std::uint8_t {
  none,
  ngram,        ///< drafts are what followed the last tokens of a sequence where they stood before, in prompt or output
  suffix,       ///< as ngram, and also in earlier outputs of the same user
  draft_model,  ///< a smaller model makes the drafts; where it cannot, as ngram
  eagle3,       ///< as draft_model, with a head that reads the hidden rows of the model (models::DraftHead)
};
constexpr SpeculationMethod last_value(SpeculationMethod) {
  return SpeculationMethod::eagle3;
}

/// How the engine finds drafts: tokens that probably follow. Each draft is verified by the model in the next step, so
/// drafts change no token.
struct SpeculationConfig {
  /// Maximum of max_drafts and max_match.
  static constexpr std::int32_t kMaxTokens = 64;
  /// Maximum number of tokens of earlier outputs that are kept, for all users together.
  static constexpr std::int64_t kMaxHistoryTokens = 65536;
  static constexpr std::int32_t kMaxOutputs = 1'000'000;

  SpeculationMethod method = SpeculationMethod::none;
  /// Maximum number of drafts of a sequence in a step. The scheduler takes as many as pay.
  std::int32_t max_drafts = 16;
  /// Minimum number of last tokens that must have stood before.
  std::int32_t min_match = 3;
  /// Maximum number of last tokens that are compared: places that agree in as many are equally good.
  std::int32_t max_match = 32;
  /// Drafts are made as long as their chance is at least this.
  double min_chance = 0.05;
  /// Maximum number of earlier outputs of a user that are kept; only for the method suffix.
  std::int32_t max_outputs = 10'000;
  /// Path of the draft model or head; only for the methods draft_model and eagle3.
  std::string draft_model = {};

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.method, self.max_drafts, self.min_match, self.max_match, self.min_chance, self.max_outputs,
                 self.draft_model);
  }
  bool operator==(const SpeculationConfig&) const = default;

  /// Returns whether a config that was read from bytes is in the bounds of parse_speculation_config().
  bool is_valid() const {
    const auto is_count = [](std::int32_t count) { return count >= 1 && count <= kMaxTokens; };
    return is_count(max_drafts) && is_count(min_match) && is_count(max_match) && min_match <= max_match &&
           min_chance >= 0 && min_chance <= 1 && max_outputs >= 0 && max_outputs <= kMaxOutputs;
  }
  bool is_on() const { return method != SpeculationMethod::none; }
  /// Returns whether a model makes drafts, which may be a head.
  bool has_draft_model() const { return method == SpeculationMethod::draft_model || has_draft_head(); }
  bool has_draft_head() const { return method == SpeculationMethod::eagle3; }
  bool has_history() const { return method == SpeculationMethod::suffix && max_outputs > 0; }
};

/// Reads the JSON object of --speculative-config, whose keys are those of vLLM: method, num_speculative_tokens
/// (max_drafts); for ngram prompt_lookup_min and prompt_lookup_max (min_match and max_match); for suffix
/// suffix_decoding_max_tree_depth (max_match), suffix_decoding_max_cached_requests (max_outputs) and
/// suffix_decoding_min_token_prob (min_chance); for draft_model and eagle3 the key model (draft_model). With the key
/// model the method draft_model need not be named, and draft_tensor_parallel_size may be 1. An empty text means no
/// speculation. An error names the key that is wrong.
Result<SpeculationConfig> parse_speculation_config(std::string_view json);

}  // namespace pagoda
