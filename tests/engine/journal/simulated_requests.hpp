#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "engine/journal/recorded_output.hpp"
#include "engine/journal/recorded_router.hpp"

namespace pagoda::test {

/// The tokenizer of the demo model.
std::shared_ptr<const text::Tokenizer> demo_tokenizer();

/// Simulates clients, a tokenizer and an engine around a router and an output core, all driven by a seed. Inputs and
/// effects of the two cores are recorded.
class SimulatedRequests {
 public:
  SimulatedRequests(std::uint64_t seed, const journal::SharedJournal& journal);

  /// Runs events, and then a drain, which ends all live requests.
  void run(int num_events);
  /// Continues requests that another run has left, beyond the limits of the queue. Call before anything else. Returns
  /// false if the router refuses a request, or if the request does not reach its old progress.
  bool recover(const std::vector<output::OutputCore::Resumable>& requests);
  /// Returns the resumable requests before the drain.
  const std::vector<output::OutputCore::Resumable>& left() const { return left_; }

  std::int64_t num_ended() const { return num_ended_; }
  std::int64_t num_stop_hits() const { return num_stop_hits_; }
  std::int64_t num_refused() const { return num_refused_; }
  std::int64_t num_expired() const { return num_expired_; }    ///< number that expired in the engine
  std::int64_t num_acquired() const { return num_acquired_; }  ///< number of adapters that requests got
  /// Returns the number of requests that hold each adapter; none after a run.
  const std::map<AdapterId, std::int64_t>& held_adapters() const { return held_adapters_; }

 private:
  using Effects = routing::RouterCore::Effects;

  std::uint64_t below(std::uint64_t count) { return random_() % count; }
  bool one_in(std::uint64_t count) { return below(count) == 0; }
  TokenIds some_tokens(std::size_t count);
  GenerateRequest some_request();
  routing::WorkDone some_work();
  void submit();
  void run_tokenizer();
  void run_adapter_store();
  void run_step();
  void apply(const Effects& effects);

  std::mt19937_64 random_;
  journal::SharedJournal journal_;
  journal::RecordedRouter router_;
  journal::RecordedOutput output_;
  TimeUs now_ = 1000;
  StepId step_ = 0;
  std::map<routing::JobId, RequestId> texts_;  ///< texts that the tokenizer encodes for requests
  std::vector<routing::JobId> at_tokenizer_;   ///< in the order in which they were sent
  /// Questions to the adapter store. Some are answered although they are taken back: the messages crossed.
  std::vector<std::pair<RequestId, std::string>> at_adapter_store_;
  std::map<AdapterId, std::int64_t> held_adapters_;
  std::map<RequestId, SharedSpec> inside_;       ///< requests in the engine
  std::map<RequestId, std::int64_t> num_steps_;  ///< number of steps of these requests
  std::vector<output::OutputCore::Resumable> left_;
  std::int64_t num_ended_ = 0;
  std::int64_t num_stop_hits_ = 0;
  std::int64_t num_refused_ = 0;
  std::int64_t num_expired_ = 0;
  std::int64_t num_acquired_ = 0;
};

}  // namespace pagoda::test
