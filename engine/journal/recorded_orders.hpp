#pragma once

#include <optional>
#include <utility>

#include "engine/execution/cache_order.hpp"
#include "engine/execution/step_order.hpp"
#include "engine/journal/journal.hpp"

namespace pagoda::journal {

/// The inputs of a StepOrder.
enum class StepOrderInput : std::uint8_t { step_arrived, masks_arrived, plan_enqueued, connected, next };
constexpr StepOrderInput last_value(StepOrderInput) {
  return StepOrderInput::next;
}

/// The inputs of a CacheOrder.
enum class CacheOrderInput : std::uint8_t { plan_arrived, step_enqueued, connect, next };
constexpr CacheOrderInput last_value(CacheOrderInput) {
  return CacheOrderInput::next;
}

/// A StepOrder that is recorded if there is a journal.
class RecordedStepOrder {
 public:
  explicit RecordedStepOrder(SharedJournal journal, Place place = {})
      : recorder_(std::move(journal), CoreId(Source::step_order, place), [this](Encoder& out) { out.put(core_); }) {}
  RecordedStepOrder(const RecordedStepOrder&) = delete;
  RecordedStepOrder& operator=(const RecordedStepOrder&) = delete;

  bool step_arrived(StepId step, bool wait_for_cache, bool wait_for_masks) {
    recorder_.input(StepOrderInput::step_arrived, step, wait_for_cache, wait_for_masks);
    const bool is_first = core_.step_arrived(step, wait_for_cache, wait_for_masks);
    recorder_.effect(is_first);
    return is_first;
  }
  void masks_arrived(StepId step) {
    recorder_.input(StepOrderInput::masks_arrived, step);
    core_.masks_arrived(step);
  }
  void plan_enqueued(StepId step) {
    recorder_.input(StepOrderInput::plan_enqueued, step);
    core_.plan_enqueued(step);
  }
  void connected(StepId last_plan) {
    recorder_.input(StepOrderInput::connected, last_plan);
    core_.connected(last_plan);
  }
  std::optional<execution::StepOrder::Ready> next() {
    recorder_.input(StepOrderInput::next);
    const auto ready = core_.next();
    if (ready) recorder_.effect(*ready);
    return ready;
  }

 private:
  execution::StepOrder core_;
  Recorder recorder_;
};

/// A CacheOrder that is recorded if there is a journal.
class RecordedCacheOrder {
 public:
  explicit RecordedCacheOrder(SharedJournal journal, Place place = {})
      : recorder_(std::move(journal), CoreId(Source::cache_order, place), [this](Encoder& out) { out.put(core_); }) {}
  RecordedCacheOrder(const RecordedCacheOrder&) = delete;
  RecordedCacheOrder& operator=(const RecordedCacheOrder&) = delete;

  void plan_arrived(const CachePlan& plan) {
    const StepId last_touched = execution::last_touched_step(plan);
    recorder_.input(CacheOrderInput::plan_arrived, plan.step, last_touched);
    core_.plan_arrived(plan.step, last_touched);
  }
  void step_enqueued(StepId step) {
    recorder_.input(CacheOrderInput::step_enqueued, step);
    core_.step_enqueued(step);
  }
  void connect(StepId first_step) {
    recorder_.input(CacheOrderInput::connect, first_step);
    core_.connect(first_step);
  }
  StepId last_plan() const { return core_.last_plan(); }
  std::optional<execution::CacheOrder::Ready> next() {
    recorder_.input(CacheOrderInput::next);
    const auto ready = core_.next();
    if (ready) recorder_.effect(*ready);
    return ready;
  }

 private:
  execution::CacheOrder core_;
  Recorder recorder_;
};

}  // namespace pagoda::journal
