#pragma once

/// A device that has a model and a draft model, whose steps a test gives by hand.

#include <algorithm>
#include <cstdint>
#include <memory>
#include <ostream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/execution/step_inputs.hpp"
#include "pagoda/engine.hpp"
#include "pagoda/engine_parts.hpp"
#include "tests/pagoda/golden_model.hpp"
#include "tests/support/cuda_emulator/emulated_device.hpp"
#include "tests/support/instruction_sets.hpp"
#include "tests/support/split_memory_device.hpp"

namespace pagoda::test {

enum class Where { cpu, split_memory, emulated_cuda, recording_emulated_cuda };

inline void PrintTo(Where where, std::ostream* out) {
  constexpr const char* kNames[] = {"cpu", "split_memory", "emulated_cuda", "recording_emulated_cuda"};
  *out << kNames[static_cast<int>(where)];
}

/// Returns the configuration of an engine with a model, whose KV is float32, as in goldens.
inline EngineConfig drafting_config(const std::string& model, const std::string& speculation) {
  EngineConfig config;
  config.model = model;
  config.speculative_config.text = speculation;
  config.threads = 1;
  config.max_num_seqs = 16;
  config.max_num_batched_tokens = 512;
  config.block_size = 4;
  config.kv_cache_dtype = "float32";
  config.cpu_isa = exact_isa();
  return config;
}

/// Rows of a device, each with a prompt.
class DraftingRows {
 public:
  /// config: of drafting_config. `max_len`: maximum number of tokens of a row.
  DraftingRows(EngineConfig config, std::vector<TokenIds> prompts, std::int32_t max_len, Where where,
               double temperature = 0)
      : temperature_(temperature), prompts_(std::move(prompts)), known_(prompts_), num_computed_(prompts_.size()) {
    EngineSetup setup;
    if (where == Where::split_memory) {
      split_memory_ = std::make_shared<SplitMemoryDevice>(SplitMemoryDevice::Options{.isa = exact_isa()});
      setup.device = split_memory_;
    } else if (where != Where::cpu) {
      auto device = cuda_emulator::create_emulated_cuda_device();
      if (!device) throw std::runtime_error(device.error().message);
      setup.device = *device;
    }
    if (setup.device != nullptr) {
      config.device = "cuda";
      config.cpu_isa.clear();
      config.enforce_eager = where == Where::emulated_cuda;  // where recording takes long
    }
    const auto planned = plan_model(config);
    if (!planned) throw std::runtime_error(planned.error().message);
    num_groups_ = planned->layout.num_groups();
    blocks_of_row_ = max_len / config.block_size;
    config.num_device_blocks = 2 * num_blocks();
    config.num_host_blocks = num_blocks();
    auto parts = load_engine_parts(config, setup);
    if (!parts) throw std::runtime_error(parts.error().message);
    factory_ = std::move(parts->replicas.at(0).ranks.at(0));
    cache_ = factory_.make_cache_engine().value();
    auto worker = factory_.make_worker();
    if (!worker) throw std::runtime_error(worker.error().message);
    worker_ = std::move(*worker);
    for (BlockId block = 0; block < num_blocks(); ++block) blocks_.push_back(block);
  }
  ~DraftingRows() { worker_.stream->synchronize(); }

  /// The drafts of a row in a step, and the number of tokens that the draft model reads before, from the last.
  struct Drafts {
    std::int32_t count = 0;
    std::int32_t num_inputs = 0;
  };

  /// Runs the rows from where they are, with these drafts. Returns how many drafts of each were right.
  std::vector<std::int32_t> run(const std::vector<Drafts>& drafts) {
    ExecuteStep step;
    step.step = ++last_step_;
    for (std::int32_t row = 0; row < std::ssize(drafts); ++row) {
      const auto index = static_cast<std::size_t>(row);
      if (last_step_ == 1) add_row(row, step);
      if (has_moved_ || last_step_ == 1) add_tables(row, step);
      const std::int32_t num_known = this->num_known(index);
      RowWork work{row, static_cast<SequenceId>(row + 1), num_computed_[index]};
      work.num_tokens = num_known - num_computed_[index] + drafts[index].count;
      work.num_samples = 1;
      work.num_drafts = drafts[index].count;
      work.num_draft_inputs = drafts[index].num_inputs;
      work.first_draft_input = work.num_draft_inputs == 0 ? 0 : num_known - work.num_draft_inputs;
      step.work.push_back(work);
    }
    has_moved_ = false;
    step.forced_tokens = std::exchange(replaced_, {});
    made_.assign(drafts.size(), {});
    const StepResult result = execute(step);
    EXPECT_FALSE(result.error) << result.error->message;
    std::vector<std::int32_t> num_right;
    for (std::size_t row = 0; !result.error && row < drafts.size(); ++row) {
      EXPECT_EQ(result.rows[row].error(), nullptr);
      const Range samples = result.rows[row].samples();
      for (std::int32_t i = 0; i < samples.count; ++i) {
        known_[row].push_back(result.samples[static_cast<std::size_t>(samples.first + i)].token);
      }
      num_computed_[row] = num_known(row) - 1;
      EXPECT_EQ(result.rows[row].num_computed_tokens, num_computed_[row]);
      num_right.push_back(samples.count - 1);
    }
    return num_right;
  }

