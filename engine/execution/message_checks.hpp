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

/// What a device has: what messages about it may name.
struct DeviceLimits {
  std::int32_t max_num_seqs = 0;
  std::int32_t max_num_batched_tokens = 0;
  std::int64_t max_model_len = 0;
  std::int64_t vocab_size = 0;
  std::int32_t num_device_blocks = 0;
  std::int32_t num_host_blocks = 0;
  KvLayout layout;
};

/// Holds what another process tells a device against what the device has, before anything follows an index in it. Keeps
/// which rows there are, and how long their tokens and block tables.
class DeviceMessageChecks {
 public:
  explicit DeviceMessageChecks(DeviceLimits limits);

  /// Steps come in their order. After an error the device cannot go on: its rows are not those of the scheduler.
  Status check(const ExecuteStep& step);
  Status check(const StepMasks& masks);
  Status check(const CachePlan& plan) const;

 private:
  struct Row {
    SequenceId sequence = 0;
    std::int64_t prompt_len = 0;  ///< 0 = no row
    std::int64_t num_tokens = 0;
    std::int64_t num_blocks = 0;
    bool appends_samples = true;
  };
  /// The row, if there can be one of that id.
  Row* row_at(RowId row);
  bool knows_tokens(const TokenIds& tokens) const;
  bool are_words(const std::vector<TokenIds>& words) const;
  bool is_sound(const RowSampling& sampling) const;
  bool take(const NewRow& fresh);
  bool take(const ForcedToken& forced);
  bool take(const RowTableDelta& delta, const std::vector<BlockId>& blocks);
  bool is_sound(const RowWork& work);
  static bool has_drafts_of(const ExecuteStep& step, const RowWork& work);

  DeviceLimits limits_;
  std::vector<Row> rows_;
  StepId last_step_ = 0;
  std::map<StepId, std::vector<std::int32_t>> waiting_for_masks_;  ///< steps, and the most masks of each of their work
};

/// Holds the results that another process sends against the steps that it was sent.
class ResultChecks {
 public:
  explicit ResultChecks(DeviceLimits limits) : limits_(std::move(limits)) {}

  void sent(const ExecuteStep& step);
  /// Each step has one result, in their order.
  Status check(const StepResult& result);

 private:
  struct Step {
    StepId step = 0;
    std::vector<RowWork> work;
  };
  bool is_sound(const StepResult& result, const RowResult& row, const RowWork& work) const;
  bool is_sound(const TokenReport& report) const;

  DeviceLimits limits_;
  std::deque<Step> in_flight_;
};

}  // namespace pagoda::execution
