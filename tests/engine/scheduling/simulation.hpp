#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <variant>

#include "engine/journal/recorded_block_manager.hpp"
#include "engine/journal/recorded_scheduler.hpp"
#include "tests/engine/scheduling/simulated_device.hpp"
#include "tests/engine/scheduling/simulated_model.hpp"
#include "tests/engine/scheduling/simulation_config.hpp"

namespace pagoda::test {

/// Simulates the whole message flow of the engine over a simulated device. Each actor has a mailbox. A seed decides
/// which actor takes its next message, so any order occurs in which the actors of one process, or of two processes with
/// one connection, can get their messages. Every sequence has one right continuation, and blocks hold marks, so the
/// simulation finds a wrong table, copy, swap or reuse, and a step or a move that runs too early.
class Simulation {
 public:
  /// Records inputs and effects of the cores if there is a journal.
  Simulation(const SimulationConfig& config, std::uint64_t seed, const journal::SharedJournal& journal = nullptr);

  /// Runs to the end. Returns the first error, or nothing.
  std::optional<std::string> run();

  std::int64_t preemptions() const;
  std::int64_t failures() const { return scheduler_.core().stats().requests_failed_total; }
  std::int64_t crashes() const { return scheduler_.core().stats().worker_restarts_total; }
  std::int64_t stop_hits() const { return num_stop_hits_; }
  std::int64_t beams_completed() const { return beams_completed_; }
  std::int64_t prefix_hits() const { return scheduler_.core().stats().prefix_cache_hits_total; }
  /// Returns the largest number of steps that waited for masks together; with stages.
  std::int64_t most_steps_without_masks() const { return most_without_masks_; }
  /// Returns the number of masks that were late before it was the turn of their step; with stages.
  std::int64_t masks_late_early() const { return num_late_early_; }
  const metrics::StepMetrics& metrics() const { return scheduler_.core().metrics(); }
  std::int64_t early_shares() const { return num_early_shares_; }
  std::int64_t misled_readers() const { return device_.num_misled(); }
  /// Returns the number of swapped groups that let others in before them.
  std::int64_t overtaken_groups() const { return num_overtaken_; }
  /// Returns the number of groups that gave way to a more urgent one.
  std::int64_t giving_way() const { return num_giving_way_; }
  /// Returns how often a request was given up and given back.
  std::int64_t given_back() const { return num_given_back_; }
  /// Returns the number of requests that failed because they killed workers.
  std::int64_t poisons_found() const;
  /// Returns a digest of all steps and block moves: a change that decides nothing differently has the same.
  std::uint64_t digest() const { return device_.digest(); }

 private:
  struct DeviceReplaced {
    bool memory_lost = false;
    bool crashed = false;
  };
  struct CacheEngineReplaced {};
  struct Received {  ///< outputs of a request that the output processor has received
    SharedSpec spec;
    std::map<std::int32_t, TokenIds> tokens;
    std::map<std::int32_t, FinishReason> finished;
    std::set<std::int32_t> stopped;  ///< sequences ended by a stop string; later tokens are dropped
    TokenIds prompt_logprobs;        ///< the prompt tokens that were reported
    bool ended = false;
    bool aborted = false;
    bool is_poison = false;  ///< whether it kills the worker
  };

  SharedSpec request_of(const RowSpec& row);
  /// Returns what is wrong with the outputs of an ended request.
  std::optional<std::string> judge(const Received& received) const;
  void arrive();
  void add_request();
  /// Gives tokens to each of its sequences, some of which may have ended.
  void resume(RequestSpec& spec, Received& received) const;
  /// Takes a request from the scheduler, as if another replica should continue it.
  void give_up(RequestId request);
  /// Gives requests back, with the tokens that were received, when nothing that is under way has to do with them.
  void give_back();
  bool deliver_one();
  void after_scheduler_event();
  void check_head_is_offered(const MemoryRequest& plan);
  void check_swapped_have_tokens(const MemoryRequest& plan);
  /// With stages, checks that no step runs a sequence whose last sample is not known yet.
  void check_samples_are_known(const ExecuteStep& step);
  void run_block_manager();
  void run_scheduler();
  /// Forgets that samples of the request are unknown: they will not be used.
  void forget_samples_of(RequestId request);
  /// Continues making some mask, or makes masks late: all for which the next step waits, or, with stages, one that may
  /// be of a later step.
  void run_mask_job();
  void end_wait_for_masks();
  void make_late(SequenceId sequence);
  void replace_devices();
  void listen(const StepOutputs& outputs);
  void fail(std::string what) {
    if (!error_) error_ = std::move(what);
  }

  SimulationConfig config_;
  SimulatedModel model_;
  std::mt19937_64 random_;
  journal::RecordedScheduler scheduler_;
  journal::RecordedBlockManager blocks_;
  SimulatedDevice device_;
  std::int32_t arrived_ = 0;
  std::int64_t num_stop_hits_ = 0;
  TimeUs now_ = 0;
  std::deque<std::variant<MemoryRequest, CacheEngineReplaced>> block_manager_mail_;
  std::deque<std::variant<MemoryGrant, StepResult, DeviceReplaced>> scheduler_mail_;
  std::deque<StopHit> stops_;
  std::vector<scheduling::MaskJob> mask_jobs_;
  std::map<RequestId, Received> received_;
  std::map<RequestId, StepId> given_up_;  ///< with the last step that was planned before
  /// The sequences with a sample in flight that will be used, and the steps that sample; with stages.
  std::map<SequenceId, StepId> unknown_samples_;
  std::set<StepId> steps_without_masks_;  ///< the steps in flight that wait for masks; with stages
  std::int64_t most_without_masks_ = 0;
  std::int64_t num_late_early_ = 0;
  std::int64_t beams_completed_ = 0;
  std::int64_t num_early_shares_ = 0;
  std::int64_t num_overtaken_ = 0;
  std::int64_t num_giving_way_ = 0;
  std::int64_t num_given_back_ = 0;
  std::int64_t num_preempted_ = 0;  ///< as reported to requests; so is the next
  std::int64_t num_restarted_ = 0;
  std::int64_t num_drafts_ = 0;  ///< as reported to requests; so is the next
  std::int64_t num_accepted_ = 0;
  int plans_without_head_ = 0;
  std::optional<std::string> error_;
};

}  // namespace pagoda::test
