#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <deque>
#include <limits>
#include <memory>
#include <mutex>

#include <unistd.h>

#include "apps/adapter_flag.hpp"
#include "apps/command.hpp"
#include "apps/flag_values.hpp"
#include "apps/flags.hpp"
#include "apps/progress.hpp"
#include "apps/prompt_source.hpp"
#include "io/model_files/model_files.hpp"
#include "pagoda/engine.hpp"

namespace pagoda::apps {
namespace {

struct GenerateOptions {
  explicit GenerateOptions(CLI::App& app) : engine(app, "warn", lazy_memory()) {
    auto* one = app.add_option("--prompt", prompt, "One prompt");
    app.add_option("--prompts", prompts,
                   "A file of prompts, one a line, or - for standard input; a line that starts with { is a generate "
                   "object of the JSON-lines protocol")
        ->excludes(one);
    add_flag(app, "--chat", chat, "Each prompt is a user's message, put into the model's chat template");
    add_text(app, "--system", system, "With --chat: the system message");
    add_choice(app, "--output", output, {"text", "json"}, "text, or json: one done object a line");
    add_adapter_flag(app, request.adapter);
    add_sampling_flags(app, request);
  }

  EngineFlags engine;
  std::optional<std::string> prompt;
  std::string prompts;
  std::string output = "text";
  bool chat = false;
  std::string system;
  GenerateRequest request;
};

/// Runs the prompts with a bounded number live, and writes the results in input order.
class BatchRun {
 public:
  BatchRun(Engine& engine, PromptSource& source, const GenerateOptions& options)
      : engine_(engine),
        source_(source),
        json_(options.output == "json"),
        streaming_(!json_ && options.prompt && options.request.sampling.n == 1 && ::isatty(STDOUT_FILENO) != 0),
        window_(static_cast<std::size_t>(options.engine.config.num_rows()) * kWindowFactor),
        progress_(!options.prompt && ::isatty(STDERR_FILENO) != 0) {}

  int run() {
    for (auto prompt = source_.next(); prompt; prompt = source_.next()) {
      start(std::move(*prompt));
      write_ready([this] { return slots_.size() < window_; });
      if (std::ferror(stdout) != 0) break;  // main reports the error
    }
    write_ready([this] { return slots_.empty(); });
    progress_.finish(requests_done_, tokens_);
    return failed_ ? kExitFailure : kExitOk;
  }

 private:
  // Several batches, so that later requests run while the oldest one holds up the output.
  static constexpr std::size_t kWindowFactor = 4;

  /// A prompt whose result has not been written yet.
  struct Slot {
    std::string id;
    bool timing = false;
    std::shared_ptr<const chat::AnswerReading> reading;
    std::optional<tl::expected<RequestResult, wire::WireError>> result;
  };

  void start(PromptSource::Prompt prompt) {
    auto slot = std::make_shared<Slot>();
    slot->id = std::move(prompt.id);
    slot->timing = prompt.timing;
    slot->reading = std::move(prompt.reading);
    slots_.push_back(slot);
    if (prompt.request) {
      submit(slot, std::move(*prompt.request));
    } else {
      slot->result = tl::unexpected(std::move(prompt.request.error()));
    }
  }

  void submit(const std::shared_ptr<Slot>& slot, GenerateRequest request) {
    request.stream = streaming_;
    auto ticket = engine_.submit_when_free(std::move(request),
                                           [this, slot](const RequestOutput& output) { on_output(*slot, output); });
    if (!ticket) slot->result = tl::unexpected(json_lines::request_error(ticket.error(), slot->reading.get()));
  }

  /// Called on an engine thread.
  void on_output(Slot& slot, const RequestOutput& output) {
    if (streaming_) {
      for (const auto& delta : output.deltas) std::fwrite(delta.text.data(), 1, delta.text.size(), stdout);
      std::fflush(stdout);
    }
    if (!output.done && !output.error) return;
    const std::lock_guard lock(mutex_);
    if (output.done) {
      slot.result = *output.done;
    } else {
      slot.result = tl::unexpected(json_lines::request_error(*output.error, slot.reading.get()));
    }
    changed_.notify_all();
  }

