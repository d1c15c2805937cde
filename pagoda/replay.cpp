#include "pagoda/replay.hpp"

#include <memory>
#include <optional>
#include <utility>

#include "io/config_file.hpp"

namespace pagoda {
namespace {

/// Gives every record to the replay. `visit` is called behind each, and may end it with false.
void run(const io::JournalContents& journal, journal::Replay& replay, const StartProgress& progress,
         const std::function<bool()>& visit) {
  constexpr std::size_t kRecordsPerReport = 1000;
  std::size_t num_records = 0;
  for (const auto& segment : journal.segments) num_records += segment.records.size();
  std::size_t done = 0;
  for (const auto& segment : journal.segments) {
    replay.begin_segment(segment.number);
    for (const auto& record : segment.records) {
      replay.record(record);
      if (!visit()) return;
      if (++done % kRecordsPerReport == 0 && progress) {
        progress("replaying", static_cast<double>(done) / static_cast<double>(num_records));
      }
    }
  }
  if (progress) progress("replaying", 1);
}

}  // namespace

journal::ReplayReport replay_journal(const io::JournalContents& journal, const StartProgress& progress) {
  journal::Replay replay;
  run(journal, replay, progress, [] { return true; });
  return replay.report();
}

Result<ExecutionReport> execute_journal(const io::JournalContents& journal, const ExecuteOptions& options,
                                        const StartProgress& progress) {
  std::string setup;
  std::unique_ptr<StepExecution> execution;
  Status status;
  journal::ReplayWatcher watcher;
  watcher.setup = [&](const std::string& text) { setup = text; };
  watcher.cache_plan = [&](const CachePlan& plan) {
    if (execution) execution->cache_plan(plan);
  };
  watcher.step = [&](const ExecuteStep& step) {
    if (execution) execution->step(step);
  };
  watcher.result = [&](const StepResult& result) {
    if (execution) execution->result(result);
  };
  watcher.device_replaced = [&](bool) {
    if (execution) status = execution->device_replaced();
  };
  journal::Replay replay(std::move(watcher));
  const auto begin = [&]() -> Status {
    auto config = io::parse_engine_config(setup, "the journal's configuration");
    if (!config) return fail(config.error());
    if (!config->journal_tokens) {
      return fail(ErrorCode::bad_file, "the journal has no tokens (journal_tokens was off): nothing can be executed");
    }
    config->model = options.model;
    if (!options.device.empty()) config->device = options.device;
    if (options.threads >= 0) config->threads = options.threads;
    auto created = StepExecution::create(std::move(*config), replay.block_config(), replay.scheduler_config(),
                                         replay.block_manager()->content(), progress);
    if (!created) return fail(created.error());
    execution = std::move(*created);
    execution->begin(*replay.scheduler());
    return {};
  };
  // What a core did otherwise, or what is missing between two segments, has no steps to go on with.
  std::int64_t num_segments = 0;
  std::uint64_t first_segment = 0;
  const auto goes_on = [&] {
    if (!replay.report().differences.empty()) return false;
    if (replay.report().num_segments != num_segments) {
      num_segments = replay.report().num_segments;
      if (first_segment == 0) first_segment = replay.segment();
      if (replay.segment() != first_segment + static_cast<std::uint64_t>(num_segments) - 1) return false;
    }
    const bool may_begin = replay.scheduler() != nullptr && replay.block_manager() != nullptr;
    if (!execution && may_begin) status = begin();
    return status.has_value();
  };
  run(journal, replay, progress, goes_on);
  if (!status) return fail(status.error());
  if (!execution) return fail(ErrorCode::bad_file, "the journal has no steps to execute");
  return execution->report();
}

}  // namespace pagoda
