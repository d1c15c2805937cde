#include "apps/bench_accuracy.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>
#include <unistd.h>

#include "apps/flag_values.hpp"
#include "apps/flags.hpp"
#include "apps/logit_comparison.hpp"
#include "apps/model_location.hpp"
#include "apps/progress.hpp"
#include "apps/text_file.hpp"
#include "pagoda/token_logits.hpp"

namespace pagoda::apps {
namespace {

using nlohmann::ordered_json;

/// Keys of an engine that matter when one sequence is computed at a time.
constexpr std::array<std::string_view, 9> kKeys{"model",  "dtype",   "quantize",     "weight_memory", "kv_cache_dtype",
                                                "device", "threads", "cpu_affinity", "cpu_isa"};

struct AccuracyOptions {
  explicit AccuracyOptions(CLI::App& app) : engine(app, "warn", lazy_memory(), kKeys) {
    add_text(app, "--text", text, "File with the text");
    add_text(app, "--reference", reference,
             "Folder or GGUF file of the model to compare with; it is computed with dequantised weights");
    add_number(app, "--context", context, "Tokens of a window; those of its second half count", std::int64_t{8});
    add_number(app, "--max-tokens", max_tokens, "Tokens of the text that are looked at; 0: all", std::int64_t{0});
    add_flag(app, "--json", json, "Print the result as one JSON object");
  }

