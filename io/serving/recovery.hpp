#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "io/serving/recovered_request.hpp"

namespace pagoda::serving {

/// The requests that another process was serving, on their way into this one's engine. Servers take them up before they
/// let clients in. Thread-safe.
class Recovery {
 public:
  explicit Recovery(std::vector<RecoveredRequest> requests) : requests_(std::move(requests)) {
    num_unsettled_ = requests_.size();
  }

  /// Takes those out that came by this API: whoever does has to say of each that it is settled.
  std::vector<RecoveredRequest> requests_of(Api api);
  /// What no server has taken out is given up; how many.
  std::size_t give_up_rest();

  /// The engine has one of them, or it has ended.
  void settled();
  /// Waits for the last. False when that takes too long.
  bool wait_until_settled(std::chrono::seconds most);

  /// Called by complete. Before that.
  void on_complete(std::function<void()> callback);
  /// What was recovered lives here now, whatever comes.
  void complete();

 private:
  std::mutex mutex_;
  std::condition_variable all_settled_;
  std::vector<RecoveredRequest> requests_;
  std::size_t num_unsettled_ = 0;
  std::vector<std::function<void()>> on_complete_;
};

}  // namespace pagoda::serving
