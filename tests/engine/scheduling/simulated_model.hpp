#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "engine/request/request_spec.hpp"
#include "engine/request/thinking_budget.hpp"
#include "engine/types.hpp"
#include "tests/engine/scheduling/simulation_config.hpp"

namespace pagoda::test {

inline constexpr TokenId kVocab = 50;
inline constexpr TokenId kEos = 0;
inline constexpr TokenId kWrong = kVocab;  ///< is never the right token

/// Thinking marks of one and of two tokens. A thinking that is cut ends with one more token.
inline const ThinkingMarks kThinking{.begin = {7}, .end = {9, 11}, .close = {3, 9, 11}};
/// Returns the token that a request's thinking_token_budget forces after `tokens`, prompt and output; computed in
/// another way than ThinkingBudget's.
std::optional<TokenId> forced_token(const RequestSpec& spec, const TokenIds& tokens);

/// The model of a simulation. A token is a hash of all tokens before it, so every sequence has one right continuation
/// under any schedule.
class SimulatedModel {
 public:
  explicit SimulatedModel(const SimulationConfig& config) : config_(config) {}

  TokenId next_token(const RequestSpec& spec, std::int32_t index, const TokenIds& tokens) const;
  std::vector<std::pair<TokenId, float>> beam_candidates_after(const RequestSpec& spec, const TokenIds& tokens) const;
  bool has_stop(const RequestSpec& spec) const;
  bool stops(const RequestSpec& spec, TokenId token) const;
  TokenIds right_answer(const RequestSpec& spec, std::int32_t index) const;
  std::vector<TokenIds> right_beams(const RequestSpec& spec) const;

 private:
  SimulationConfig config_;
};

}  // namespace pagoda::test
