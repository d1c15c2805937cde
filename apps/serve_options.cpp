#include "apps/serve_options.hpp"

#include <algorithm>
#include <array>
#include <string>
#include <string_view>
#include <utility>

#include "apps/models_file.hpp"
#include "io/config_fields.hpp"
#include "io/kv_events/publisher.hpp"

namespace pagoda::apps {
namespace {

constexpr double kMaxDrainTimeout = 86400;
constexpr double kMinStatsInterval = 0.1;
constexpr std::int32_t kMaxLoadedModels = 1024;
constexpr double kMaxModelsMemory = 1 << 20;  // GiB

/// Keys of http::ServerConfig that the server of JSON lines uses too.
constexpr std::array<std::string_view, 5> kKeysOfBoth{"allow_unauthenticated", "log_prompts", "resume_window",
                                                      "max_resumable_streams", "resume_buffer_mib"};

bool is_of_http_alone(std::string_view key) {
  return key != "http" && std::ranges::find(kKeysOfBoth, key) == kKeysOfBoth.end();
}

}  // namespace

ServeOptions::ServeOptions(CLI::App& app, const std::string& default_listen) : engine(app, "info", lazy_memory()) {
  engine.gpu_has_worker_process = true;
  engine.flags.also_positional("model", "MODEL", engine.config.model, "Folder of the model, or GGUF file");
  lines.listen = default_listen;
  engine.flags.add_all(lines);
  engine.flags.add_all(http);
  engine.flags.add(
      "keys_file", keys.keys_file,
      "File of named keys with roles and limits, which pagoda key makes; clients must send a key, unless all "
      "keys are admin keys. SIGHUP reads all key files again");
  engine.flags.add("api_key_file", keys.api_key_file, "File of API keys, one on each line; clients must send a key");
  engine.flags.bind_list(
      "api_key", keys.api_key,
      "An API key, or several separated by commas. All users who can list the processes of this machine see it: "
      "prefer a file");
  engine.flags.add("admin_key_file", keys.admin_key_file,
                   "File of the keys that allow the admin routes of the HTTP API");
  engine.flags.add("drain_timeout", drain_timeout,
                   "Seconds that live requests have to finish after SIGTERM, SIGINT or SIGHUP");
  engine.flags.add("recover", recover,
                   "Journal of a server that has died: its resumable requests continue; may be the file of --journal");
  engine.flags.add("access_log", access_log, "File to append a JSON line to for each request; -: standard output");
  engine.flags.add("log_stats_interval", log_stats_interval,
                   "Seconds between lines of throughput in the log while there is work; 0: none");
  engine.flags.add("otlp_traces_endpoint", otlp_traces_endpoint,
                   "http://HOST:PORT/v1/traces of an OpenTelemetry collector that gets a span for each request");
  engine.flags.add(
      "kv_events_config", kv_events_config_,
      "vLLM's KVEventsConfig: publishes on ZeroMQ which blocks the prefix cache has, for routers that send "
      "a prompt where its beginning is cached");
  engine.flags.add("max_total_buffered_bytes", max_total_buffered_bytes,
                   "Bytes of requests and unsent answers of all connections, of JSON lines and HTTP, above which new "
                   "requests are refused");
  engine.flags.add("models", models,
                   "JSON file of several models, instead of MODEL. A model is loaded when a request names it; "
                   "the other flags are the defaults of its entries");
  engine.flags.add(
      "max_loaded_models", pool.max_loaded,
      "With --models: maximum number of models that are loaded at a time; the least recently used model is unloaded");
  engine.flags.add(
      "models_memory", pool.memory,
      "With --models: GiB that loaded models may take together on each device; 0: the memory that is free at start");
  engine.flags.add(
      "models_kept_memory", pool.kept_memory,
      "With --models: GiB of models_memory in which packed and quantised weights of unloaded models stay on a "
      "CPU; below 0: a quarter");
  engine.flags.add("model_keep_alive", model_keep_alive,
                   "With --models: seconds without requests after which a model is unloaded; below 0: never");
  add_text(
      app, "--tool-call-parser", tool_call_parser,
      "vLLM's name of the format of tool calls. It has no effect, because the format is read from the chat template; "
      "if the two differ, a line on standard error reports it");
  add_text(app, "--reasoning-parser", reasoning_parser,
           "vLLM's name of the format of thinking. It has no effect; if it differs from the chat template, a line on "
           "standard error reports it");
  engine.flags.add("model_load_timeout", pool.load_timeout,
                   "With --models: maximum time in seconds that a request waits for its model");
}

std::vector<Error> ServeOptions::finish() {
  auto problems = engine.finish();
  if (has_pool()) std::erase_if(problems, [](const Error& problem) { return problem.param == "model"; });
  http.keys->replace(keys.read(problems));
  lines.keys = http.keys;
  lines.allow_unauthenticated = http.allow_unauthenticated;
  lines.log_prompts = http.log_prompts;
  // Set before the servers get it: requests that are not recorded cannot be recovered.
  http.resume.is_recorded = !engine.config.journal.empty() && engine.config.journal_tokens;
  lines.resume = http.resume;
  if (has_lines()) {
    for (auto& problem : lines.validate()) problems.push_back(std::move(problem));
  }
  for (auto& problem : http.validate()) problems.push_back(std::move(problem));
  refuse_flags_of_no_server(problems);
  const std::int64_t least =
      std::max<std::int64_t>(http.http.empty() ? 0 : http.max_body_bytes, has_lines() ? lines.max_line_bytes : 0);
  if (!engine.flags.is_given("max_total_buffered_bytes")) {
    max_total_buffered_bytes = std::max(max_total_buffered_bytes, least);
  } else if (max_total_buffered_bytes < least) {
    problems.push_back({ErrorCode::bad_config,
                        "max_total_buffered_bytes must be at least max_body_bytes and max_line_bytes, " +
                            std::to_string(least) + ", not " + std::to_string(max_total_buffered_bytes),
                        "max_total_buffered_bytes"});
  }
  if (!(drain_timeout >= 0 && drain_timeout <= kMaxDrainTimeout)) {
    problems.push_back({ErrorCode::bad_config, "drain_timeout must be from 0 to 86400 seconds", "drain_timeout"});
  }
  if (!recover.empty() && !engine.config.journal_tokens) {
    problems.push_back(
        {ErrorCode::bad_config,
         "recover needs journal_tokens: without prompts and outputs in the journal no request can continue",
         "recover"});
  }
  if (!recover.empty() && http.resume.resume_window == 0) {
    problems.push_back({ErrorCode::bad_config,
                        "recover needs a resume_window: without it no client can return to its request", "recover"});
  }
  const bool has_interval = log_stats_interval >= kMinStatsInterval && log_stats_interval <= kMaxDrainTimeout;
  if (!has_interval && log_stats_interval != 0) {
    problems.push_back(
        {ErrorCode::bad_config, "log_stats_interval must be 0, or from 0.1 to 86400 seconds", "log_stats_interval"});
  }
  finish_kv_events(problems);
  if (has_pool()) {
    finish_pool(problems);
  } else {
    for (const char* key :
         {"max_loaded_models", "models_memory", "models_kept_memory", "model_keep_alive", "model_load_timeout"}) {
      if (engine.flags.is_given(key))
        problems.push_back({ErrorCode::bad_config, std::string(key) + " needs models", key});
    }
  }
  const bool has_updates =
      has_pool() ? std::ranges::any_of(pool.models, [](const auto& model) { return model.config.enable_lora_updates; })
                 : engine.config.enable_lora_updates;
  if (has_updates && !http.keys->has_admins()) {
    problems.push_back({ErrorCode::bad_config,
                        "enable_lora_updates needs an admin key: give admin_key_file, or an admin in keys_file",
                        "enable_lora_updates"});
  }
  return problems;
}

std::vector<WantedAddress> ServeOptions::addresses() const {
  std::vector<WantedAddress> wanted;
  if (has_lines()) {
    wanted.push_back({.key = "listen",
                      .address = lines.listen,
                      .has_keys = lines.keys->requires_keys(),
                      .allow_unauthenticated = lines.allow_unauthenticated});
  }
  if (!http.http.empty()) {
    wanted.push_back({.key = "http",
                      .address = http.http,
                      .has_keys = http.keys->requires_keys(),
                      .allow_unauthenticated = http.allow_unauthenticated,
                      .tls_cert = http.tls_cert,
                      .tls_key = http.tls_key});
  }
  return wanted;
}

/// Refuses flags of a server that is off. Looks only at the command line: a config file may be shared by several
/// servers.
void ServeOptions::refuse_flags_of_no_server(std::vector<Error>& problems) const {
  const auto refuse = [&](const char* key, const char* why) {
    if (const auto flag = engine.flags.flag_given(key); !flag.empty()) {
      problems.push_back({ErrorCode::bad_config, flag + why, key});
    }
  };
  if (http.http.empty()) {
    http::ServerConfig all;
    io::visit_fields(all, [&](const char* key, auto&, const char*) {
      if (is_of_http_alone(key)) refuse(key, " needs --http");
    });
  }
  if (!has_lines() && engine.flags.is_given("listen")) {
    json_lines::ServerConfig all;
    io::visit_fields(all, [&](const char* key, auto&, const char*) {
      if (std::string_view(key) != "listen") refuse(key, " is a key of JSON lines, which --listen none turns off");
    });
  }
}

void ServeOptions::finish_kv_events(std::vector<Error>& problems) {
  if (!engine.flags.is_given(kv_events::kKey)) return;
  auto read = kv_events::read_config(kv_events_config_.text, std::max(engine.config.data_parallel_size, 1));
  if (!read) {
    problems.push_back(std::move(read.error()));
    return;
  }
  kv_events = std::move(*read);
  if (!kv_events.is_on) return;
  const auto refuse = [&](const std::string& why, ErrorCode code = ErrorCode::bad_config) {
    problems.push_back({code, std::string(kv_events::kKey) + why, kv_events::kKey});
  };
  if (!kv_events::Publisher::in_build()) {
    refuse(" needs ZeroMQ, which is not in this build: install libzmq3-dev and build again", ErrorCode::unsupported);
  }
  if (has_pool()) refuse(" belongs to one model: it cannot be used with --models");
  if (!engine.config.enable_prefix_caching) {
    refuse(" needs enable_prefix_caching: it publishes which blocks the prefix cache has");
  }
  if (!engine.config.journal.empty() && !engine.config.journal_tokens) {
    refuse(" needs journal_tokens: events have the tokens of prompts");
  }
}

void ServeOptions::finish_pool(std::vector<Error>& problems) {
  const auto check = [&](bool is_fine, const char* key, const char* what) {
    if (!is_fine) problems.push_back({ErrorCode::bad_config, std::string(key) + " must be " + what, key});
  };
  check(pool.max_loaded >= 1 && pool.max_loaded <= kMaxLoadedModels, "max_loaded_models", "from 1 to 1024");
  check(pool.memory >= 0 && pool.memory <= kMaxModelsMemory, "models_memory", "GiB, or 0");
  check(pool.kept_memory <= kMaxModelsMemory, "models_kept_memory", "GiB, or below 0");
  check(model_keep_alive <= kMaxDrainTimeout * 365, "model_keep_alive", "seconds; below 0: forever");
  check(pool.load_timeout > 0 && pool.load_timeout <= kMaxDrainTimeout, "model_load_timeout",
        "above 0 and up to 86400 seconds");
  for (const char* key : {"model", "served_model_name", "trace", "journal"}) {
    if (!engine.flags.is_given(key)) continue;
    problems.push_back({ErrorCode::bad_config,
                        std::string(key) + " belongs to one model: with --models, set it for each model in the file",
                        key});
  }
  if (!recover.empty()) {
    problems.push_back(
        {ErrorCode::bad_config, "recover belongs to one model: it cannot be used with --models", "recover"});
  }
  // With several models no worker process would live long. Their engines share a GPU in one process.
  if (!engine.flags.is_given("worker_processes")) engine.config.worker_processes = false;
  const ModelDefaults defaults{.config = engine.config,
                               .keep_alive = model_keep_alive,
                               .sets_touch_memory = engine.flags.is_given("touch_memory"),
                               .sets_weight_memory = engine.flags.is_given("weight_memory"),
                               .sets_packed_cache = engine.flags.is_given("packed_cache")};
  pool.models = read_models_file(models, defaults, problems);
}

}  // namespace pagoda::apps
