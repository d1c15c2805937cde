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

/// Jobs that wait for a thread. Next comes one of the user whose jobs have taken the least work lately, and of these
/// one of the request that has taken the least: whoever sends costly grammars waits behind everyone else. Not
/// thread-safe.
class MaskQueue {
 public:
  using Time = std::chrono::steady_clock::time_point;

  void push(MaskJob job);
  /// Takes the next job whose key is not among `busy`.
  std::optional<MaskJob> pop(const std::set<const void*>& busy);
  /// A job has taken `work`.
  void charge(const MaskJob& job, std::uint64_t work, Time now);
  bool empty() const { return waiting_.empty(); }

 private:
  struct User {
    double work = 0;                             ///< halved every second
    std::multimap<std::uint64_t, MaskJob> jobs;  ///< by the work of their requests
  };

  std::map<std::string, User> users_;
  std::set<User*> waiting_;                              ///< users with jobs
  std::map<RequestId, std::uint64_t> work_of_requests_;  ///< likewise
  Time halved_at_{};
};

}  // namespace pagoda::scheduling
