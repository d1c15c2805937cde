#include <array>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "apps/command.hpp"
#include "apps/flag_values.hpp"
#include "apps/flags.hpp"
#include "apps/progress.hpp"
#include "apps/text_file.hpp"
#include "pagoda/quantize_model.hpp"

namespace pagoda::apps {
namespace {

constexpr std::array<std::string_view, 5> kKeys{"model", "dtype", "threads", "cpu_affinity", "cpu_isa"};

struct QuantizeCommand {
  explicit QuantizeCommand(CLI::App& app) : engine(app, "warn", lazy_memory(), kKeys) {
    add_text(app, "--out", out, "Folder to be made, of a Hugging Face model in the format of compressed-tensors");
    add_number(app, "--bits", options.bits, "Bits of a weight: 4 or 8", 4, 8);
    add_number(app, "--group-size", options.group_size,
               "Columns that share a scale: a multiple of 16 that "
               "divides the columns of every layer",
               std::int64_t{16}, std::int64_t{256});
    add_switch(app, "zero-points", options.asymmetric, "They share a zero point as well");
    add_switch(app, "rotate", options.rotate, "Rotate blocks of 32 columns, which keeps more of the model");
    add_text(app, "--calibration", calibration,
             "File with a text like those that the model will see; without one the "
             "model writes its own");
    add_number(app, "--calibration-tokens", options.calibration_tokens, "Tokens of it that are looked at",
               std::int64_t{512}, std::int64_t{1} << 24);
    add_flag(app, "--json", json, "Print the result as one JSON object");
  }

  EngineFlags engine;
  QuantizeOptions options;
  std::string out;
  std::string calibration;
  bool json = false;
};

int run_quantize(QuantizeCommand& command) {
  if (const auto problems = command.engine.finish(); !problems.empty()) return exit_with(problems);
  QuantizeOptions& options = command.options;
  if (options.bits != 4 && options.bits != 8) {
    return exit_with(Error{ErrorCode::bad_config, "--bits must be 4 or 8", "bits"});
  }
  if (options.group_size % 16 != 0) {
    return exit_with(Error{ErrorCode::bad_config, "--group-size must be a multiple of 16", "group_size"});
  }
  if (!command.calibration.empty()) {
    auto text = read_text_file(command.calibration, "calibration");
    if (!text) return exit_with(text.error());
    options.calibration_text = std::move(*text);
  }
  options.config = command.engine.config;
  options.out = command.out;
  const auto report = quantize_model(options, start_progress());
  if (!report) return exit_with(report.error());
  const nlohmann::ordered_json result{{"out", command.out},
                                      {"num_modules", report->num_modules},
                                      {"calibration_tokens", report->calibration_tokens},
                                      {"model_bytes", report->model_bytes},
                                      {"written_bytes", report->written_bytes},
                                      {"bits_per_weight", report->bits_per_weight}};
  if (command.json) {
    std::printf("%s\n", result.dump().c_str());
  } else {
    for (const auto& [key, value] : result.items()) std::printf("%-22s %s\n", key.c_str(), value.dump().c_str());
  }
  return kExitOk;
}

}  // namespace

Command add_quantize(CLI::App& pagoda) {
  auto* app = add_subcommand(pagoda, "quantize", "Write a model with weights of 4 or 8 bits");
  const auto command = std::make_shared<QuantizeCommand>(*app);
  return {app, [command] { return run_quantize(*command); }};
}

}  // namespace pagoda::apps
