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
    add_text(app, "--out", out,
             "Path to write: a GGUF file if it ends with .gguf, otherwise a folder in Hugging Face format with "
             "compressed-tensors weights");
    add_number(app, "--bits", options.bits, "Number of bits of a weight: 4 or 8", 4, 8);
    bits_per_weight_flag =
        add_number(app, "--bits-per-weight", bits_per_weight,
                   "Maximum average number of bits of a weight, including scales: the layers that need it most, as "
                   "trial runs measure, have 8 bits and the other layers 4",
                   4.0, 9.0);
    bits_per_weight_flag->default_str("");  // without the flag all layers have the same bits
    group_size_flag =
        add_number(app, "--group-size", group_size,
                   "Number of columns that share a scale: a multiple of 16 that divides the columns of every "
                   "layer; always 32 in a GGUF file",
                   std::int64_t{16}, std::int64_t{256});
    zero_points_flag =
        add_switch(app, "zero-points", zero_points,
                   "Columns that share a scale also share a zero point; in a GGUF file a minimum, with 4 bits only");
    rotate_flag = add_switch(app, "rotate", rotate,
                             "Rotate blocks of 32 columns, which reduces the error; not possible in a GGUF file");
    add_text(app, "--calibration", calibration,
             "File with a text that is like the later input of the model; without it the model generates a text");
    add_number(app, "--calibration-tokens", options.calibration_tokens, "Number of tokens of the text that are used",
               std::int64_t{512}, std::int64_t{1} << 24);
    add_flag(app, "--json", json, "Print the result as one JSON object");
  }

  EngineFlags engine;
  QuantizeOptions options;
  std::string out;
  std::string calibration;
  bool json = false;
  double bits_per_weight = 5;
  std::int64_t group_size = 32;
  bool zero_points = true;
  bool rotate = true;
  CLI::Option* bits_per_weight_flag;
  CLI::Option* group_size_flag;
  CLI::Option* zero_points_flag;
  CLI::Option* rotate_flag;
};

int run_quantize(QuantizeCommand& command) {
  if (const auto problems = command.engine.finish(); !problems.empty()) return exit_with(problems);
  QuantizeOptions& options = command.options;
  if (options.bits != 4 && options.bits != 8) {
    return exit_with(Error{ErrorCode::bad_config, "--bits must be 4 or 8", "bits"});
  }
  if (command.group_size % 16 != 0) {
    return exit_with(Error{ErrorCode::bad_config, "--group-size must be a multiple of 16", "group_size"});
  }
  // Flags that are not given have defaults that depend on the format.
  if (command.bits_per_weight_flag->count() > 0) options.bits_per_weight = command.bits_per_weight;
  if (command.group_size_flag->count() > 0) options.group_size = command.group_size;
  if (command.zero_points_flag->count() > 0) options.asymmetric = command.zero_points;
  if (command.rotate_flag->count() > 0) options.rotate = command.rotate;
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
                                      {"num_8bit_modules", report->num_8bit_modules},
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
