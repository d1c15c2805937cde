#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "engine/types.hpp"

namespace pagoda {

/// The tokens that a model writes around its thinking. Empty if they are unknown, or depend on the tokens beside them.
struct ThinkingMarks {
  TokenIds begin;
  TokenIds end;
  /// Tokens that end a thinking that is cut: `end`, and the tokens that the model writes before it.
  TokenIds close;

  bool are_known() const { return !begin.empty() && !end.empty() && !close.empty(); }

  static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.begin, self.end, self.close); }
};

/// The part of an output that a ThinkingBudget has read, so that it reads each token once. Outputs only grow: start
/// with a new object when tokens were taken back.
struct ThinkingProgress {
  std::size_t num_read = 0;  ///< number of tokens read without an end of the thinking
  /// Index of the first token of the thinking, once the thinking has begun.
  std::optional<std::size_t> first_thought;
  bool is_over = false;  ///< whether the output does not think, or has ended its thinking
};

/// Limits the number of thinking tokens in the sequences of a request (SamplingParams::thinking_token_budget). All
/// results follow from the tokens of a sequence, so forks and preemptions need no further state.
class ThinkingBudget {
 public:
  /// The marks must be known. The thinking begins either at the end of the prompt or in the output.
  ThinkingBudget(ThinkingMarks marks, std::int64_t budget, std::span<const TokenId> prompt);

  /// Returns whether next() may return a token for the position behind `num_generated` tokens. `output` are the known
  /// ones of these tokens.
  bool may_be_spent(std::span<const TokenId> output, std::int64_t num_generated, ThinkingProgress& progress) const;
  /// Returns the token that must follow `output`, which is all that was generated; nothing where any token may follow.
  std::optional<TokenId> next(std::span<const TokenId> output, ThinkingProgress& progress) const;

 private:
  /// Returns the thinking tokens of the output so far; nothing when the output does not think, or has ended its
  /// thinking.
  std::optional<std::span<const TokenId>> thoughts_of(std::span<const TokenId> output,
                                                      ThinkingProgress& progress) const;

  ThinkingMarks marks_;
  std::int64_t budget_ = 0;
  bool prompt_thinks_ = false;
};

}  // namespace pagoda
