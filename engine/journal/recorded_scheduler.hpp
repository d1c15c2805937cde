#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/journal/hidden_tokens.hpp"
#include "engine/journal/journal.hpp"
#include "engine/scheduling/scheduler_core.hpp"

namespace pagoda::journal {

/// The inputs of a SchedulerCore: the calls of RecordedScheduler, with their arguments in their order.
enum class SchedulerInput : std::uint8_t {
  add_group,
  abort_group,
  stop_hit,
  memory_grant,
  step_result,
  swap_measured,
  device_replaced,
  next_memory_request,
  take_masks,
  take_outputs,
  expire_group,
  reset_prefix_cache,
  masks_made,
  masks_late,
  release_group,
};
constexpr SchedulerInput last_value(SchedulerInput) {
  return SchedulerInput::release_group;
}

/// Returns the form of a plan that is compared as an effect. It lacks the tokens of waiting candidates, which are long
/// and which the block manager's records hold.
MemoryRequest without_tokens(const MemoryRequest& plan);

/// A SchedulerCore that is recorded if there is a journal. If the journal hides tokens, a twin of the core is recorded
/// instead: it receives the same inputs with blanked tokens.
class RecordedScheduler {
 public:
  RecordedScheduler(const scheduling::SchedulerConfig& config, SharedJournal journal, ReplicaId replica = 0);
  RecordedScheduler(const RecordedScheduler&) = delete;
  RecordedScheduler& operator=(const RecordedScheduler&) = delete;

  const scheduling::SchedulerCore& core() const { return core_; }

  void add_group(SharedSpec spec) {
    if (twin_) {
      const SharedSpec blanked = blank(*spec);
      recorder_.input(SchedulerInput::add_group, blanked);
      twin_->add_group(blanked);
    } else {
      recorder_.input(SchedulerInput::add_group, spec);
    }
    core_.add_group(std::move(spec));
  }
  void on_step_result(const StepResult& result) {
    if (twin_) {
      const StepResult blanked = blank_result(result);
      recorder_.input(SchedulerInput::step_result, blanked);
      twin_->on_step_result(blanked);
    } else {
      recorder_.input(SchedulerInput::step_result, result);
    }
    core_.on_step_result(result);
  }
  void abort_group(RequestId request) {
    run(
        SchedulerInput::abort_group, [&](auto& core) { core.abort_group(request); }, request);
  }
  /// Returns whether there is such a group.
  bool release_group(RequestId request) {
    bool is_there = false;
    run(
        SchedulerInput::release_group, [&](auto& core) { is_there = core.release_group(request); }, request);
    return is_there;
  }
  void expire_group(RequestId request, const Error& error) {
    run(
        SchedulerInput::expire_group, [&](auto& core) { core.expire_group(request, error); }, request, error);
  }
  void reset_prefix_cache() {
    run(SchedulerInput::reset_prefix_cache, [](auto& core) { core.reset_prefix_cache(); });
  }
  void stop_hit(const StopHit& hit) {
    run(
        SchedulerInput::stop_hit, [&](auto& core) { core.stop_hit(hit); }, hit);
  }
  std::optional<ExecuteStep> on_memory_grant(const MemoryGrant& grant, TimeUs now) {
    return run(
        SchedulerInput::memory_grant, [&](auto& core) { return core.on_memory_grant(grant, now); }, grant, now);
  }
  void swap_measured(const SwapMeasured& measured) {
    run(
        SchedulerInput::swap_measured, [&](auto& core) { core.swap_measured(measured); }, measured);
  }
  void device_replaced(bool memory_lost, bool crashed) {
    run(
        SchedulerInput::device_replaced, [&](auto& core) { core.device_replaced(memory_lost, crashed); }, memory_lost,
        crashed);
  }
  /// Without stages, returns nothing while a step waits for masks. With stages the next step runs other sequences.
  std::optional<MemoryRequest> next_memory_request(TimeUs now) {
    if (!config_.has_stages() && core_.step_awaiting_masks() != 0) return std::nullopt;
    if (!core_.plan_outstanding()) recorder_.begin_segment_if_full();
    return run(
        SchedulerInput::next_memory_request, [&](auto& core) { return core.next_memory_request(now); }, now);
  }
  /// Not recorded: taking the jobs does not change what the core does.
  std::vector<scheduling::MaskJob> take_mask_jobs() { return core_.take_mask_jobs(); }
  /// Records the masks without their words: these follow from the tokens, and replays may lack the grammars.
  void masks_made(std::vector<scheduling::MadeMask> made) {
    if (made.empty()) return;
    if (twin_) {
      const auto blanked = blank_masks(made);
      recorder_.input(SchedulerInput::masks_made, blanked);
      twin_->masks_made(blanked);
    } else {
      recorder_.input(SchedulerInput::masks_made, made);
    }
    core_.masks_made(std::move(made));
  }
  void masks_late(const std::vector<SequenceId>& sequences) {
    if (sequences.empty() || core_.step_awaiting_masks() == 0) return;
    run(
        SchedulerInput::masks_late, [&](auto& core) { core.masks_late(sequences); }, sequences);
  }
  std::optional<StepMasks> take_masks() {
    return run(SchedulerInput::take_masks, [](auto& core) { return core.take_masks(); });
  }
  StepOutputs take_outputs() {
    return run(SchedulerInput::take_outputs, [](auto& core) { return core.take_outputs(); });
  }