  /// Gives the row another last token, which no step has run.
  void replace_last(std::size_t row, TokenId token) {
    replaced_.push_back({static_cast<RowId>(row), num_known(row) - 1, token});
    known_[row].back() = token;
  }

  /// Gives a row the first blocks of another one, for tokens that both have. Call before the first step.
  void share_blocks(std::int32_t row, std::int32_t other, std::int32_t num_blocks) {
    for (std::int32_t group = 0; group < num_groups_; ++group) {
      const auto first_of = [&](std::int32_t its) {
        return blocks_.begin() + std::ptrdiff_t{its * num_groups_ + group} * blocks_of_row_;
      };
      std::copy_n(first_of(other), num_blocks, first_of(row));
    }
  }

  /// Moves all blocks to the host, from there to the other blocks of the device, and copies them back in another order.
  void move_blocks() {
    CachePlan plan;
    plan.step = ++last_step_;
    CachePlan copies;
    copies.step = ++last_step_;
    for (BlockId block = 0; block < num_blocks(); ++block) {
      plan.swap_out.push_back({block, block});
      plan.swap_in.push_back({block, num_blocks() + block});
      copies.copies.push_back({num_blocks() + block, num_blocks() - 1 - block});
    }
    worker_.stream->submit([&] {
      EXPECT_TRUE(cache_.memory->issue_swaps(*worker_.stream, plan));
      EXPECT_TRUE(cache_.memory->issue_copies(*worker_.stream, copies));
    });
    worker_.stream->synchronize();
    for (BlockId& block : blocks_) block = num_blocks() - 1 - block;
    has_moved_ = true;
  }

  /// On split memory, returns how many runs of models were replayed.
  int num_replays() const { return split_memory_ != nullptr ? split_memory_->num_replays() : 0; }
  std::int32_t num_known(std::size_t row) const { return static_cast<std::int32_t>(known_[row].size()); }
  /// Returns the prompt and the samples of a row.
  const TokenIds& known(std::size_t row) const { return known_[row]; }
  /// Returns the drafts of a row in the last step.
  const TokenIds& made(std::size_t row) const { return made_[row]; }

 private:
  void add_row(std::int32_t row, ExecuteStep& step) const {
    NewRow fresh;
    fresh.row = row;
    fresh.sequence = static_cast<SequenceId>(row + 1);
    fresh.spec.prompt = std::make_shared<const TokenIds>(prompts_[static_cast<std::size_t>(row)]);
    fresh.spec.sampling.temperature = temperature_;
    fresh.spec.seed = static_cast<std::uint64_t>(row);
    step.new_rows.push_back(fresh);
  }

  void add_tables(std::int32_t row, ExecuteStep& step) const {
    for (KvGroupId group = 0; group < num_groups_; ++group) {
      const auto first = static_cast<std::int32_t>(step.blocks.size());
      const auto begin = blocks_.begin() + std::ptrdiff_t{row * num_groups_ + group} * blocks_of_row_;
      step.blocks.insert(step.blocks.end(), begin, begin + blocks_of_row_);
      step.table_deltas.push_back({row, 0, {first, blocks_of_row_}, group});
    }
  }

  std::int32_t num_blocks() const { return static_cast<std::int32_t>(prompts_.size()) * blocks_of_row_ * num_groups_; }

  StepResult execute(const ExecuteStep& step) {
    execution::IssuedStep issued;
    worker_.stream->submit([&] { issued = worker_.runner->issue(*worker_.stream, step); });
    worker_.stream->synchronize();
    EXPECT_TRUE(worker_.stream->status()) << worker_.stream->status().error().message;
    read_made(step, issued);
    return worker_.runner->collect(std::move(issued));
  }

  void read_made(const ExecuteStep& step, const execution::IssuedStep& issued) {
    if (issued.error || issued.shape.num_drafts == 0) return;
    const execution::StepResults results(issued.memory->results(), issued.shape);
    std::int64_t next = 0;
    for (std::int32_t run = 0; next < issued.shape.num_drafts; ++run) {
      for (std::size_t row = 0; row < step.work.size(); ++row) {
        if (run < step.work[row].num_made_drafts()) made_[row].push_back(results.drafts[next++].token);
      }
    }
  }

  double temperature_;
  std::shared_ptr<SplitMemoryDevice> split_memory_;  ///< null on other devices
  std::int32_t num_groups_ = 0;
  std::int32_t blocks_of_row_ = 0;
  std::vector<BlockId> blocks_;  ///< of the rows and groups, blocks_of_row_ for each
  bool has_moved_ = false;       ///< whether blocks were moved since the last step
  actors::DeviceFactory factory_;
  actors::CacheParts cache_;
  actors::WorkerParts worker_;
  std::vector<TokenIds> prompts_;
  std::vector<TokenIds> known_;
  std::vector<TokenIds> made_;
  std::vector<std::int32_t> num_computed_;
  std::vector<ForcedToken> replaced_;
  StepId last_step_ = 0;
};

}  // namespace pagoda::test
