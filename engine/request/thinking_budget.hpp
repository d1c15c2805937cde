#pragma once

#include <cstddef>
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

/// How far a ThinkingBudget has read an output, so that it reads each token once. Outputs only grow: start with a new
/// one where tokens were taken back.
struct ThinkingProgress {
  std::size_t num_read = 0;                  ///< tokens without an end of the thinking
  std::optional<std::size_t> first_thought;  ///< index of the first token of the thinking, once that has begun
  bool is_over = false;                      ///< the output does not think, or does no more
};

/// How many tokens the sequences of a request may think (SamplingParams::thinking_token_budget). All that it says
/// follows from the tokens of a sequence, so that forks and preemptions need no more of it.
class ThinkingBudget {
 public:
  /// The marks must be known. A prompt may end with the begin of the thinking; else the output may begin with it.
  ThinkingBudget(ThinkingMarks marks, std::int64_t budget, std::span<const TokenId> prompt);

  /// Returns whether next() may name the token behind `num_generated` ones, of which `output` are known.
  bool may_be_spent(std::span<const TokenId> output, std::int64_t num_generated, ThinkingProgress& progress) const;
  /// Returns the token that must follow `output`, all that is generated; nothing where any token may.
  std::optional<TokenId> next(std::span<const TokenId> output, ThinkingProgress& progress) const;

 private:
  /// Returns what the output has thought so far; nothing when it does not think, or does no more.
  std::optional<std::span<const TokenId>> thoughts_of(std::span<const TokenId> output,
                                                      ThinkingProgress& progress) const;

  ThinkingMarks marks_;
  std::int64_t budget_ = 0;
  bool prompt_thinks_ = false;
};

}  // namespace pagoda
