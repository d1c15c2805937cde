#include "apps/flags.hpp"

#include <algorithm>
#include <array>
#include <type_traits>

#include <CLI/CLI.hpp>
#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>

#include "apps/command.hpp"
#include "apps/flag_values.hpp"
#include "apps/model_location.hpp"
#include "apps/packed_cache_folder.hpp"
#include "apps/progress.hpp"
#include "io/wire/json_reader.hpp"
#include "io/wire/structured_fields.hpp"
#include "kernels/cpu/cpu_memory.hpp"

namespace pagoda::apps {
namespace {

/// Reads the field structured_outputs in the format of requests.
void read_constraint(const std::string& flag, const std::string& text, std::optional<StructuredOutput>& constraint) {
  const auto refuse = [&](const std::string& why) { refuse_value(flag, "a constraint in JSON (" + why + ")", text); };
  constexpr std::size_t kMaxDepth = 64;
  auto json = wire::read_json(text, kMaxDepth);
  if (!json) return refuse(json.error().message);
  const wire::Json body{{"structured_outputs", std::move(*json)}};
  wire::FieldReader fields(body, wire::FieldReader::Nulls::absent);
  wire::read_structured_outputs(fields, constraint);
  if (const auto status = fields.finish(); !status) refuse(status.error().message);
}

}  // namespace

ConfigFlags::ConfigFlags(CLI::App& app) : app_(app) {
  app_.add_option("--config", path_, "JSON file with these settings; keys are the flags with underscores");
}

std::string ConfigFlags::with_dashes(std::string key) {
  std::ranges::replace(key, '_', '-');
  return key;
}

void ConfigFlags::bind_list(const std::string& key, std::string& field, const std::string& help) {
  auto* option = add_list(app_, "--" + with_dashes(key), field, help);
  bindings_.push_back(
      {key, option, nullptr, [key, &field](const io::ConfigFile& file) { return file.read(key, field); }});
}

template <class T>
void ConfigFlags::add(const std::string& key, T& field, const std::string& help) {
  CLI::Option* option = nullptr;
  const auto flag = "--" + with_dashes(key);
  if constexpr (std::is_same_v<T, bool>) {
    option = add_switch(app_, with_dashes(key), field, help);
  } else if constexpr (std::is_enum_v<T>) {
    option = add_choice(app_, flag, field, help);
  } else if constexpr (std::is_arithmetic_v<T>) {
    option = add_number(app_, flag, field, help);
  } else if constexpr (std::is_same_v<T, JsonText>) {
    option = app_.add_option(flag, field.text, help)->type_name("JSON");
  } else {
    option = app_.add_option(flag, field, help)->capture_default_str();
  }
  bindings_.push_back(
      {key, option, nullptr, [key, &field](const io::ConfigFile& file) { return file.read(key, field); }});
}

template void ConfigFlags::add(const std::string& key, std::string& field, const std::string& help);
template void ConfigFlags::add(const std::string& key, double& field, const std::string& help);
template void ConfigFlags::add(const std::string& key, std::int64_t& field, const std::string& help);
template void ConfigFlags::add(const std::string& key, JsonText& field, const std::string& help);

void ConfigFlags::add_all(EngineConfig& config, std::span<const std::string_view> keys) {
  io::visit_fields(config, [&](const char* key, auto& field, const char* help) {
    if (!keys.empty() && std::ranges::find(keys, key) == keys.end()) return;
    if constexpr (std::is_same_v<decltype(field), std::string&>) {
      const bool is_list =
          &field == &config.served_model_name || &field == &config.lora_modules || &field == &config.prompt_adapters;
      if (is_list) return bind_list(key, field, help);
    }
    add(key, field, help);
  });
}

void ConfigFlags::add_all(json_lines::ServerConfig& config) {
  io::visit_fields(config, [this](const char* key, auto& field, const char* help) { add(key, field, help); });
}

void ConfigFlags::add_all(http::ServerConfig& config, std::span<const std::string_view> keys) {
  io::visit_fields(config, [&](const char* key, auto& field, const char* help) {
    if (keys.empty() || std::ranges::find(keys, key) != keys.end()) add(key, field, help);
  });
}

void ConfigFlags::also_positional(const std::string& key, const std::string& name, std::string& field,
                                  const std::string& help) {
  const auto binding = std::ranges::find(bindings_, key, &Binding::key);
  binding->positional = app_.add_option(name, field, help);
}

Status ConfigFlags::read_file() {
  for (const auto& binding : bindings_) {
    if (binding.positional == nullptr || binding.positional->count() == 0 || binding.flag->count() == 0) continue;
    return fail(ErrorCode::bad_config,
                binding.key + " is given twice: by its flag, and as " + binding.positional->results().front() +
                    "; several values of another flag are joined with commas",
                binding.key);
  }
  if (path_.empty()) return {};
  const auto file = io::ConfigFile::load(path_);
  if (!file) return fail(file.error());
  keys_of_file_ = file->keys();
  // A file may hold the keys of all subcommands.
  const auto known = io::known_config_keys();
  for (const auto& key : keys_of_file_) {
    if (std::ranges::find(known, key) == known.end()) return fail(file->unknown_key(key, known));
  }
  for (const auto& binding : bindings_) {
    const bool is_positional = binding.positional != nullptr && binding.positional->count() > 0;
    if (binding.flag->count() > 0 || is_positional) continue;
    if (auto status = binding.read(*file); !status) return status;
  }
  return {};
}

bool ConfigFlags::is_given(const std::string& key) const {
  if (std::ranges::find(keys_of_file_, key) != keys_of_file_.end()) return true;
  const auto binding = std::ranges::find(bindings_, key, &Binding::key);
  if (binding == bindings_.end()) return false;
  return binding->flag->count() > 0 || (binding->positional != nullptr && binding->positional->count() > 0);
}

std::string ConfigFlags::flag_given(const std::string& key) const {
  const auto binding = std::ranges::find(bindings_, key, &Binding::key);
  if (binding == bindings_.end() || binding->flag->count() == 0) return {};
  const bool is_switched_off = binding->flag->get_items_expected_max() == 0 && !binding->flag->as<bool>();
  return (is_switched_off ? "--no-" : "--") + with_dashes(key);
}

CLI::App* add_subcommand(CLI::App& parent, const std::string& name, const std::string& description) {
  return parent.add_subcommand(name, description);
}

void add_text(CLI::App& app, const std::string& name, std::string& field, const std::string& help) {
  app.add_option(name, field, help);
}

void add_flag(CLI::App& app, const std::string& name, bool& field, const std::string& help) {
  app.add_flag(name, field, help);
}

void add_log_level(ConfigFlags& flags, std::string& level) {
  flags.add("log_level", level, "trace, debug, info, warn, error or off; logs go to stderr");
}

Status start_logging(const std::string& level) {
  constexpr std::array<const char*, 6> kLevels{"trace", "debug", "info", "warn", "error", "off"};
  if (std::ranges::find(kLevels, level) == kLevels.end()) {
    return fail(ErrorCode::bad_config,
                "log_level must be trace, debug, info, warn, error or off, not \"" + level + "\"", "log_level");
  }
  spdlog::set_default_logger(
      std::make_shared<spdlog::logger>("pagoda", std::make_shared<spdlog::sinks::stderr_sink_mt>()));
  spdlog::set_level(spdlog::level::from_str(level));
  spdlog::set_pattern("%Y-%m-%d %H:%M:%S.%e %l %v");
  return {};
}

void add_sampling_flags(CLI::App& app, GenerateRequest& request) {
  auto& params = request.sampling;
  auto& group = *app.add_option_group(
      "Sampling", "How tokens are sampled; generation_config.json of the model may set other defaults");
  // If a flag is not given, its field has the model's default.
  request.open = OpenSamplingFields::all();
  const auto open = [&](const char* flag, auto& value, bool& is_open, const char* help) {
    add_number(group, flag, value, help)->each([&is_open](const std::string&) { is_open = false; });
  };
  open("--max-tokens", params.max_tokens, request.open.max_tokens, "Maximum number of tokens to generate");
  add_number(group, "--min-tokens", params.min_tokens, "Minimum number of tokens before the output may end");
  open("--temperature", params.temperature, request.open.temperature,
       "Randomness of sampling; 0: always the most likely token");
  open("--top-p", params.top_p, request.open.top_p,
       "Sample from the smallest set of tokens that together have this probability");
  open("--top-k", params.top_k, request.open.top_k, "Sample from the k most likely tokens; -1 or 0: all tokens");
  open("--min-p", params.min_p, request.open.min_p,
       "Sample from tokens whose probability, relative to the most likely token, is at least this");
  add_number(group, "--n", params.n, "Number of outputs for each prompt");
  add_number(group, "--best-of", params.best_of, "Number of outputs to generate, of which the n best are returned");
  group.add_option("--stop", params.stop, "A string that ends the output; may be given several times")
      ->allow_extra_args(false);
  group.add_option("--stop-token-ids", params.stop_token_ids, "Token ids that end the output")->delimiter(',');
  group.add_flag("--ignore-eos", params.ignore_eos, "Continue after the end-of-sequence token");
  group.add_flag("--include-stop-str-in-output", params.include_stop_str_in_output,
                 "Keep the stop string in the output");
  add_number(group, "--presence-penalty", params.presence_penalty, "Penalty for tokens that have occurred");
  add_number(group, "--frequency-penalty", params.frequency_penalty,
             "Penalty for tokens, by how often they have occurred");
  open("--repetition-penalty", params.repetition_penalty, request.open.repetition_penalty,
       "Above 1: penalty for repetition");
  add_number(group, "--repeat-last-n", params.repeat_last_n,
             "Number of last tokens that the penalties consider; -1: all");
  add_number(group, "--logprobs", params.logprobs, "Log-probabilities of the k most likely tokens (JSON output)");
  add_number(group, "--prompt-logprobs", params.prompt_logprobs,
             "Log-probabilities of the k most likely tokens at each position of the prompt");
  add_switch(group, "skip-special-tokens", params.skip_special_tokens, "Leave special tokens out of the text");
  add_switch(group, "add-special-tokens", request.add_special_tokens, "Let the tokenizer add its tokens to the prompt");
  group
      .add_option_function<std::string>(
          "--structured-outputs",
          [&params](const std::string& text) {
            read_constraint("--structured-outputs", text, params.structured_outputs);
          },
          R"(Constraint on the text, for example {"choice": ["yes", "no"]} or {"json": SCHEMA})")
      ->type_name("JSON");
  add_number(group, "--thinking-token-budget", params.thinking_token_budget,
             "Maximum number of tokens of thinking; then the server ends the thinking");
  add_number(group, "--priority", request.priority, "Priority, with the priority policy; lower numbers run first");
}

EngineConfig lazy_memory() {
  EngineConfig config;
  config.touch_memory = false;
  return config;
}

EngineFlags::EngineFlags(CLI::App& app, std::string default_log_level, const EngineConfig& defaults,
                         std::span<const std::string_view> keys)
    : config(defaults),
      default_touch_memory(defaults.touch_memory),
      log_level(std::move(default_log_level)),
      flags(app) {
  config.packed_cache = kAutomaticCache;
  flags.add_all(config, keys);
  add_log_level(flags, log_level);
}

std::vector<Error> EngineFlags::finish() {
  if (auto status = flags.read_file(); !status) return {std::move(status.error())};
  if (auto status = start_logging(log_level); !status) return {std::move(status.error())};
  // The command's own default is for a CPU. Only a default is changed; a GPU refuses a constraint that the user has
  // set.
  if (config.device != "cpu" && config.touch_memory == default_touch_memory) config.touch_memory = true;
  if (gpu_has_worker_process && config.device != "cpu" && !flags.is_given("worker_processes")) {
    config.worker_processes = true;
  }
  config.packed_cache = chosen_packed_cache(config.packed_cache, config.device);
  if (auto problems = config.validate(); !problems.empty()) return problems;
  if (auto status = locate_models(config); !status) return {std::move(status.error())};
  // Without memory for threads, starting the actor system would end the process without a message.
  if (kernels::available_cpu_memory() > 0) return {};
  return {{ErrorCode::out_of_memory, "there is no memory to start: " + kernels::describe_available_memory()}};
}

EngineSetup EngineFlags::setup() const {
  return {.device = nullptr,
          .progress = start_progress(),
          .worker_command = {"/proc/self/exe", "worker", "--log-level", log_level}};
}

}  // namespace pagoda::apps
