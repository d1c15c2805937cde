#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "engine/step/result.hpp"
#include "engine/types.hpp"

namespace pagoda::execution {

/// Gathers the results of the ranks that run a step. A step has ended when every rank has answered. The first rank of
/// the last stage gives rows, samples and log-probabilities; any rank may give an error. A plain state machine. Not
/// thread-safe: one owner.
class RankResults {
 public:
  /// `num_ranks`: of all stages, at least 1. Each of the `num_stages` has num_ranks / num_stages of them.
  explicit RankResults(std::int32_t num_ranks, std::int32_t num_stages = 1);

  /// Call when new workers have replaced the present ones. Results of steps up to `last_lost`, which no new worker
  /// runs, are ignored from now on.
  void replaced(std::int32_t num_ranks, StepId last_lost);

  /// Takes the result of one rank (StepResult::rank). Returns the result of the step when it was the last one: that of
  /// the first rank of the last stage, with the error of the step or of a row if any rank has one, from the first start
  /// of a rank of that stage to the last end. Each rank sends its results in the order of the steps, so steps end in
  /// this order.
  std::optional<StepResult> add(StepResult result);

 private:
  using OfRanks = std::vector<std::optional<StepResult>>;

  std::int32_t num_ranks_ = 1;
  std::int32_t num_stages_ = 1;
  StepId last_lost_ = 0;
  std::map<StepId, OfRanks> waiting_;  ///< results of steps that lack the result of a rank
};

}  // namespace pagoda::execution
