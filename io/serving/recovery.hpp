#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "io/serving/recovered_request.hpp"

namespace pagoda::serving {

/// The requests of an earlier process, until this process's engine has them. Servers take them up before they accept
/// clients. Thread-safe.
class Recovery {
 public:
  explicit Recovery(std::vector<RecoveredRequest> requests) : requests_(std::move(requests)) {
    num_unsettled_ = requests_.size();
  }

  /// Returns the paths of the adapters that the live requests use, by their names.
  std::map<std::string, std::string> adapters();
  /// Removes and returns the requests that came by `api`. Call on_settled() once for each of them.
  std::vector<RecoveredRequest> requests_of(Api api);
  /// Gives up the requests that no server has taken and returns their number.
  std::size_t give_up_rest();

  /// Call when the engine has accepted one of the requests, or the request has ended.
  void on_settled();
  /// Waits until all requests are settled. Returns false if they are not settled after `most`.
  bool wait_until_settled(std::chrono::seconds most);

  /// Registers a callback for complete(). Call before complete().
  void on_complete(std::function<void()> callback);
  /// Call once when the recovery is complete: from now on this process owns the recovered requests. Calls the
  /// callbacks.
  void complete();

 private:
  std::mutex mutex_;
  std::condition_variable all_settled_;
  std::vector<RecoveredRequest> requests_;
  std::size_t num_unsettled_ = 0;
  std::vector<std::function<void()>> on_complete_;
};

}  // namespace pagoda::serving
