#pragma once

#include <functional>
#include <optional>
#include <unordered_map>
#include <utility>

#include "engine/routing/router_core.hpp"

namespace pagoda::actors {

/// Holds one call for each job that waits for its turn. RouterCore decides whose turn it is. Part of the router's
/// state.
class PendingJobs {
 public:
  explicit PendingJobs(std::function<std::optional<routing::JobId>()> next) : next_(std::move(next)) {}

  void add(routing::JobId job, std::function<void()> ask) {
    waiting_.emplace(job, std::move(ask));
    feed();
  }
  void withdraw(routing::JobId job) { waiting_.erase(job); }
  /// Calls the jobs whose turn it is.
  void feed() {
    while (const auto job = next_()) waiting_.extract(*job).mapped()();
  }
  /// Calls all waiting jobs, because no job will get a turn any more. Each job gets an error, because the receiver has
  /// ended.
  void fail_all() {
    for (auto& [job, ask] : std::exchange(waiting_, {})) ask();
  }

 private:
  std::function<std::optional<routing::JobId>()> next_;
  std::unordered_map<routing::JobId, std::function<void()>> waiting_;
};

}  // namespace pagoda::actors
