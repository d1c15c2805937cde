#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <variant>
#include <vector>

#include "engine/journal/recorded_orders.hpp"
#include "engine/step/execute.hpp"
#include "engine/step/result.hpp"
#include "tests/engine/scheduling/simulated_model.hpp"
#include "tests/support/fake_device.hpp"

namespace pagoda::test {

/// A worker and a cache engine with their mailboxes, their real ordering rules, and a device that holds marks for KV.
/// The simulation delivers messages one by one. With pipeline stages this is the last one, and of the others there are
/// the tokens of the first.
class SimulatedDevice {
 public:
  /// Returns the request of a row, from its prompt.
  using FindRequest = std::function<SharedSpec(const RowSpec& row)>;

  SimulatedDevice(const SimulationConfig& config, const SimulatedModel& model, std::uint64_t seed,
                  FindRequest find_request, const journal::SharedJournal& journal);

  // -- messages to the worker and the cache engine
  void execute(ExecuteStep step) {
    if (worker_lives_) worker_mail_.emplace_back(std::move(step));
  }
  void execute(StepMasks masks) {
    if (worker_lives_) worker_mail_.emplace_back(std::move(masks));
  }
  void move(CachePlan plan) { tell_cache_engine(std::move(plan)); }

  bool worker_has_mail() const { return !worker_mail_.empty(); }
  bool cache_engine_has_mail() const { return !cache_mail_.empty(); }
  void run_worker();
  void run_cache_engine();

  // -- actions of the worker and the cache engine
  bool runs_a_step() const { return !running_.empty(); }
  /// Ends the oldest enqueued step. Returns nothing if the worker dies in it.
  std::optional<StepResult> complete_step();
  /// Returns swaps that were enqueued since the last call.
  std::optional<SwapMeasured> take_measured();
  void advance() { device_.advance(); }

  /// Makes a step that runs tokens of the request at or after `position` kill the worker.
  void poison(RequestId request, std::int32_t position) { poisoned_[request] = position; }
  /// Kills the worker, by a crash of its own or from outside. Its enqueued steps still end; its mail is lost.
  void kill_worker(bool crashes);
  /// Whether a worker has crashed since the last replacement.
  bool has_crashed() const { return has_crashed_; }
  /// Kills the cache engine. The worker is not informed.
  void kill_cache_engine();
  bool is_broken() const { return !worker_lives_ || !cache_engine_lives_; }
  /// Replaces the dead actors. Returns whether the cache engine was one of them: then the pools are empty, and the
  /// worker was ended as well.
  bool replace();

  /// Notes that the request may read what failed steps have left: it was admitted with blocks that were still to be
  /// computed.
  void note_awaiting(RequestId request) { awaiting_.insert(request); }

  std::int64_t num_failed_steps() const { return num_failed_steps_; }
  std::int64_t num_misled() const { return device_.num_misled(); }
  std::uint64_t digest() const { return device_.digest(); }  ///< see FakeDevice::digest
  std::optional<std::string> error() const { return error_ ? error_ : device_.error(); }

  TimeUs now = 0;

 private:
  struct Row {
    SequenceId sequence = 0;
    std::int32_t index = 0;
    SharedSpec spec;
    TokenIds tokens;
    bool failed = false;    ///< whether its samples mean nothing from now on
    bool fresh = true;      ///< whether it has not run yet
    bool unmasked = false;  ///< whether its last sample had no mask: its last token may run again
    std::optional<std::int32_t> num_drafted = {};  ///< number of tokens that the draft model has read; nothing: unknown
  };
  struct CacheReady {
    StepId step = 0;
  };
  struct CacheConnected {
    StepId last_plan = 0;
  };
  struct ConnectCache {
    StepId first_step = 0;
  };
  struct StepEnqueued {
    StepId step = 0;
  };
  struct ConnectWorker {};

  template <class Message>
  void tell_worker(Message message);
  template <class Message>
  void tell_cache_engine(Message message) {
    if (cache_engine_lives_) cache_mail_.emplace_back(std::move(message));
  }
  /// With stages: runs the step on the first one.
  void run_first_stage(const ExecuteStep& step);
  void enqueue_steps();
  void enqueue_plans();
  void enqueue(const ExecuteStep& step, StepId last_plan);
  void sample(const ExecuteStep& step, const StepMasks& masks);
  bool apply_rows(const ExecuteStep& step);
  /// Lets the draft model read tokens of a row, and make its drafts.
  void run_draft_model(const RowWork& work, Row& row);
  /// Returns the tokens that a sequence of the request may sample after its tokens, as StepMasks should have them;
  /// nothing: any token.
  static std::optional<std::vector<std::uint32_t>> right_mask(const RequestSpec& spec, const TokenIds& tokens);
  void run_row(const RowWork& work, StepResult& result, std::vector<FakeRow>& fake_rows);
  void spoil(StepResult& result) const;
  bool draws_failure();
  void fail(std::string what) {
    if (!error_) error_ = std::move(what);
  }

  SimulationConfig config_;
  const SimulatedModel& model_;
  std::mt19937_64 random_;
  FindRequest find_request_;
  journal::SharedJournal journal_;
  FakeDevice device_;

  // the worker
  bool worker_lives_ = true;
  std::deque<std::variant<ExecuteStep, StepMasks, CacheReady, CacheConnected>> worker_mail_;
  std::unique_ptr<journal::RecordedStepOrder> step_order_;
  std::map<StepId, ExecuteStep> steps_;
  std::map<StepId, StepMasks> masks_;
  StepId connected_to_ = 0;
  std::unordered_map<RowId, Row> rows_;
  std::unordered_set<SequenceId> outlived_;  ///< sequences that had rows on workers before this one
  std::deque<StepResult> running_;
  /// The tokens of the rows of the first stage, which gets no samples; and the tokens that it ran, by step and work.
  /// Only with stages; all else here is the last stage.
  std::unordered_map<RowId, TokenIds> rows_of_first_stage_;
  std::map<StepId, std::vector<TokenIds>> ran_on_first_stage_;
  std::optional<StepResult> unsampled_;   ///< result of the step that has run and waits for its masks
  std::vector<TokenIds> tokens_of_rows_;  ///< tokens of each work of that step, before its samples, with drafts

  // the cache engine
  bool cache_engine_lives_ = true;
  std::deque<std::variant<CachePlan, ConnectCache, StepEnqueued, ConnectWorker>> cache_mail_;
  std::unique_ptr<journal::RecordedCacheOrder> cache_order_;
  std::map<StepId, CachePlan> plans_;
  std::set<StepId> step_events_;
  std::int64_t num_swapped_ = 0;
  std::int64_t num_failed_steps_ = 0;

  std::set<RequestId> awaiting_;
  std::map<RequestId, std::int32_t> poisoned_;  ///< position at which the request kills the worker
  bool has_crashed_ = false;
  std::set<StepId> deadly_;  ///< steps that run such a token
  std::optional<std::string> error_;
};

}  // namespace pagoda::test
