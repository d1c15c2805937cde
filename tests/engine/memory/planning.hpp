#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/memory/block_space_manager.hpp"

namespace pagoda::memory {

/// Builds a MemoryRequest with short calls.
struct Step : MemoryRequest {
  Step& wait_for(StepId completed) {
    last_completed_step = completed;
    return *this;
  }
  Step& fork_from(SequenceId parent, SequenceId child) {
    forks.push_back({parent, child});
    return *this;
  }
  Step& sample(SequenceId sequence, TokenId token) {
    sampled.push_back({sequence, token});
    return *this;
  }
  Step& mark_computed(SequenceId sequence, std::int32_t num_computed) {
    progress.push_back({sequence, num_computed});
    return *this;
  }
  Step& release(SequenceId sequence) {
    releases.push_back(sequence);
    return *this;
  }
  Range add_needs(std::initializer_list<SequenceNeed> list) {
    const Range range{static_cast<std::int32_t>(needs.size()), static_cast<std::int32_t>(list.size())};
    needs.insert(needs.end(), list);
    return range;
  }
  Step& run(RequestId group, std::initializer_list<SequenceNeed> list,
            PreemptionMode mode = PreemptionMode::recompute) {
    running.push_back({group, add_needs(list), mode});
    return *this;
  }
  Step& swap_in(RequestId group, std::initializer_list<SequenceNeed> list) {
    swapped.push_back({group, add_needs(list)});
    return *this;
  }
  /// Offers a candidate. Group and sequence share the id.
  AdmissionCandidate& offer(SequenceId id, TokenIds tokens) {
    AdmissionCandidate& candidate = waiting.emplace_back();
    candidate.group = id;
    candidate.sequence = id;
    candidate.tokens = std::make_shared<const TokenIds>(std::move(tokens));
    return candidate;
  }
  Step& admit_group(SequenceId id, TokenIds tokens) {
    offer(id, std::move(tokens));
    return *this;
  }
};

/// Returns `length` tokens: first, first + 1, ...
inline TokenIds count_from(TokenId first, std::int32_t length) {
  TokenIds tokens;
  for (std::int32_t i = 0; i < length; ++i) tokens.push_back(first + i);
  return tokens;
}

/// A manager whose plans are all checked, and the workers' knowledge of its tables.
class Planning {
 public:
  explicit Planning(const BlockSpaceConfig& config) : manager_(config) {}

  /// Returns the next step, with unlimited budgets and all earlier steps completed.
  Step step() {
    Step step;
    step.step = ++last_step_;
    step.last_completed_step = last_step_ - 1;
    step.token_budget = 1000;
    return step;
  }

  GrantedStep plan(const MemoryRequest& request) {
    GrantedStep planned = manager_.plan(request);
    EXPECT_EQ(manager_.check_invariants().value_or(""), "");
    for (const TableDelta& delta : planned.grant.table_deltas) {
      std::vector<BlockId>& table = tables_[{delta.sequence, delta.kv_group}];
      EXPECT_LE(delta.first_block, std::ssize(table)) << "a gap in the table of " << delta.sequence;
      table.resize(static_cast<std::size_t>(delta.first_block));
      const auto first = planned.grant.blocks.begin() + delta.blocks.first;
      table.insert(table.end(), first, first + delta.blocks.count);
    }
    return planned;
  }

  const std::vector<BlockId>& table(SequenceId sequence, KvGroupId kv_group = 0) {
    return tables_[{sequence, kv_group}];
  }
  MemoryStats stats() const { return manager_.stats(); }
  view::BlockMap block_map() const { return manager_.block_map(); }
  std::int32_t num_owned() const {
    return stats().device_blocks_total - stats().device_blocks_free - stats().device_blocks_cached;
  }

 private:
  BlockSpaceManager manager_;
  StepId last_step_ = 0;
  std::map<std::pair<SequenceId, KvGroupId>, std::vector<BlockId>> tables_;
};

/// Returns 10 device and 10 host blocks of 4 slots, without watermark.
inline BlockSpaceConfig small_pool(std::int32_t num_device_blocks = 10, std::int32_t num_host_blocks = 10) {
  BlockSpaceConfig config;
  config.layout = KvLayout::uniform(4);
  config.num_device_blocks = num_device_blocks;
  config.num_host_blocks = num_host_blocks;
  config.watermark = 0.0;
  return config;
}

}  // namespace pagoda::memory
