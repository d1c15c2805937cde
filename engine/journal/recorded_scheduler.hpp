#pragma once

#include <memory>
#include <optional>
#include <type_traits>
#include <utility>

#include "engine/journal/hidden_tokens.hpp"
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

/// A SchedulerCore that is recorded where there is a journal. For one that hides tokens it is a twin that is recorded:
/// it is told the same, but for the tokens.
class RecordedScheduler {
 public:
  RecordedScheduler(const scheduling::SchedulerConfig& config, SharedJournal journal);
  RecordedScheduler(const RecordedScheduler&) = delete;
  RecordedScheduler& operator=(const RecordedScheduler&) = delete;

  const scheduling::SchedulerCore& core() const { return core_; }

  void add_group(SharedSpec spec) {
    if (twin_) {
      const SharedSpec blank = blank_tokens_.blank(*spec);
      record(SchedulerInput::add_group, blank);
      twin_->add_group(blank);
    } else {
      record(SchedulerInput::add_group, spec);
    }
    core_.add_group(std::move(spec));
  }
  void on_step_result(const StepResult& result) {
    if (twin_) {
      const StepResult blank = blank_tokens_.blank(result);
      record(SchedulerInput::step_result, blank);
      twin_->on_step_result(blank);
    } else {
      record(SchedulerInput::step_result, result);
    }
    core_.on_step_result(result);
  }
  void abort_group(RequestId request) {
    run(
        SchedulerInput::abort_group, [&](auto& core) { core.abort_group(request); }, request);
  }
  void stop_hit(const StopHit& hit) {
    run(
        SchedulerInput::stop_hit, [&](auto& core) { core.stop_hit(hit); }, hit);
  }
  std::optional<ExecuteStep> on_step_plan(const StepPlan& plan, TimeUs now) {
    return run(
        SchedulerInput::step_plan, [&](auto& core) { return core.on_step_plan(plan, now); }, plan, now);
  }
  void swap_measured(const SwapMeasured& measured) {
    run(
        SchedulerInput::swap_measured, [&](auto& core) { core.swap_measured(measured); }, measured);
  }
  void device_replaced(bool memory_lost) {
    run(
        SchedulerInput::device_replaced, [&](auto& core) { core.device_replaced(memory_lost); }, memory_lost);
  }
  std::optional<PlanStep> next_plan(TimeUs now) {
    return run(
        SchedulerInput::next_plan, [&](auto& core) { return core.next_plan(now); }, now);
  }
  StepOutputs take_outputs() {
    return run(SchedulerInput::take_outputs, [](auto& core) { return core.take_outputs(); });
  }

 private:
  template <class... Fields>
  void record(SchedulerInput input, const Fields&... fields) {
    if (!recorder_.is_on()) return;
    if (!core_.plan_outstanding()) recorder_.begin_segment_if_full();
    recorder_.input(input, fields...);
  }
  template <class Call, class... Fields>
  std::invoke_result_t<Call, scheduling::SchedulerCore&> run(SchedulerInput input, Call call, const Fields&... fields) {
    record(input, fields...);
    if constexpr (std::is_void_v<decltype(call(core_))>) {
      if (twin_) call(*twin_);
      call(core_);
    } else {
      if (twin_) note(call(*twin_));
      auto effect = call(core_);
      if (!twin_) note(effect);
      return effect;
    }
  }
  template <class Effect>
  void note(const std::optional<Effect>& effect) {
    if (effect) recorder_.effect(*effect);
  }
  void note(const StepOutputs& outputs) {
    if (!outputs.empty()) recorder_.effect(outputs);
  }

  scheduling::SchedulerCore core_;
  std::unique_ptr<scheduling::SchedulerCore> twin_;
  BlankTokens blank_tokens_;
  Recorder recorder_;
};

inline RecordedScheduler::RecordedScheduler(const scheduling::SchedulerConfig& config, SharedJournal journal)
    : core_(config),
      twin_(journal && journal->token_key() ? std::make_unique<scheduling::SchedulerCore>(config) : nullptr),
      blank_tokens_(config.eos_token_ids),
      recorder_(std::move(journal), Source::scheduler, [this, config](Encoder& out) {
        out.put(config);
        (twin_ ? *twin_ : core_).save(out);
      }) {}

}  // namespace pagoda::journal
