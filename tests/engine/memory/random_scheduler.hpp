#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "engine/memory/block_space_manager.hpp"
#include "tests/support/fake_device.hpp"

namespace pagoda::test {

/// A random scheduler that does anything the contract of MemoryRequest allows, and knows nothing of blocks: its model
/// is a map from each sequence to its tokens. A fake device checks that every row that runs sees exactly these tokens.
class RandomScheduler {
 public:
  explicit RandomScheduler(std::uint64_t seed);

  /// Plans and checks `num_steps` steps, then ends everything. Returns the first error, or nothing.
  std::optional<std::string> run(int num_steps);

  /// Called before and after each plan, if set.
  std::function<void(const memory::BlockSpaceManager&, const memory::BlockSpaceConfig&)> before_plan;
  std::function<void(const MemoryRequest&, const memory::GrantedStep&)> on_planned;
  /// Called with the events of each plan, if set before run(). Then the cache is also reset now and then, and device
  /// memory lost.
  std::function<void(const memory::KvEventBatch&, const memory::BlockSpaceManager&, const memory::BlockSpaceConfig&)>
      on_events;

  /// Returns the number of candidates, forks, tokens, reports and releases that were sent.
  std::int64_t num_commands() const { return num_commands_; }
  std::string description() const;

  struct Coverage {
    std::int64_t admissions = 0, cached_admissions = 0, chunks = 0, forks = 0, copies = 0, recomputes = 0,
                 swap_outs = 0, swap_ins = 0, nevers = 0, failures = 0, stamps = 0, early_shares = 0,
                 misled_readers = 0;
  };
  const Coverage& coverage() const { return coverage_; }

 private:
  enum class Place : std::uint8_t { waiting, running, swapped, gone };

  struct Tokens {
    SequenceId id = 0;
    RequestId group = 0;
    Place place = Place::waiting;
    TokenIds tokens;               ///< including the tokens that a step in flight will sample
    std::int32_t num_known = 0;    ///< number of tokens of the prompt and of completed steps
    std::int32_t num_told = 0;     ///< number of these tokens that were sent to the block manager
    std::int32_t num_planned = 0;  ///< number of tokens run by planned steps
    std::int32_t num_flights = 0;  ///< number of rows in flight
    std::string salt;
    std::uint64_t adapter = 0;
    StepId awaits_step = 0;  ///< the last step that computes a block with which it was admitted
    bool is_doomed = false;  ///< whether its group ran in a step that will fail
  };

  struct Flight {
    SequenceId sequence = 0;
    std::int32_t num_planned = 0;
    bool samples = false;
    bool fails = false;
  };
  struct StepInFlight {
    StepId step = 0;
    std::vector<Flight> rows;
  };

  int pick(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  bool chance(int percent) { return pick(1, 100) <= percent; }
  void fail(const std::string& what);

  TokenId random_token() { return pick(0, 2); }
  void add_request();
  void complete_oldest(MemoryRequest& request);
  void end_group(RequestId group, MemoryRequest& request);
  void end_some(MemoryRequest& request);
  /// Ends everything, because the device has lost its memory.
  void lose_memory(MemoryRequest& request);
  void fork_some(MemoryRequest& request);
  SequenceNeed need_for(const Tokens& sequence);
  std::vector<RequestId> groups_at(Place place) const;
  Range add_needs(RequestId group, Place place, MemoryRequest& request);
  void offer_candidates(MemoryRequest& request);

  void take_answer(const MemoryRequest& request, const memory::GrantedStep& planned);
  void take_running(const MemoryRequest& request, const MemoryGrant& plan, std::vector<FakeRow>& rows);
  void take_waiting(const MemoryRequest& request, const MemoryGrant& plan, std::vector<FakeRow>& rows);
  void check_first(const MemoryRequest& request, const MemoryGrant& plan);
  /// Returns the most blocks that a row of a single sequence can take: all of the sequence, and one for a copy, in each
  /// KV group.
  int most_blocks(const SequenceNeed& need) const;
  void check_order(const MemoryRequest& request, const MemoryGrant& plan);
  void check_budgets(const MemoryRequest& request, const std::vector<FakeRow>& rows);
  void run_row(Tokens& sequence, const SequenceNeed& need, std::vector<FakeRow>& rows);
  void set_back(RequestId group);
  void count(const memory::GrantedStep& planned);
  void plan_step(bool drain);
  void check_at_rest();

  int block_size() const { return config_.layout.block_size(); }
  bool has_window() const { return config_.layout.has_window(); }

  std::mt19937_64 random_;
  memory::BlockSpaceConfig config_;
  int depth_ = 1;
  Timing timing_ = Timing::random;
  std::optional<memory::BlockSpaceManager> manager_;
  std::optional<FakeDevice> device_;

  std::vector<TokenIds> stems_;  ///< beginnings that prompts share
  std::map<SequenceId, Tokens> sequences_;
  std::vector<RequestId> doomed_;  ///< groups to end, because one of their steps has failed
  std::deque<StepInFlight> in_flight_;
  StepId step_ = 0;
  StepId last_completed_ = 0;
  std::uint64_t next_id_ = 1;
  std::int64_t num_commands_ = 0;
  Coverage coverage_;
  std::optional<std::string> error_;
};

}  // namespace pagoda::test