  EngineFlags engine;
  std::string text;
  std::string reference;
  std::int64_t context = 512;
  std::int64_t max_tokens = 0;
  bool json = false;
};

/// Returns the text in windows of `context` tokens. Drops the rest at the end.
Result<std::vector<TokenIds>> windows_of(const AccuracyOptions& options, const std::string& text,
                                         const text::Tokenizer& tokenizer) {
  auto ids = tokenizer.encode(text, true);
  if (!ids) return fail(std::move(ids.error()));
  // Puts the tokens that the tokenizer adds before a text before every window.
  const auto alone = tokenizer.encode("", true);
  if (!alone) return fail(alone.error());
  const bool has_beginning = !alone->empty() && !ids->empty() && ids->front() == alone->front();
  auto count = static_cast<std::int64_t>(ids->size());
  if (options.max_tokens > 0) count = std::min(count, options.max_tokens);
  std::vector<TokenIds> windows;
  for (std::int64_t begin = 0; begin + options.context <= count; begin += options.context) {
    windows.emplace_back(ids->begin() + begin, ids->begin() + begin + options.context);
    if (has_beginning) windows.back().front() = alone->front();
  }
  if (windows.empty()) {
    return fail(
        ErrorCode::bad_config,
        "the text has " + std::to_string(count) + " tokens, less than a window of " + std::to_string(options.context),
        "context");
  }
  return windows;
}

Result<std::unique_ptr<TokenLogits>> load(const EngineConfig& config, std::int64_t context) {
  return TokenLogits::create(config, static_cast<std::int32_t>(context), start_progress());
}

Result<std::unique_ptr<TokenLogits>> load_reference(const AccuracyOptions& options, const TokenLogits& model) {
  if (options.reference.empty()) return nullptr;
  EngineConfig config = options.engine.config;
  config.model = options.reference;
  if (auto status = locate_model(config.model); !status) return fail(std::move(status.error()));
  config.dtype = "auto";
  config.kv_cache_dtype = "float32";
  config.quantize = "none";
  auto reference = load(config, options.context);
  if (reference && (*reference)->vocab_size() != model.vocab_size()) {
    return fail(ErrorCode::bad_config,
                "the reference has a vocabulary of " + std::to_string((*reference)->vocab_size()) +
                    " tokens, but the model has " + std::to_string(model.vocab_size()),
                "reference");
  }
  return reference;
}

/// Adds the second half of a window to `comparison`. Adds the time that the model took to `seconds`.
Status compare(const TokenIds& window, TokenLogits& model, TokenLogits* reference, LogitComparison& comparison,
               double& seconds) {
  const auto first = static_cast<std::int32_t>(window.size() / 2);
  const auto vocab = static_cast<std::size_t>(model.vocab_size());
  std::vector<float> expected;
  const auto row_of = [&](std::int32_t position) { return static_cast<std::size_t>(position - first) * vocab; };
  if (reference != nullptr) {
    expected.resize((window.size() - static_cast<std::size_t>(first)) * vocab);
    const auto keep = [&](std::int32_t position, std::span<const float> logits) {
      std::ranges::copy(logits, expected.begin() + static_cast<std::ptrdiff_t>(row_of(position)));
    };
    if (Status status = reference->run(window, first, keep); !status) return status;
  }
  double comparing = 0;
  const auto begin = std::chrono::steady_clock::now();
  const auto since = [](auto start) {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  };
  Status status = model.run(window, first, [&](std::int32_t position, std::span<const float> logits) {
    const auto now = std::chrono::steady_clock::now();
    const auto next = static_cast<std::size_t>(position) + 1;
    if (next < window.size()) {
      if (reference == nullptr) {
        comparison.add(logits, window[next]);
      } else {
        comparison.add(logits, std::span(expected).subspan(row_of(position), vocab), window[next]);
      }
    }
    comparing += since(now);
  });
  seconds += since(begin) - comparing;
  return status;
}

ordered_json to_json(const LogitComparison::Summary& summary, bool with_reference) {
  ordered_json result{{"tokens", summary.num_tokens}, {"perplexity", summary.perplexity}};
  if (with_reference) {
    result.update(ordered_json{{"reference_perplexity", summary.reference_perplexity},
                               {"perplexity_ratio", summary.perplexity / summary.reference_perplexity},
                               {"kld_mean", summary.kld_mean},
                               {"kld_median", summary.kld_median},
                               {"kld_p99", summary.kld_p99},
                               {"kld_max", summary.kld_max},
                               {"same_top", summary.same_top},
                               {"rms_delta_p", summary.rms_delta_p}});
  }
  return result;
}

int run_accuracy(AccuracyOptions& options) {
  if (const auto problems = options.engine.finish(); !problems.empty()) return exit_with(problems);
  if (options.text.empty()) return exit_with(Error{ErrorCode::bad_config, "--text is required", "text"});
  const auto text = read_text_file(options.text, "text");
  if (!text) return exit_with(text.error());
  const auto model = load(options.engine.config, options.context);
  if (!model) return exit_with(model.error());
  const auto windows = windows_of(options, *text, (*model)->tokenizer());
  if (!windows) return exit_with(windows.error());
  const auto reference = load_reference(options, **model);
  if (!reference) return exit_with(reference.error());
  LogitComparison comparison;
  ProgressBar progress(isatty(STDERR_FILENO) != 0);
  double seconds = 0;
  std::int64_t done = 0;
  for (const TokenIds& window : *windows) {
    if (const Status status = compare(window, **model, reference->get(), comparison, seconds); !status) {
      return exit_with(status.error());
    }
    ++done;
    progress.update(static_cast<double>(done) / static_cast<double>(windows->size()), done, done * options.context);
  }
  progress.finish(done, done * options.context);
  ordered_json result = to_json(comparison.summary(), *reference != nullptr);
  result["weight_bytes"] = (*model)->weight_bytes();
  result["tokens_per_s"] = static_cast<double>(done * options.context) / seconds;
  if (options.json) {
    std::printf("%s\n", result.dump().c_str());
  } else {
    for (const auto& [key, value] : result.items()) std::printf("%-22s %s\n", key.c_str(), value.dump().c_str());
  }
  return kExitOk;
}

}  // namespace

Command add_bench_accuracy(CLI::App& bench) {
  auto* app = bench.add_subcommand(
      "accuracy", "Perplexity over a text, and how near a model's distributions are to those of a reference");
  const auto options = std::make_shared<AccuracyOptions>(*app);
  return {app, [options] { return run_accuracy(*options); }};
}

}  // namespace pagoda::apps
