#include "engine/request/thinking_budget.hpp"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <utility>

namespace pagoda {
namespace {

/// Maximum number of tokens before the begin mark in an output, for example line ends. A later mark does not count.
constexpr std::size_t kMaxBefore = 8;
/// Maximum number of tokens behind the last begin mark of a prompt. With more tokens the mark is part of the prompt's
/// text, and the prompt does not end in thinking.
constexpr std::size_t kMaxBehind = 2;

bool contains(std::span<const TokenId> tokens, const TokenIds& part) {
  return !part.empty() && std::search(tokens.begin(), tokens.end(), part.begin(), part.end()) != tokens.end();
}

/// Returns the tokens behind `part`, which begins at `begin`.
std::span<const TokenId> behind(std::span<const TokenId> tokens, std::span<const TokenId>::iterator begin,
                                const TokenIds& part) {
  return tokens.subspan(static_cast<std::size_t>(std::distance(tokens.begin(), begin)) + part.size());
}

/// Returns whether the prompt ends with a begin mark, apart from white space.
bool ends_in_thinking(std::span<const TokenId> prompt, const ThinkingMarks& marks) {
  const auto tail = prompt.last(std::min(prompt.size(), marks.begin.size() + kMaxBehind));
  const auto begin = std::find_end(tail.begin(), tail.end(), marks.begin.begin(), marks.begin.end());
  return begin != tail.end() && !contains(behind(tail, begin, marks.begin), marks.end);
}

}  // namespace

ThinkingBudget::ThinkingBudget(ThinkingMarks marks, std::int64_t budget, std::span<const TokenId> prompt)
    : marks_(std::move(marks)), budget_(budget), prompt_thinks_(ends_in_thinking(prompt, marks_)) {}

std::optional<std::span<const TokenId>> ThinkingBudget::thoughts_of(std::span<const TokenId> output,
                                                                    ThinkingProgress& progress) const {
  if (progress.is_over) return std::nullopt;
  if (prompt_thinks_) progress.first_thought = 0;
  if (!progress.first_thought) {
    const std::size_t head_size = kMaxBefore + marks_.begin.size();
    const auto head = output.first(std::min(output.size(), head_size));
    const auto begin = std::search(head.begin(), head.end(), marks_.begin.begin(), marks_.begin.end());
    if (marks_.begin.empty() || begin == head.end()) {
      progress.is_over = head.size() == head_size;
      return std::nullopt;
    }
    progress.first_thought = static_cast<std::size_t>(std::distance(head.begin(), begin)) + marks_.begin.size();
  }
  // The end mark may begin in the tokens that were read before.
  const std::size_t read = progress.num_read - std::min(progress.num_read, marks_.end.size() - 1);
  if (contains(output.subspan(std::max(*progress.first_thought, read)), marks_.end)) {
    progress.is_over = true;
    return std::nullopt;
  }
  progress.num_read = output.size();
  return output.subspan(*progress.first_thought);
}

bool ThinkingBudget::may_be_spent(std::span<const TokenId> output, std::int64_t num_generated,
                                  ThinkingProgress& progress) const {
  const bool may_begin = !prompt_thinks_ && output.size() < kMaxBefore + marks_.begin.size();
  return num_generated >= budget_ && (may_begin || thoughts_of(output, progress));
}

std::optional<TokenId> ThinkingBudget::next(std::span<const TokenId> output, ThinkingProgress& progress) const {
  const auto thoughts = thoughts_of(output, progress);
  if (!thoughts || std::ssize(*thoughts) < budget_) return std::nullopt;
  const auto written = thoughts->size() - static_cast<std::size_t>(budget_);
  return written < marks_.close.size() ? std::optional(marks_.close[written]) : std::nullopt;
}

}  // namespace pagoda
