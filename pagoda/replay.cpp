#include "pagoda/replay.hpp"

#include <memory>
#include <span>
#include <utility>

#include "engine/grammar/grammar_cache.hpp"
#include "io/config_file.hpp"
#include "pagoda/engine_configs.hpp"
#include "pagoda/engine_plan.hpp"

namespace pagoda {
namespace {

using Segments = std::span<const io::JournalContents::Segment>;

/// Passes every record to the replay. Calls `visit` after each record, and stops when it returns false.
void run(Segments segments, journal::Replay& replay, const StartProgress& progress,
         const std::function<bool()>& visit) {
  constexpr std::size_t kRecordsPerReport = 1000;
  std::size_t num_records = 0;
  for (const auto& segment : segments) num_records += segment.records.size();
  std::size_t done = 0;
  for (const auto& segment : segments) {
    replay.begin_segment(segment.number, segment.follows_gap);
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

/// Returns the last segments without a gap between them.
Segments last_in_a_row(const io::JournalContents& journal) {
  std::size_t first = journal.segments.empty() ? 0 : journal.segments.size() - 1;
  while (first > 0 && !journal.segments[first].follows_gap) --first;
  return Segments(journal.segments).subspan(first);
}

/// Refuses the journal of an engine of several replicas or ranks: its steps ran on several devices.
Status check_one_device(Segments segments) {
  for (const auto& segment : segments) {
    for (const auto& record : segment.records) {
      const auto header = journal::read_header(record);
      if (!header || (header->core.replica == 0 && header->core.rank == 0)) continue;
      return fail(ErrorCode::bad_file, "the journal has the steps of several devices (" + to_string(header->core) +
                                           "), which --execute cannot execute; replay it without --execute");
    }
  }
  return {};
}

/// Returns the engine's configuration from a journal, adapted to the model that executes it.
Result<EngineConfig> config_of(const std::string& setup, const ExecuteOptions& options) {
  auto config = io::parse_engine_config(setup, "the journal's configuration");
  if (!config) return config;
  if (!config->journal_tokens) {
    return fail(ErrorCode::bad_file, "the journal has no tokens (journal_tokens was off): nothing can be executed");
  }
  if (config->num_ranks() > 1) {
    return fail(ErrorCode::bad_file, "the journal has the steps of " + std::to_string(config->num_ranks()) +
                                         " ranks, which --execute cannot execute; replay it without --execute");
  }
  *config = config->with_one_device();
  config->model = options.model;
  config->packed_cache = "off";  // a folder of the machine that wrote the journal
  if (!options.device.empty()) config->device = options.device;
  if (options.threads >= 0) config->threads = options.threads;
  return config;
}

/// Compiles the grammars of a journal's requests for the model.
class JournalGrammars {
 public:
  /// Compiles a grammar. Returns null on failure, with the reason in `status`.
  grammar::SharedGrammar compile(const StructuredOutput& constraint, const Result<EngineConfig>& config,
                                 Status& status) {
    if (!compiler_) {
      if (Status prepared = prepare(config); !prepared) {
        status = std::move(prepared);
        return nullptr;
      }
    }
    if (auto known = cache_.find(constraint)) return known;
    auto compiled = compiler_->compile(constraint);
    if (compiled) {
      cache_.keep(constraint, *compiled);
      return *compiled;
    }
    status = fail(std::move(compiled.error()));
    return nullptr;
  }

 private:
  Status prepare(const Result<EngineConfig>& config) {
    if (!config) return fail(config.error());
    const auto device = create_device(*config);
    if (!device) return fail(device.error());
    const auto plan = plan_engine(*config, **device);
    if (!plan) return fail(plan.error());
    const auto tokenizer = plan->files->tokenizer();
    if (!tokenizer) return fail(tokenizer.error());
    const auto dialect = answer_dialect(*config, *plan);
    if (!dialect) return fail(dialect.error());
    auto compiler = grammar::Compiler::create(**tokenizer, grammar_config(*plan, **tokenizer, *dialect));
    if (!compiler) return fail(std::move(compiler.error()));
    compiler_ = std::move(*compiler);
    return {};
  }

  std::unique_ptr<grammar::Compiler> compiler_;
  grammar::GrammarCache cache_;
};

}  // namespace

journal::ReplayReport replay_journal(const io::JournalContents& journal,
                                     std::shared_ptr<const text::Tokenizer> tokenizer, const StartProgress& progress) {
  journal::Replay replay({}, std::move(tokenizer));
  run(journal.segments, replay, progress, [] { return true; });
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
  watcher.masks = [&](const StepMasks& masks) {
    if (execution) execution->masks(masks);
  };
  watcher.result = [&](const StepResult& result) {
    if (execution) execution->result(result);
  };
  watcher.device_replaced = [&](bool) {
    if (execution) status = execution->device_replaced();
  };
  JournalGrammars grammars;
  watcher.grammar = [&](const StructuredOutput& constraint) {
    return grammars.compile(constraint, config_of(setup, options), status);
  };
  journal::Replay replay(std::move(watcher));
  const auto begin = [&]() -> Status {
    auto config = config_of(setup, options);
    if (!config) return fail(config.error());
    const auto& cores = replay.replica(0);
    auto content = cores.block_manager->content();
    if (cores.scheduler_config.max_adapters > 0 && !content.cached.empty()) {
      return fail(
          ErrorCode::unsupported,
          "the beginning of the journal is lost, and its engine has adapters: it is not known which adapter the "
          "blocks of the prefix cache belong to, so nothing can be executed");
    }
    auto created = StepExecution::create(std::move(*config), cores.block_config, cores.scheduler_config,
                                         std::move(content), progress);
    if (!created) return fail(created.error());
    execution = std::move(*created);
    execution->begin(*cores.scheduler);
    return {};
  };
  // A core that differs from the record makes no steps to go on with.
  const auto goes_on = [&] {
    const bool may_begin = replay.replica(0).scheduler != nullptr && replay.replica(0).block_manager != nullptr;
    if (status && !execution && may_begin) status = begin();
    return status.has_value() && replay.report().differences.empty();
  };
  const Segments segments = last_in_a_row(journal);
  if (Status one = check_one_device(segments); !one) return fail(one.error());
  run(segments, replay, progress, goes_on);
  if (!status) return fail(status.error());
  if (!execution) return fail(ErrorCode::bad_file, "the journal has no steps to execute");
  return execution->report();
}

}  // namespace pagoda