  /// Writes results in order, as they come, until `enough()` returns true.
  template <class Enough>
  void write_ready(Enough enough) {
    std::unique_lock lock(mutex_);
    while (!slots_.empty()) {
      const auto front = slots_.front();
      if (!front->result) {
        if (enough()) return;
        changed_.wait(lock);
        continue;
      }
      slots_.pop_front();
      lock.unlock();
      write(*front);
      lock.lock();
    }
  }

  void write(const Slot& slot) {
    ++requests_done_;
    std::string text;
    if (*slot.result) {
      const auto& result = **slot.result;
      tokens_ += result.usage.completion_tokens;
      if (json_) {
        json_lines::append_done(text, slot.id, result, slot.timing, slot.reading.get());
      } else {
        for (const auto& output : result.outputs) text += (streaming_ ? std::string() : output.text) + "\n";
      }
    } else {
      failed_ = true;
      const auto& error = slot.result->error();
      if (json_) {
        json_lines::append_error(text, slot.id, error);
      } else {
        complain("prompt " + slot.id + ": " + error.message);
        text = "\n";  // keeps outputs in step with prompts
      }
    }
    std::fwrite(text.data(), 1, text.size(), stdout);
    progress_.update(source_.fraction_read(), requests_done_, tokens_);
  }

  Engine& engine_;
  PromptSource& source_;
  const bool json_;
  const bool streaming_;  ///< whether text is written to a terminal as it is generated
  const std::size_t window_;
  ProgressBar progress_;

  std::deque<std::shared_ptr<Slot>> slots_;  ///< main thread; in input order
  std::int64_t requests_done_ = 0;
  std::int64_t tokens_ = 0;
  bool failed_ = false;

  std::mutex mutex_;  ///< guards the slots' results and the fields below
  std::condition_variable changed_;
};

Result<PromptSource::Form> prompt_form(GenerateOptions& options) {
  auto prompts = io::load_chat_prompts(options.engine.config);
  if (!prompts) return fail(prompts.error());
  if (options.chat && *prompts == nullptr) {
    return fail(ErrorCode::bad_config, "the model has no chat template: give one with --chat-template",
                "chat_template");
  }
  if (!options.chat && !options.system.empty()) {
    return fail(ErrorCode::bad_config, "--system needs --chat", "system");
  }
  // A chat answer ends by itself; a continued text may not.
  constexpr std::int64_t kRestOfContext = std::numeric_limits<std::int32_t>::max();
  if (options.chat && options.request.open.max_tokens) options.request.sampling.max_tokens = kRestOfContext;
  return PromptSource::Form{std::move(*prompts), options.chat, options.system};
}

int run_generate(GenerateOptions& options) {
  if (!options.prompt && options.prompts.empty()) {
    return exit_with(Error{ErrorCode::bad_config, "give either --prompt or --prompts", "prompt"});
  }
  if (const auto problems = options.engine.finish(); !problems.empty()) return exit_with(problems);
  if (const auto status = check_adapter(options.engine.config, options.request.adapter); !status) {
    return exit_with(status.error());
  }
  // Checks the flags once for all prompts. Checks that depend on the model are made with each request.
  constexpr std::int64_t kAnyVocabulary = std::numeric_limits<std::int32_t>::max();
  const Status sampling = validate(options.request.sampling, options.engine.config.limits, kAnyVocabulary);
  if (!sampling) return exit_with(Error{ErrorCode::bad_config, sampling.error().message, sampling.error().param});
  auto form = prompt_form(options);
  if (!form) return exit_with(form.error());
  auto source = options.prompt
                    ? Result<PromptSource>(PromptSource::single(*options.prompt, options.request, std::move(*form)))
                    : PromptSource::open(options.prompts, options.request, std::move(*form));
  if (!source) return exit_with(source.error());
  const auto engine = Engine::create(options.engine.config, options.engine.setup());
  if (!engine) return exit_with(engine.error());
  return BatchRun(**engine, *source, options).run();
}

}  // namespace

Command add_generate(CLI::App& pagoda) {
  auto* app = pagoda.add_subcommand("generate", "Continue prompts, without a server");
  const auto options = std::make_shared<GenerateOptions>(*app);
  return {app, [options] { return run_generate(*options); }};
}

}  // namespace pagoda::apps
