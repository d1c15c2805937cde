#include "apps/serve_options.hpp"

#include <algorithm>
#include <utility>

#include "io/serving/api_keys.hpp"

namespace pagoda::apps {
namespace {

constexpr double kMaxDrainTimeout = 86400;
constexpr double kLeastStatsInterval = 0.1;

}  // namespace

ServeOptions::ServeOptions(CLI::App& app, const std::string& default_listen) : engine(app, "info") {
  engine.flags.also_positional("model", "MODEL", engine.config.model, "Folder of the model, or GGUF file");
  lines.listen = default_listen;
  engine.flags.add_all(lines);
  engine.flags.add_all(http);
  engine.flags.add("api_key_file", api_key_file, "File of API keys, one a line; clients must give one");
  engine.flags.bind_list(
      "api_key", api_key,
      "An API key, or several with commas; whoever sees this machine's processes sees it, so rather a "
      "file");
  engine.flags.add("admin_key_file", admin_key_file, "File of the keys that open the admin routes of the HTTP API");
  engine.flags.add("drain_timeout", drain_timeout,
                   "Seconds that live requests have to finish after SIGTERM, SIGINT or SIGHUP");
  engine.flags.add("access_log", access_log, "File to append a JSON line to for each request; -: standard output");
  engine.flags.add("log_stats_interval", log_stats_interval,
                   "Seconds between lines of throughput in the log while there is work; 0: none");
  engine.flags.add("otlp_traces_endpoint", otlp_traces_endpoint,
                   "http://HOST:PORT/v1/traces of an OpenTelemetry collector that gets a span for each request");
}

void ServeOptions::read_keys(const std::string& path, const char* key, std::vector<std::string>& keys,
                             std::vector<Error>& problems) {
  if (path.empty()) return;
  auto read = serving::read_api_keys(path);
  if (read) {
    keys = std::move(*read);
  } else {
    problems.push_back({ErrorCode::bad_config, std::string(key) + ": " + read.error().message, key});
  }
}

void ServeOptions::add_keys(std::vector<Error>& problems) {
  for (std::size_t begin = 0; !api_key.empty() && begin <= api_key.size();) {
    const auto end = std::min(api_key.find(',', begin), api_key.size());
    const auto key = api_key.substr(begin, end - begin);
    if (key.empty() || key.find_first_of(" \t\r\n") != std::string::npos) {
      problems.push_back(
          {ErrorCode::bad_config, "api_key must be one key, or several with commas, without spaces", "api_key"});
      return;
    }
    lines.api_keys.push_back(key);
    begin = end + 1;
  }
}

std::vector<Error> ServeOptions::finish() {
  auto problems = engine.finish();
  read_keys(api_key_file, "api_key_file", lines.api_keys, problems);
  read_keys(admin_key_file, "admin_key_file", http.admin_keys, problems);
  add_keys(problems);
  http.api_keys = lines.api_keys;
  lines.allow_unauthenticated = http.allow_unauthenticated;
  if (has_lines()) {
    for (auto& problem : lines.validate()) problems.push_back(std::move(problem));
  }
  for (auto& problem : http.validate()) problems.push_back(std::move(problem));
  if (!(drain_timeout >= 0 && drain_timeout <= kMaxDrainTimeout)) {
    problems.push_back({ErrorCode::bad_config, "drain_timeout must be from 0 to 86400 seconds", "drain_timeout"});
  }
  const bool has_interval = log_stats_interval >= kLeastStatsInterval && log_stats_interval <= kMaxDrainTimeout;
  if (!has_interval && log_stats_interval != 0) {
    problems.push_back(
        {ErrorCode::bad_config, "log_stats_interval must be 0, or from 0.1 to 86400 seconds", "log_stats_interval"});
  }
  return problems;
}

}  // namespace pagoda::apps
