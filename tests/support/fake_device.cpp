#include "tests/support/fake_device.hpp"

#include <algorithm>
#include <utility>

namespace pagoda::test {

namespace {

constexpr Mark kGarbage = 0xdeadU;

Mark mix(Mark value) {
  value ^= value >> 31;
  value *= 0x9e3779b97f4a7c15U;
  value ^= value >> 29;
  value *= 0xbf58476d1ce4e5b9U;
  return value ^ value >> 32;
}

/// Returns the mark that a KV group has for a token: no group may read the KV of another.
Mark mark_in(KvGroupId kv_group, Mark mark) {
  return mark + static_cast<Mark>(kv_group);
}

}  // namespace

Mark root_mark(std::string_view salt, std::uint64_t adapter) {
  Mark mark = mix(adapter + 1);
  for (const char c : salt) mark = mix(mark + static_cast<unsigned char>(c));
  return mark;
}

Mark next_mark(Mark previous, TokenId token) {
  return mix(previous * 31 + static_cast<std::uint32_t>(token) + 7);
}

FakeDevice::FakeDevice(const memory::BlockSpaceConfig& config, Timing timing, std::uint64_t seed)
    : config_(config),
      layout_(config.layout),
      timing_(timing),
      random_(seed),
      device_(static_cast<std::size_t>(config.num_device_blocks),
              std::vector<Mark>(static_cast<std::size_t>(config.layout.block_size()), 0)),
      host_(static_cast<std::size_t>(config.num_host_blocks),
            std::vector<Mark>(static_cast<std::size_t>(config.layout.block_size()), 0)) {}

void FakeDevice::add_to_digest(std::int64_t value) {
  digest_ = mix(digest_ * 31 + static_cast<std::uint64_t>(value));
}

void FakeDevice::fail(std::string what) {
  if (!error_) error_ = std::move(what);
}

void FakeDevice::check_moves(const CachePlan& plan) {
  std::set<BlockId> out_to, in_from, in_to, copy_to;
  const auto check = [&](const BlockMove& move, bool is_new) {
    const std::string name = "the move " + std::to_string(move.from) + " -> " + std::to_string(move.to);
    if (!is_new) fail(name + " of step " + std::to_string(plan.step) + " is not one to one");
    if (move.last_touched_step >= plan.step) fail(name + " waits for the step that waits for it");
  };
  // Two groups may share a cached block; if both are swapped out, the block moves to two places.
  for (const BlockMove& move : plan.swap_out) check(move, out_to.insert(move.to).second);
  for (const BlockMove& move : plan.swap_in)
    check(move, static_cast<bool>(in_from.insert(move.from).second & in_to.insert(move.to).second));
  for (const BlockMove& move : plan.copies) check(move, copy_to.insert(move.to).second && !in_to.contains(move.to));
}

void FakeDevice::apply_delta(const TableDelta& delta, const MemoryGrant& plan) {
  auto& tables = tables_[delta.sequence];
  tables.resize(layout_.groups.size());
  if (delta.kv_group < 0 || delta.kv_group >= layout_.num_groups()) return fail("a delta names no KV group");
  std::vector<BlockId>& table = tables[static_cast<std::size_t>(delta.kv_group)];
  if (delta.first_block > std::ssize(table))
    return fail("the delta of sequence " + std::to_string(delta.sequence) + " leaves a gap in its table");
  table.resize(static_cast<std::size_t>(delta.first_block));
  const auto first = plan.blocks.begin() + delta.blocks.first;
  table.insert(table.end(), first, first + delta.blocks.count);
  add_to_digest(static_cast<std::int64_t>(delta.sequence));
  std::for_each(first, first + delta.blocks.count, [this](BlockId block) { add_to_digest(block); });
  for (const BlockId block : table)
    if (block < 0 || block >= config_.num_device_blocks) fail("a table holds an id outside the pool");
}

void FakeDevice::submit(const memory::GrantedStep& planned, std::vector<FakeRow> rows) {
  enqueue_operations(planned.cache_plan, [](const BlockMove& move) { return move.last_touched_step; });
  enqueue_step(planned.grant, planned.grant.step, std::move(rows));
}

void FakeDevice::enqueue_plan(const CachePlan& plan, StepId after) {
  enqueue_operations(plan, [after](const BlockMove&) { return after; });
}

template <class After>
void FakeDevice::enqueue_operations(const CachePlan& plan, After after) {
  check_moves(plan);
  const auto enqueue = [&](Kind kind, const std::vector<BlockMove>& moves) {
    for (const BlockMove& move : moves) {
      operations_.push_back({plan.step, kind, move, after(move)});
      for (const std::int64_t value : {static_cast<std::int64_t>(plan.step), static_cast<std::int64_t>(kind),
                                       std::int64_t{move.from}, std::int64_t{move.to}}) {
        add_to_digest(value);
      }
    }
  };
  enqueue(Kind::swap_out, plan.swap_out);
  enqueue(Kind::swap_in, plan.swap_in);
  enqueue(Kind::copy, plan.copies);
}

void FakeDevice::enqueue_step(const MemoryGrant& plan, StepId last_plan, std::vector<FakeRow> rows) {
  for (const TableDelta& delta : plan.table_deltas) apply_delta(delta, plan);
  Step queued{plan.step, last_plan, {}};
  for (FakeRow& row : rows) {
    add_to_digest(static_cast<std::int64_t>(row.sequence));
    add_to_digest(row.num_computed_tokens);
    add_to_digest(std::ssize(row.marks));
    auto tables = tables_[row.sequence];
    tables.resize(layout_.groups.size());
    const auto is_short = [&](const auto& table) {
      return std::ssize(table) * layout_.block_size() < std::ssize(row.marks);
    };
    if (std::ranges::any_of(tables, is_short)) {
      fail("a table of sequence " + std::to_string(row.sequence) + " is too short for its tokens");
      continue;
    }
    queued.rows.push_back(Row{std::move(row), std::move(tables)});
  }
  steps_.push_back(std::move(queued));
  advance();
}

bool FakeDevice::may_run_operation() const {
  return !operations_.empty() && operations_.front().after <= last_run_;
}

bool FakeDevice::may_run_step() const {
  return !steps_.empty() && (operations_.empty() || operations_.front().step > steps_.front().last_plan);
}

void FakeDevice::run_operation() {
  const auto [step, kind, move, after] = operations_.front();
  operations_.pop_front();
  const Pool& from = kind == Kind::swap_in ? host_ : device_;
  Pool& to = kind == Kind::swap_out ? host_ : device_;
  to[static_cast<std::size_t>(move.to)] = from[static_cast<std::size_t>(move.from)];
}

Mark& FakeDevice::slot(const Row& row, KvGroupId kv_group, std::int32_t position) {
  const auto& table = row.tables[static_cast<std::size_t>(kv_group)];
  const BlockId block = table[static_cast<std::size_t>(position / layout_.block_size())];
  return device_[static_cast<std::size_t>(block)][static_cast<std::size_t>(position % layout_.block_size())];
}

void FakeDevice::write(const Row& row, StepId step) {
  if (row.wanted.fresh) failed_.erase(row.wanted.sequence);
  if (row.wanted.fails) failed_.emplace(row.wanted.sequence, step);
  const bool is_garbage = failed_.contains(row.wanted.sequence);
  for (KvGroupId group = 0; group < layout_.num_groups(); ++group) {
    for (auto i = row.wanted.num_computed_tokens; i < std::ssize(row.wanted.marks); ++i)
      slot(row, group, i) = is_garbage ? kGarbage : mark_in(group, row.wanted.marks[static_cast<std::size_t>(i)]);
  }
}

bool FakeDevice::verify(const Row& row, StepId step) {
  if (failed_.contains(row.wanted.sequence)) return false;
  for (KvGroupId group = 0; group < layout_.num_groups(); ++group)
    if (verify(row, step, group)) return true;
  return false;
}

bool FakeDevice::verify(const Row& row, StepId step, KvGroupId kv_group) {
  const KvGroup& kv = layout_[kv_group];
  const std::int32_t first = kv.has_window() ? std::max(0, row.wanted.num_computed_tokens - kv.window + 1) : 0;
  for (std::int32_t i = first; i < std::ssize(row.wanted.marks); ++i) {
    const Mark seen = slot(row, kv_group, i);
    if (seen == mark_in(kv_group, row.wanted.marks[static_cast<std::size_t>(i)])) continue;
    if (seen == kGarbage && row.wanted.awaits) {
      failed_.emplace(row.wanted.sequence, step);
      ++num_misled_;
      return true;
    }
    fail("step " + std::to_string(step) + ": sequence " + std::to_string(row.wanted.sequence) +
         " does not see its own token at position " + std::to_string(i) + " of KV group " + std::to_string(kv_group));
    return false;
  }
  return false;
}

void FakeDevice::run_step() {
  Step step = std::move(steps_.front());
  steps_.pop_front();
  for (Row& row : step.rows) {
    write(row, step.step);
    row.wanted.fresh = false;
  }
  // A row that has read garbage has written garbage, which other rows may have read.
  for (bool again = true; again;) {
    again = false;
    for (const Row& row : step.rows) {
      if (!verify(row, step.step)) continue;
      write(row, step.step);
      again = true;
    }
  }
  last_run_ = step.step;
}

void FakeDevice::advance() {
  for (;;) {
    const bool operation = may_run_operation();
    const bool step = may_run_step();
    if (timing_ == Timing::operations_first) {
      if (!operation) return;
      run_operation();
    } else if (timing_ == Timing::steps_first) {
      if (!step) return;
      run_step();
    } else {
      if ((!operation && !step) || random_() % 4 == 0) return;
      if (operation && (!step || random_() % 2 == 0)) {
        run_operation();
      } else {
        run_step();
      }
    }
  }
}

void FakeDevice::complete(StepId step) {
  advance();
  while (last_run_ < step && !steps_.empty()) {
    if (may_run_step()) {
      run_step();
    } else if (may_run_operation()) {
      run_operation();
    } else {
      return fail("step " + std::to_string(step) + " cannot run: an operation waits for a step behind it");
    }
    advance();
  }
}

void FakeDevice::synchronize() {
  while (!operations_.empty() || !steps_.empty()) {
    if (may_run_step()) {
      run_step();
    } else if (may_run_operation()) {
      run_operation();
    } else {
      return fail("an operation and a step wait for each other");
    }
  }
}

void FakeDevice::lose_memory() {
  for (Pool* pool : {&device_, &host_}) {
    for (std::vector<Mark>& block : *pool) std::ranges::fill(block, kGarbage);
  }
  tables_.clear();
  failed_.clear();
}

}  // namespace pagoda::test
