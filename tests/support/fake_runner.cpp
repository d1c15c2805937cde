#include "tests/support/fake_runner.hpp"

#include <chrono>
#include <thread>
#include <utility>

namespace pagoda::test {

TokenId fake_token(std::uint64_t seed, std::int32_t sequence_index, const TokenIds& tokens) {
  Mark mark = root_mark("", seed * 31 + static_cast<std::uint64_t>(sequence_index));
  for (const TokenId token : tokens) mark = next_mark(mark, token);
  return static_cast<TokenId>(mark % kFakeVocab);
}

void FakeRunner::check(bool is_right, const std::string& what) {
  if (is_right) return;
  const std::lock_guard lock(shared_->mutex);
  shared_->errors.push_back(what);
}

Mark& FakeRunner::slot(const Row& row, std::size_t position) {
  const auto block_size = static_cast<std::size_t>(memory_->block_bytes()) / sizeof(Mark);
  auto* marks = reinterpret_cast<Mark*>(memory_->device_base());
  return marks[static_cast<std::size_t>(row.table[position / block_size]) * block_size + position % block_size];
}

void FakeRunner::apply(const ExecuteStep& step) {
  for (const RowId row : step.rows_gone) check(rows_.erase(row) == 1, "a row goes that was not there");
  for (const NewRow& fresh : step.new_rows) {
    Row row{fresh.sequence, fresh.sequence_index, fresh.spec, *fresh.spec.prompt, {}};
    if (const AdapterRef& adapter = fresh.spec.adapter; adapter.id != 0) {
      const std::lock_guard lock(shared_->mutex);
      shared_->adapters[adapter.id] = {adapter.name, adapter.path};
    }
    row.tokens.insert(row.tokens.end(), fresh.tokens_so_far.begin(), fresh.tokens_so_far.end());
    check(rows_.emplace(fresh.row, std::move(row)).second, "a row comes that was there already");
  }
  for (const ForcedToken& forced : step.forced_tokens) {
    TokenIds& tokens = rows_.at(forced.row).tokens;
    tokens.resize(static_cast<std::size_t>(forced.position));
    tokens.push_back(forced.token);
  }
  for (const RowTableDelta& delta : step.table_deltas) {
    auto& table = rows_.at(delta.row).table;
    table.resize(static_cast<std::size_t>(delta.first_block));
    const auto first = step.blocks.begin() + delta.blocks.first;
    table.insert(table.end(), first, first + delta.blocks.count);
  }
}

void FakeRunner::write(const RowWork& work) {
  const Row& row = rows_.at(work.row);
  Mark mark = root_mark("", 0);
  for (std::size_t i = 0; i < static_cast<std::size_t>(work.end_position()); ++i) {
    mark = next_mark(mark, row.tokens.at(i));
    if (i >= static_cast<std::size_t>(work.first_position)) slot(row, i) = mark;
  }
}

void FakeRunner::run(const RowWork& work, StepResult& result) {
  Row& row = rows_.at(work.row);
  const auto end = static_cast<std::size_t>(work.end_position());
  check(row.sequence == work.sequence, "a row runs for another sequence");
  Mark mark = root_mark("", 0);
  bool sees_its_own = true;
  for (std::size_t i = 0; i < end; ++i) sees_its_own &= slot(row, i) == (mark = next_mark(mark, row.tokens[i]));
  check(sees_its_own, "step " + std::to_string(result.step) + ": a row does not see its own tokens");
  RowResult& told = result.rows.emplace_back(RowResult{work.sequence, work.end_position(), {}, {}});
  told.output = RowTokens{{static_cast<std::int32_t>(result.samples.size()), work.num_samples}};
  const TokenIds before = row.tokens;
  for (std::int32_t k = 0; k < work.num_samples; ++k) {
    const TokenId token = fake_token(row.spec.seed, work.num_samples > 1 ? k : row.index, before);
    result.samples.push_back({token, 0, 1, {}});
    if (k == 0 && row.spec.sampling.appends_samples) row.tokens.push_back(token);
  }
}

execution::IssuedStep FakeRunner::issue(kernels::Stream&, const ExecuteStep& step) {
  apply(step);
  std::this_thread::sleep_for(std::chrono::microseconds(shared_->step_us));
  StepResult result;
  result.step = step.step;
  for (const RowWork& work : step.work) write(work);  // all rows of a step are written before any is read
  for (const RowWork& work : step.work) run(work, result);
  ++shared_->num_steps.at(static_cast<std::size_t>(rank_));
  int failing = rank_;
  if (shared_->failing_rank.compare_exchange_strong(failing, -1)) {
    StepResult failed;
    failed.step = step.step;
    failed.error = Error{ErrorCode::internal, "rank " + std::to_string(rank_) + " could not run the step"};
    result = std::move(failed);
  }
  const std::lock_guard lock(mutex_);
  results_[step.step] = std::move(result);
  execution::IssuedStep issued;
  issued.step = step.step;
  return issued;
}

StepResult FakeRunner::collect(execution::IssuedStep issued) {
  const std::lock_guard lock(mutex_);
  return results_.extract(issued.step).mapped();
}

}  // namespace pagoda::test
