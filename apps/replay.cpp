#include "pagoda/replay.hpp"

#include <cinttypes>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include <nlohmann/json.hpp>

#include "apps/command.hpp"
#include "apps/flag_values.hpp"
#include "apps/flags.hpp"
#include "apps/progress.hpp"
#include "io/model_files/model_files.hpp"

namespace pagoda::apps {
namespace {

using nlohmann::ordered_json;

struct ReplayOptions {
  std::string file;
  bool execute = false;
  bool json = false;
  ExecuteOptions run;
};

std::string text_of(const journal::Difference& difference) {
  return "segment " + std::to_string(difference.segment) + ", record " + std::to_string(difference.record) + ": the " +
         journal::to_string(difference.core) + " " + difference.what;
}

/// Returns a message about records that were not replayed; empty: all were.
std::string not_replayed(const journal::ReplayReport& report) {
  if (report.num_not_replayed == 0) return {};
  return std::to_string(report.num_not_replayed) + " records of the output core: needs --model";
}

ordered_json facts_of(const io::JournalContents& journal, const journal::ReplayReport& report) {
  ordered_json inputs;
  for (std::size_t i = 1; i < journal::kNumSources; ++i) {
    inputs[journal::to_string(static_cast<journal::Source>(i))] = report.num_inputs[i];
  }
  ordered_json differences = ordered_json::array();
  for (const auto& difference : report.differences) differences.push_back(text_of(difference));
  return {{"version", journal.version},
          {"segments", report.num_segments},
          {"damaged_segments", journal.num_damaged},
          {"records", report.num_records},
          {"inputs", inputs},
          {"steps", report.num_steps},
          {"first_step", report.first_step},
          {"last_step", report.last_step},
          {"effects_compared", report.num_effects},
          {"states_compared", report.num_states},
          {"not_replayed", not_replayed(report)},
          {"differences", differences}};
}

ordered_json facts_of(const ExecutionReport& report) {
  return {{"steps", report.num_steps},
          {"first_step", report.first_step},
          {"last_step", report.last_step},
          {"tokens_compared", report.num_tokens},
          {"tokens_different", report.num_different},
          {"max_logprob_difference", report.max_logprob_difference},
          {"tokens_computed_before", report.num_computed_before},
          {"unknown_blocks", report.num_unknown_blocks},
          {"differences", report.differences}};
}

void print(const io::JournalContents& journal, const journal::ReplayReport& report) {
  std::printf("%" PRId64 " records in %" PRId64 " segments, steps %" PRIu64 " to %" PRIu64 "\n", report.num_records,
              report.num_segments, report.first_step, report.last_step);
  if (journal.num_damaged > 0) {
    std::printf("%" PRId64 " segments end at an incomplete or damaged record\n", journal.num_damaged);
  }
  if (report.differences.empty()) {
    std::printf("all %" PRId64 " effects are as recorded\n", report.num_effects);
  } else {
    std::printf("%" PRId64 " effects are as recorded, but:\n", report.num_effects);
  }
  for (const auto& difference : report.differences) std::printf("  %s\n", text_of(difference).c_str());
  if (const std::string left = not_replayed(report); !left.empty()) std::printf("not replayed: %s\n", left.c_str());
}

void print(const ExecutionReport& report) {
  std::printf("steps %" PRIu64 " to %" PRIu64 " executed: ", report.first_step, report.last_step);
  if (report.num_different == 0) {
    std::printf("all %" PRId64 " tokens are as recorded\n", report.num_tokens);
  } else {
    std::printf("%" PRId64 " of %" PRId64 " tokens differ:\n", report.num_different, report.num_tokens);
  }
  for (const auto& difference : report.differences) std::printf("  %s\n", difference.c_str());
  if (report.num_unknown_blocks > 0) {
    std::printf("%d cached blocks could not be computed again: sequences that read them may differ\n",
                report.num_unknown_blocks);
  }
}

int run_replay(const ReplayOptions& options) {
  if (const auto started = start_logging("error"); !started) return exit_with(started.error());
  if (options.file.empty()) return exit_with(Error{ErrorCode::bad_config, "FILE is required", "FILE", -1});
  if (options.execute && options.run.model.empty()) {
    return exit_with(Error{ErrorCode::bad_config, "--execute needs --model", "model", -1});
  }
  const auto journal = io::read_journal(options.file);
  if (!journal) return exit_with(journal.error());
  std::shared_ptr<const text::Tokenizer> tokenizer;
  if (!options.run.model.empty()) {
    auto loaded = io::load_tokenizer(options.run.model);
    if (!loaded) return exit_with(loaded.error());
    tokenizer = std::move(*loaded);
  }
  const auto report = replay_journal(*journal, std::move(tokenizer), start_progress());
  ordered_json facts = facts_of(*journal, report);
  if (!options.json) print(*journal, report);
  bool differs = !report.differences.empty();
  if (options.execute) {
    const auto execution = execute_journal(*journal, options.run, start_progress());
    if (!execution) return exit_with(execution.error());
    differs |= execution->num_different > 0;
    facts["execution"] = facts_of(*execution);
    if (!options.json) print(*execution);
  }
  if (options.json) std::printf("%s\n", facts.dump().c_str());
  return differs ? kExitFailure : kExitOk;
}

}  // namespace

Command add_replay(CLI::App& pagoda) {
  auto* app = add_subcommand(pagoda, "replay",
                             "Run what a journal has recorded again, and compare; exit code 1 when it differs");
  const auto options = std::make_shared<ReplayOptions>();
  add_text(*app, "FILE", options->file, "Journal that --journal has written");
  add_flag(*app, "--execute", options->execute, "Run the steps on the model as well, and compare the tokens");
  add_text(*app, "--model", options->run.model,
           "Folder or GGUF file of the model that was served; without it what clients saw is not replayed");
  add_text(*app, "--device", options->run.device, "Device to execute on; empty: as it was recorded");
  add_number(*app, "--threads", options->run.threads, "Compute threads on a CPU; -1: as it was recorded");
  add_flag(*app, "--json", options->json, "Print one JSON object");
  return {app, [options] { return run_replay(*options); }};
}

}  // namespace pagoda::apps
