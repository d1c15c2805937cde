#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "engine/metrics/engine_metrics.hpp"
#include "engine/scheduling/batch_planner.hpp"
#include "engine/scheduling/group_table.hpp"
#include "engine/scheduling/request_masks.hpp"
#include "engine/scheduling/step_builder.hpp"
#include "engine/step/execute.hpp"
#include "engine/types.hpp"

namespace pagoda::scheduling {

/// Manages the masks of steps in flight: which ones to make, which are late, and which to send. The Constraint of each
/// group has the state of its masks. SchedulerCore owns this object and documents its functions.
class MaskManager {
 public:
  /// All arguments must outlive this object. `in_flight` are the steps in flight, oldest first.
  MaskManager(const SchedulerConfig& config, GroupTable& table, BatchPlanner& batch_planner,
              std::vector<InFlightStep>& in_flight, metrics::StepMetrics& metrics)
      : config_(config), table_(table), batch_planner_(batch_planner), in_flight_(in_flight), metrics_(metrics) {}
  MaskManager(const MaskManager&) = delete;
  MaskManager& operator=(const MaskManager&) = delete;

  StepId step_awaiting_masks() const;
  std::vector<SequenceId> missing_masks() const;
  TimeUs mask_wait_us() const;

  std::vector<MaskJob> take_mask_jobs();
  std::optional<MaskJob> mask_job_of(SequenceId sequence);
  std::vector<MadeMask> made_masks() const;
  void masks_made(std::vector<MadeMask> made);
  void masks_late(std::span<const SequenceId> sequences);
  std::optional<StepMasks> take_masks();

 private:
  /// A sequence whose group has a constraint. Null if there is none.
  struct Constrained {
    SequenceGroup* group = nullptr;
    Sequence* sequence = nullptr;

    explicit operator bool() const { return sequence != nullptr; }
    Constraint& constraint() const { return *group->decoding->constraint(); }
  };

  /// Returns the index of the step in flight whose masks are sent next. Its tokens are known: it is the first, or, with
  /// stages, the first that waits for masks. Nothing if no such step waits for masks.
  std::optional<std::size_t> awaiting_masks() const;
  Constrained find(RequestId group, SequenceId sequence) const;
  Constrained find(SequenceId sequence) const;
  Constrained sequence_of(const WorkRef& work) const;
  Constrained missing_mask(const WorkRef& work) const;
  Constrained unsampled_prompt(const WorkRef& work) const;
  void mark_late(WorkRef& work, const Constrained& late);

  const SchedulerConfig& config_;
  GroupTable& table_;
  BatchPlanner& batch_planner_;
  std::vector<InFlightStep>& in_flight_;
  metrics::StepMetrics& metrics_;
  StepId masks_requested_ = 0;  ///< last step whose jobs take_mask_jobs() has returned; not saved
  StepId last_step_seen_ = 0;   ///< last step whose prompts take_mask_jobs() has looked at; not saved
};

}  // namespace pagoda::scheduling
