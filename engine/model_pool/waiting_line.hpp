#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/types.hpp"
#include "kernels/result.hpp"

namespace pagoda::model_pool {

/// What waits for one model until it is loaded, in the order in which it came. Of what waits it knows only what says
/// how long it may.
class WaitingLine {
 public:
  using Ticket = std::uint64_t;  ///< in the order of arrival
  using ClientId = std::uint64_t;

  struct Limits {
    std::size_t max_waiting = 0;
    std::int64_t max_bytes = 0;  ///< of texts and tokens
    TimeUs max_wait_us = 0;
  };

  /// Of one that waits.
  struct Arrival {
    ClientId client = 0;
    std::optional<std::uint64_t> tag = {};  ///< of a request of the client; a question has none
    std::int64_t bytes = 0;                 ///< that it holds
    std::optional<TimeUs> time_us = {};     ///< that it may take at most, from now on
  };

  WaitingLine(std::string model_name, Limits limits) : name_(std::move(model_name)), limits_(limits) {}

  /// Errors: queue_full.
  Result<Ticket> add(const Arrival& arrival, TimeUs now);

  /// The first, which waits no longer.
  std::optional<Ticket> take();
  /// The client's request of that tag; all that is the client's: they wait no longer.
  std::optional<Ticket> cancel(ClientId client, std::uint64_t tag);
  std::vector<Ticket> client_gone(ClientId client);
  /// Those whose time is over, with what to tell them: the request's own time (timeout), or the line's (queue_full).
  struct Expired {
    Ticket ticket = 0;
    Error error;
  };
  std::vector<Expired> expire(TimeUs now);
  std::optional<TimeUs> next_expiry() const;

  std::size_t size() const { return waiting_.size(); }
  bool empty() const { return waiting_.empty(); }

 private:
  struct Waiting {
    Arrival arrival;
    TimeUs until = 0;
    bool is_own_time = false;  ///< the request's, not the line's
  };
  void forget(std::map<Ticket, Waiting>::iterator at);

  std::string name_;
  Limits limits_;
  std::map<Ticket, Waiting> waiting_;
  std::int64_t bytes_ = 0;
  Ticket last_ = 0;
};

}  // namespace pagoda::model_pool
