#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "engine/execution/kv_memory.hpp"
#include "engine/execution/step_runner.hpp"
#include "tests/support/fake_device.hpp"

namespace pagoda::test {

/// Returns the token that the fake model generates after `tokens`.
TokenId fake_token(std::uint64_t seed, std::int32_t sequence_index, const TokenIds& tokens);
inline constexpr TokenId kFakeVocab = 1000;

/// State that all runners share; it outlives each of them.
struct FakeRunners {
  std::mutex mutex;
  std::vector<std::string> errors;  ///< errors that the runners found
  /// Names and paths of the adapters that rows had, by id.
  std::map<AdapterId, std::pair<std::string, std::string>> adapters;
  std::atomic<int> step_us = 0;  ///< minimum duration of a step
  /// Rank whose next step fails as a whole; -1: none.
  std::atomic<int> failing_rank = -1;
  static constexpr std::size_t kMaxRanks = 4;
  std::array<std::atomic<std::int64_t>, kMaxRanks> num_steps{};  ///< number of steps that were issued, by rank
};

/// Runs steps without a model on a device that shares the host's memory: KV slots hold marks (FakeDevice), so that a
/// row that reads KV of another sequence is detected, and tokens are hashes of all tokens before them.
class FakeRunner final : public execution::StepRunner {
 public:
  /// A block of `memory` holds a mark for each of its slots. Every rank computes all rows.
  FakeRunner(std::shared_ptr<execution::KvMemory> memory, std::shared_ptr<FakeRunners> shared, RankId rank = 0)
      : memory_(std::move(memory)), shared_(std::move(shared)), rank_(rank) {}

  execution::IssuedStep issue(kernels::Stream& stream, const ExecuteStep& step) override;
  void sample(kernels::Stream&, const StepMasks&, execution::IssuedStep&) override {
    check(false, "masks come for a step that waits for none");
  }
  StepResult collect(execution::IssuedStep issued) override;

 private:
  struct Row {
    SequenceId sequence = 0;
    std::int32_t index = 0;
    RowSpec spec;
    TokenIds tokens;
    std::vector<BlockId> table;
  };

  void apply(const ExecuteStep& step);
  Mark& slot(const Row& row, std::size_t position);
  void write(const RowWork& work);
  void run(const RowWork& work, StepResult& result);
  void check(bool is_right, const std::string& what);

  std::shared_ptr<execution::KvMemory> memory_;
  std::shared_ptr<FakeRunners> shared_;
  RankId rank_;
  std::unordered_map<RowId, Row> rows_;
  std::mutex mutex_;
  std::map<StepId, StepResult> results_;
};

}  // namespace pagoda::test
