#pragma once

#include <optional>
#include <utility>

#include "engine/journal/journal.hpp"
#include "engine/scheduling/scheduler_core.hpp"

namespace pagoda::journal {

/// What enters a SchedulerCore: the calls of RecordedScheduler, with their arguments in their order.
enum class SchedulerInput : std::uint8_t {
  add_group,
  abort_group,
  stop_hit,
  step_plan,
  step_result,
  swap_measured,
  device_replaced,
  next_plan,
  take_outputs,
};
constexpr SchedulerInput last_value(SchedulerInput) {
  return SchedulerInput::take_outputs;
}

/// A SchedulerCore that is recorded where there is a journal.
class RecordedScheduler {
 public:
  RecordedScheduler(const scheduling::SchedulerConfig& config, SharedJournal journal)
      : core_(config), recorder_(std::move(journal), Source::scheduler, [this, config](Encoder& out) {
          out.put(config);
          core_.save(out);
        }) {}
  RecordedScheduler(const RecordedScheduler&) = delete;
  RecordedScheduler& operator=(const RecordedScheduler&) = delete;

  const scheduling::SchedulerCore& core() const { return core_; }

  void add_group(SharedSpec spec) {
    record(SchedulerInput::add_group, spec);
    core_.add_group(std::move(spec));
  }
  void abort_group(RequestId request) {
    record(SchedulerInput::abort_group, request);
    core_.abort_group(request);
  }
  void stop_hit(const StopHit& hit) {
    record(SchedulerInput::stop_hit, hit);
    core_.stop_hit(hit);
  }
  std::optional<ExecuteStep> on_step_plan(const StepPlan& plan, TimeUs now) {
    record(SchedulerInput::step_plan, plan, now);
    return with_effect(core_.on_step_plan(plan, now));
  }
  void on_step_result(const StepResult& result) {
    record(SchedulerInput::step_result, result);
    core_.on_step_result(result);
  }
  void swap_measured(const SwapMeasured& measured) {
    record(SchedulerInput::swap_measured, measured);
    core_.swap_measured(measured);
  }
  void device_replaced(bool memory_lost) {
    record(SchedulerInput::device_replaced, memory_lost);
    core_.device_replaced(memory_lost);
  }
  std::optional<PlanStep> next_plan(TimeUs now) {
    record(SchedulerInput::next_plan, now);
    return with_effect(core_.next_plan(now));
  }
  StepOutputs take_outputs() {
    record(SchedulerInput::take_outputs);
    StepOutputs outputs = core_.take_outputs();
    if (!outputs.empty()) recorder_.effect(outputs);
    return outputs;
  }

 private:
  template <class... Fields>
  void record(SchedulerInput input, const Fields&... fields) {
    if (!recorder_.is_on()) return;
    if (!core_.plan_outstanding()) recorder_.begin_segment_if_full();
    recorder_.input(input, fields...);
  }
  template <class Effect>
  std::optional<Effect> with_effect(std::optional<Effect> effect) {
    if (effect) recorder_.effect(*effect);
    return effect;
  }

  scheduling::SchedulerCore core_;
  Recorder recorder_;
};

}  // namespace pagoda::journal
