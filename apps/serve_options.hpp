#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/flags.hpp"
#include "apps/server_keys.hpp"
#include "apps/wanted_address.hpp"
#include "io/serving/telemetry.hpp"
#include "pagoda/model_pool.hpp"

namespace pagoda::apps {

/// What `pagoda serve` is told: the flags of every engine, those of its servers, and the files of keys.
struct ServeOptions {
  /// The word for --listen that leaves JSON lines out.
  static constexpr const char* kNoListen = "none";

  /// `default_listen`: where JSON lines are served unless told.
  explicit ServeOptions(CLI::App& app, const std::string& default_listen = json_lines::ServerConfig().listen);

  /// After parsing: reads the files that are named and validates. Returns every problem at once.
  std::vector<Error> finish();

  /// Where it is to listen.
  std::vector<WantedAddress> addresses() const;

  bool has_lines() const { return lines.listen != kNoListen; }
  /// Whether it serves models that come and go, and not one.
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
  std::string models;             ///< file
  double model_keep_alive = 300;  ///< seconds; below 0: for ever
  ModelPoolConfig pool;           ///< once it is finished, with the models of the file
  std::string recover;            ///< file of a journal
  std::string tool_call_parser;   ///< vLLM's name of how the model writes calls; empty: none is given
  std::string reasoning_parser;   ///< vLLM's name of how the model writes thoughts; empty: none is given

 private:
  void refuse_flags_of_no_server(std::vector<Error>& problems) const;
  void finish_pool(std::vector<Error>& problems);
};

}  // namespace pagoda::apps