 private:
  StepResult blank_result(StepResult result) const;
  std::vector<scheduling::MadeMask> blank_masks(const std::vector<scheduling::MadeMask>& made) const;
  template <class Call, class... Fields>
  std::invoke_result_t<Call, scheduling::SchedulerCore&> run(SchedulerInput input, Call call, const Fields&... fields) {
    recorder_.input(input, fields...);
    if constexpr (std::is_void_v<decltype(call(core_))>) {
      if (twin_) call(*twin_);
      call(core_);
    } else {
      auto effect = call(core_);
      if (twin_) {
        const auto twins = call(*twin_);
        note(twins);
        keep_twin_if(is_alike(effect, twins));
      } else {
        note(effect);
      }
      return effect;
    }
  }
  void note(const std::optional<MemoryRequest>& plan) {
    if (plan && recorder_.is_on()) recorder_.effect(without_tokens(*plan));
  }
  void note(const std::optional<ExecuteStep>& step) {
    if (step) recorder_.effect(*step);
  }
  void note(const std::optional<StepMasks>& masks) {
    if (masks) recorder_.effect(masks->work);
  }
  void note(const StepOutputs& outputs) {
    if (!outputs.empty()) recorder_.effect(outputs);
  }
  static bool is_alike(const std::optional<MemoryRequest>& a, const std::optional<MemoryRequest>& b) {
    if (!a || !b) return a.has_value() == b.has_value();
    return a->step == b->step && a->running.size() == b->running.size() && a->swapped.size() == b->swapped.size() &&
           a->waiting.size() == b->waiting.size() && a->needs.size() == b->needs.size();
  }
  static bool is_alike(const std::optional<ExecuteStep>& a, const std::optional<ExecuteStep>& b) {
    if (!a || !b) return a.has_value() == b.has_value();
    // A draft is sampled, too: the results of the core's drafts do not fit other ones.
    return a->step == b->step && std::ranges::equal(a->work, b->work, [](const RowWork& one, const RowWork& other) {
             return one.sequence == other.sequence && one.num_tokens == other.num_tokens &&
                    one.num_samples == other.num_samples && one.num_drafts == other.num_drafts;
           });
  }
  /// The content of masks, and whether there are any, depends on the tokens. Nothing else depends on the masks.
  static bool is_alike(const std::optional<StepMasks>&, const std::optional<StepMasks>&) { return true; }
  static bool is_alike(const StepOutputs& a, const StepOutputs& b) { return a.outputs.size() == b.outputs.size(); }
  /// Drops a twin that has diverged and stops the recording: the twin would receive inputs that it did not ask for, and
  /// the engine must go on.
  void keep_twin_if(bool is_alike) {
    if (is_alike) return;
    twin_.reset();
    recorder_.stop_diverged();
  }

  scheduling::SchedulerConfig config_;
  scheduling::SchedulerCore core_;
  std::unique_ptr<scheduling::SchedulerCore> twin_;
  Recorder recorder_;
};

}  // namespace pagoda::journal
