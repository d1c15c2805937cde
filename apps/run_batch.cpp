#include <algorithm>
#include <array>
#include <csignal>
#include <cstddef>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>

#include <unistd.h>

#include "apps/batch/batch_run.hpp"
#include "apps/command.hpp"
#include "apps/flags.hpp"
#include "apps/served_engine.hpp"

namespace pagoda::apps {
namespace {

constexpr std::size_t kBatchPoolThreads = 2;
// Several batches, so that later requests run while the oldest one holds up the output.
constexpr std::size_t kBatchesLive = 4;
constexpr std::size_t kMaxLineFrame = 64 << 10;  // bytes of a line outside its body
constexpr int kSignalExit = 128;                 // plus the number of the signal, as shells do

/// Settings of the HTTP APIs that do not concern connections.
constexpr std::array<std::string_view, 4> kApiKeys{"max_body_bytes", "log_prompts", "strict_fields", "any_model_name"};

struct RunBatchOptions {
  explicit RunBatchOptions(CLI::App& app) : engine(app, "warn", lazy_memory()) {
    engine.flags.also_positional("model", "MODEL", engine.config.model, "Folder of the model, or GGUF file");
    add_text(app, "-i,--input-file", input,
             "File of requests in OpenAI's batch format, one on each line; -: standard input");
    add_text(app, "-o,--output-file", output,
             "File for the results, one on each line in the order of the requests; -: standard output. If the file has "
             "results of an interrupted run of the same input, the run continues after them");
    add_flag(app, "--overwrite", overwrites, "Overwrite the output file");
    engine.flags.add_all(api, kApiKeys);
    // No client can come back for a stream.
    api.resume.resume_window = 0;
  }

  std::vector<Error> finish() {
    std::vector<Error> problems;
    if (input.empty()) problems.push_back({ErrorCode::bad_config, "--input-file is required", "input_file"});
    if (output.empty()) problems.push_back({ErrorCode::bad_config, "--output-file is required", "output_file"});
    if (std::error_code ignored; std::filesystem::equivalent(input, output, ignored)) {
      problems.push_back({ErrorCode::bad_config, "--output-file is the input file", "output_file"});
    }
    for (auto& problem : engine.finish()) problems.push_back(std::move(problem));
    for (auto& problem : api.validate()) problems.push_back(std::move(problem));
    return problems;
  }

  std::size_t max_line_bytes() const { return static_cast<std::size_t>(api.max_body_bytes) + kMaxLineFrame; }
  std::size_t max_live() const {
    const auto most = static_cast<std::size_t>(engine.config.max_queued_requests);
    return std::min(static_cast<std::size_t>(engine.config.num_rows()) * kBatchesLive, most);
  }

  EngineFlags engine;
  http::ServerConfig api;
  std::string input;
  std::string output;
  bool overwrites = false;
};

std::string num_requests(std::int64_t number) {
  return std::to_string(number) + (number == 1 ? " request" : " requests");
}

/// Reports how the batch ended. Returns the exit code.
int end_batch(batch::BatchRun::End end, const batch::BatchResults& results, const Interrupts& interrupts) {
  using End = batch::BatchRun::End;
  const auto is_file = results.path() != "-";
  const std::string go_on = is_file ? "; the same command continues after the " + std::to_string(results.num_done()) +
                                          " results in " + results.path()
                                    : "";
  switch (end) {
    case End::interrupted:
      complain("interrupted" + go_on);
      return kSignalExit + interrupts.last_signal();
    case End::engine_has_ended:
      complain("the engine has stopped" + go_on);
      return kExitFailure;
    case End::failed:
      return kExitFailure;
    case End::complete:
      break;
  }
  if (results.num_failed() == 0) return kExitOk;
  complain(std::to_string(results.num_failed()) + " of " + num_requests(results.num_done()) +
           " failed; their results have the errors");
  return kExitFailure;
}

int run_requests(const RunBatchOptions& options, batch::LineReader& lines, batch::BatchParser& parser,
                 batch::BatchResults& results) {
  init_actor_types();
  caf::actor_system_config system_config;
  actors::configure_pool(system_config, kBatchPoolThreads);
  caf::actor_system system(system_config);
  const auto served = start_served_engine(system, options.engine);
  if (!served) return exit_with(served.error());
  const auto events = std::make_shared<batch::BatchEvents>();
  actors::when_ended(served->engine.supervisor, [events] {
    events->engine_has_ended = true;
    events->wake_up.call();
  });
  int code = kExitFailure;
  {
    Interrupts interrupts({SIGINT, SIGTERM});
    http::LocalApi api(system, serving::ServedModels({served->model}), options.api);
    batch::BatchRun run(api, lines, parser, results, *events, interrupts, options.max_live());
    code = end_batch(run.run(), results, interrupts);
  }
  end_engine(served->engine);
  return code;
}

int run_batch(RunBatchOptions& options) {
  if (const auto problems = options.finish(); !problems.empty()) return exit_with(problems);
  auto lines = batch::LineReader::open(options.input, options.max_line_bytes());
  if (!lines) return exit_with(lines.error());
  auto results = batch::BatchResults::open(options.output, options.overwrites);
  if (!results) return exit_with(results.error());
  batch::BatchParser parser(options.max_line_bytes());
  if (const auto skipped = results->skip_done(*lines, parser); !skipped) return exit_with(skipped.error());
  const bool is_watched = ::isatty(STDERR_FILENO) != 0;
  if (results->num_done() > 0 && is_watched) {
    complain(num_requests(results->num_done()) + " have results in " + results->path() + " already");
  }
  // A complete batch needs no model.
  if (batch::LineReader::Line line; results->num_done() > 0 && !lines->wait_for_next(line)) {
    return results->num_failed() == 0 ? kExitOk : kExitFailure;
  } else if (results->num_done() > 0) {
    lines->put_back(std::move(line));
  }
  return run_requests(options, *lines, parser, *results);
}

}  // namespace

Command add_run_batch(CLI::App& pagoda) {
  auto* app =
      add_subcommand(pagoda, "run-batch", "Answer the requests of a file in OpenAI's batch format, without a server");
  const auto options = std::make_shared<RunBatchOptions>(*app);
  return {app, [options] { return run_batch(*options); }};
}

}  // namespace pagoda::apps
