#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "io/device_link/link_tls.hpp"
#include "kernels/result.hpp"

namespace pagoda::device_link {

struct JoinConfig {
  std::string engine;                ///< HOST:PORT of the engine's JoinListener
  LinkFiles files;                   ///< the engine's certificate must name HOST
  std::vector<std::string> command;  ///< program that calls run_worker_process, with its arguments
};

/// Provides a worker for an engine on another host: connects to the engine and starts a worker process for it. When the
/// connection or the process ends, the joiner connects again.
class EngineJoiner {
 public:
  /// Does not connect yet. Errors, with the param join, tls_cert, tls_key or tls_ca: bad_config, io_failed.
  static Result<std::unique_ptr<EngineJoiner>> create(JoinConfig config);
  ~EngineJoiner();

  /// Runs until SIGINT or SIGTERM, which also end the worker process. Logs each event.
  void run();

 private:
  class Loop;
  explicit EngineJoiner(std::unique_ptr<Loop> loop);

  std::unique_ptr<Loop> loop_;
};

}  // namespace pagoda::device_link
