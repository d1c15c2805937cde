#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <vector>

#include "engine/step/execute.hpp"
#include "engine/step/kv_layout.hpp"
#include "engine/step/result.hpp"
#include "kernels/result.hpp"

namespace pagoda::execution {

/// The sizes of a device, which limit the ids that messages may contain.
struct DeviceLimits {
  std::int32_t max_num_seqs = 0;
  std::int32_t max_num_samples = 0;  ///< of a step
  std::int32_t max_num_batched_tokens = 0;
  std::int64_t max_model_len = 0;
  std::int64_t vocab_size = 0;
  std::int32_t num_device_blocks = 0;
  std::int32_t num_host_blocks = 0;
  KvLayout layout;
  bool samples = true;           ///< see RunnerConfig::samples
  bool has_draft_model = false;  ///< whether steps may have tokens for a draft model
  bool has_draft_head = false;   ///< whether the draft model is a models::DraftHead
};

/// Checks messages of another process to a device against the device's sizes, before any index in them is used. Keeps
/// the set of rows, with the lengths of their tokens and block tables.
class DeviceMessageChecks {
 public:
  explicit DeviceMessageChecks(DeviceLimits limits);

  /// Checks a step. Steps come in their order. After an error the device cannot continue, because its rows differ from
  /// the scheduler's.
  Status check(const ExecuteStep& step);
  Status check(const StepMasks& masks);
  Status check(const CachePlan& plan) const;

 private:
  struct Row {
    SequenceId sequence = 0;
    std::int64_t prompt_len = 0;  ///< 0 = no row
    std::int64_t num_tokens = 0;
    std::vector<std::int64_t> num_blocks;  ///< by KV group
    bool appends_samples = true;
  };
  /// Returns the row, or null if the id is out of range.
  Row* row_at(RowId row);
  bool are_known_tokens(const TokenIds& tokens) const;
  bool are_valid_words(const std::vector<TokenIds>& words) const;
  bool is_valid(const RowSampling& sampling) const;
  bool take(const NewRow& fresh);
  bool take(const ForcedToken& forced);
  bool take(const RowTableDelta& delta, const std::vector<BlockId>& blocks);
  bool is_valid(const RowWork& work);
  bool has_valid_draft_inputs(const RowWork& work, const Row& row) const;
  static bool has_drafts_of(const ExecuteStep& step, const RowWork& work);

  DeviceLimits limits_;
  std::vector<Row> rows_;
  StepId last_step_ = 0;
  /// Maximum number of masks of each work, by steps that wait for masks.
  std::map<StepId, std::vector<std::int32_t>> waiting_for_masks_;
};

/// Checks results of another process against the steps that were sent to it.
class ResultChecks {
 public:
  explicit ResultChecks(DeviceLimits limits) : limits_(std::move(limits)) {}

  void sent(const ExecuteStep& step);
  /// Returns whether the step was sent, and its result has not come.
  bool is_in_flight(StepId step) const;
  /// Checks a result. Each step has one result, in the order of the steps.
  Status check(const StepResult& result);

 private:
  struct Step {
    StepId step = 0;
    std::vector<RowWork> work;
  };
  bool is_valid(const StepResult& result, const RowResult& row, const RowWork& work) const;
  bool is_valid(const TokenReport& report) const;

  DeviceLimits limits_;
  std::deque<Step> in_flight_;
};

}  // namespace pagoda::execution
