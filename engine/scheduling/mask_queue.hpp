#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "engine/scheduling/request_masks.hpp"

namespace pagoda::scheduling {

/// Jobs that wait for a thread. The next job is from the user whose jobs have taken the least work lately, and there
/// from the request that has taken the least. So a user with costly grammars waits behind all others. Not thread-safe.
class MaskQueue {
 public:
  using Time = std::chrono::steady_clock::time_point;

  void push(MaskJob job);
  /// Takes the next job whose key is not among `busy`.
  std::optional<MaskJob> pop(const std::set<const void*>& busy);
  /// Records the work that a job has taken.
  void charge(const MaskJob& job, std::uint64_t work, Time now);
  bool empty() const { return waiting_.empty(); }

 private:
  struct User {
    double work = 0;                             ///< work that its jobs have taken; halved every second
    std::multimap<std::uint64_t, MaskJob> jobs;  ///< jobs by the work of their requests
  };

  std::map<std::string, User> users_;
  std::set<User*> waiting_;                              ///< users with jobs
  std::map<RequestId, std::uint64_t> work_of_requests_;  ///< halved every second too
  Time halved_at_{};
};

}  // namespace pagoda::scheduling
