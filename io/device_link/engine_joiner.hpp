#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "io/device_link/link_tls.hpp"
#include "kernels/result.hpp"

namespace pagoda::device_link {

struct JoinConfig {
  std::string engine;                ///< HOST:PORT of its JoinListener
  LinkFiles files;                   ///< the engine's certificate must name HOST
  std::vector<std::string> command;  ///< a program that calls run_worker_process, and its arguments
};

/// A worker for an engine on another host: connects to it, starts a process that works for it, and does so again
/// whenever either of them has ended.
class EngineJoiner {
 public:
  /// Errors name join, tls_cert, tls_key or tls_ca as their param: bad_config, io_failed. Whether the engine is there
  /// does not matter yet.
  static Result<std::unique_ptr<EngineJoiner>> create(JoinConfig config);
  ~EngineJoiner();

  /// Until SIGINT or SIGTERM comes, which end the process that works. Logs what happens.
  void run();

 private:
  class Loop;
  explicit EngineJoiner(std::unique_ptr<Loop> loop);

  std::unique_ptr<Loop> loop_;
};

}  // namespace pagoda::device_link
