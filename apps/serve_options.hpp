#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/flags.hpp"
#include "apps/server_keys.hpp"
#include "apps/wanted_address.hpp"
#include "io/kv_events/config.hpp"
#include "io/serving/telemetry.hpp"
#include "pagoda/model_pool.hpp"

namespace pagoda::apps {

/// The flags of `pagoda serve`: those of its engines, of its servers, and the files of keys.
struct ServeOptions {
  /// Value of --listen that turns JSON lines off.
  static constexpr const char* kNoListen = "none";

  /// `default_listen`: default address of JSON lines.
  explicit ServeOptions(CLI::App& app, const std::string& default_listen = json_lines::ServerConfig().listen);

  /// Reads the named files and validates. Call after parsing. Returns all problems at once.
  std::vector<Error> finish();

  /// Returns the addresses on which it will listen.
  std::vector<WantedAddress> addresses() const;

  bool has_lines() const { return lines.listen != kNoListen; }
  /// Returns whether it serves several models that are loaded and unloaded, instead of one.
  bool has_pool() const { return !models.empty(); }

  EngineFlags engine;
  json_lines::ServerConfig lines;
  http::ServerConfig http;
  KeySources keys;
  double drain_timeout = 30;
  std::string access_log;
  std::int64_t max_total_buffered_bytes = serving::Telemetry::kMaxBufferedBytes;
  double log_stats_interval = 10;
  std::string otlp_traces_endpoint;
  std::string models;             ///< path of the models file
  double model_keep_alive = 300;  ///< seconds; below 0: for ever
  ModelPoolConfig pool;           ///< set by finish(), with the models of the file
  std::string recover;            ///< path of the journal to recover
  kv_events::Config kv_events;    ///< set by finish()
  std::string tool_call_parser;   ///< vLLM's name for the format of tool calls; empty: not given
  std::string reasoning_parser;   ///< vLLM's name for the format of thoughts; empty: not given

 private:
  void refuse_flags_of_no_server(std::vector<Error>& problems) const;
  void finish_pool(std::vector<Error>& problems);
  void finish_kv_events(std::vector<Error>& problems);

  JsonText kv_events_config_;
};

}  // namespace pagoda::apps
