#include "engine/execution/rank_results.hpp"

#include <algorithm>
#include <utility>

#include "kernels/result.hpp"

namespace pagoda::execution {
namespace {

/// Adds what the result of another rank changes.
void add_rank(StepResult& step, StepResult& rank, bool is_in_last_stage) {
  if (is_in_last_stage) {
    step.started_us = std::min(step.started_us, rank.started_us);
    step.finished_us = std::max(step.finished_us, rank.finished_us);
  }
  // A rank that waited for another knows only that the other has failed.
  const auto waited = [](const Error& error) { return error.code == ErrorCode::device_failed; };
  if (step.error && !(waited(*step.error) && rank.error && !waited(*rank.error))) return;
  if (rank.error) {
    step.error = std::move(rank.error);
    step.rows.clear();
    step.samples.clear();
    step.prompt_logprobs.clear();
    return;
  }
  const std::size_t num_rows = std::min(step.rows.size(), rank.rows.size());
  for (std::size_t i = 0; i < num_rows; ++i) {
    const Error* const error = rank.rows[i].error();
    const Error* const before = step.rows[i].error();
    // This error comes before others: a row without its adapter has computed KV that must be forgotten.
    if (error != nullptr && (before == nullptr || error->code == ErrorCode::bad_adapter)) step.rows[i].output = *error;
  }
}

}  // namespace

RankResults::RankResults(std::int32_t num_ranks, std::int32_t num_stages)
    : num_ranks_(num_ranks), num_stages_(num_stages) {
  PAGODA_ASSERT(num_ranks > 0 && num_stages > 0 && num_ranks % num_stages == 0, "each stage has as many ranks");
}

void RankResults::replaced(std::int32_t num_ranks, StepId last_lost) {
  PAGODA_ASSERT(num_ranks > 0 && num_ranks % num_stages_ == 0, "each stage has as many ranks");
  num_ranks_ = num_ranks;
  last_lost_ = std::max(last_lost_, last_lost);
  waiting_.clear();
}

std::optional<StepResult> RankResults::add(StepResult result) {
  if (result.step <= last_lost_) return std::nullopt;
  PAGODA_ASSERT(result.rank >= 0 && result.rank < num_ranks_, "a result is from a rank of the group");
  if (num_ranks_ == 1) return result;
  const auto found = waiting_.try_emplace(result.step, static_cast<std::size_t>(num_ranks_)).first;
  OfRanks& ranks = found->second;
  auto& its_place = ranks[static_cast<std::size_t>(result.rank)];
  PAGODA_ASSERT(!its_place, "a rank answers a step once");
  its_place = std::move(result);
  if (!std::ranges::all_of(ranks, [](const auto& one) { return one.has_value(); })) return std::nullopt;
  const auto sampler = static_cast<std::size_t>(num_ranks_ - num_ranks_ / num_stages_);
  StepResult step = std::move(*ranks[sampler]);
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    if (rank != sampler) add_rank(step, *ranks[rank], rank > sampler);
  }
  waiting_.erase(found);
  return step;
}

}  // namespace pagoda::execution
