#pragma once

#include <cstdint>
#include <optional>
#include <span>

#include "engine/types.hpp"

namespace pagoda {

/// The tokens that a model writes around its thinking. None where they are not known, or depend on what stands beside
/// them.
struct ThinkingMarks {
  TokenIds begin;
  TokenIds end;
  TokenIds close;  ///< what ends a thinking that is cut: `end`, and what the model writes before it

  bool are_known() const { return !begin.empty() && !end.empty() && !close.empty(); }

  static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.begin, self.end, self.close); }
};

/// How many tokens the sequences of a request may think (SamplingParams::thinking_token_budget). All that it says
/// follows from the tokens of a sequence, so that forks and preemptions need no more of it.
class ThinkingBudget {
 public:
  /// The marks must be known. A prompt may end with the begin of the thinking; else the output may begin with it.
  ThinkingBudget(ThinkingMarks marks, std::int64_t budget, std::span<const TokenId> prompt);

  /// Whether next() may say something of the token behind `num_generated` ones, of which `output` are known.
  bool may_be_spent(std::span<const TokenId> output, std::int64_t num_generated) const;
  /// The token that must follow `output`, all that is generated; nothing where it is free.
  std::optional<TokenId> next(std::span<const TokenId> output) const;

 private:
  /// What the output has thought so far; nothing when it does not think, or does no more.
  std::optional<std::span<const TokenId>> thoughts_of(std::span<const TokenId> output) const;

  ThinkingMarks marks_;
  std::int64_t budget_ = 0;
  bool prompt_thinks_ = false;
};

}  // namespace pagoda
