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

/// The requests and questions that wait for one model until it is loaded, in the order of their arrival. The line knows
/// of them only what limits their wait.
class ArrivalQueue {
 public:
  using Ticket = std::uint64_t;  ///< in the order of arrival
  using ClientId = std::uint64_t;

  struct Limits {
    std::size_t max_waiting = 0;
    std::int64_t max_bytes = 0;  ///< limit of the bytes of texts and tokens
    TimeUs max_wait_us = 0;
  };

  /// A request or question that waits.
  struct Arrival {
    ClientId client = 0;
    std::optional<std::uint64_t> tag = {};  ///< tag of a client's request; a question has none
    std::int64_t bytes = 0;                 ///< bytes of texts and tokens that it holds
    std::optional<TimeUs> time_us = {};     ///< time that it may take at most, from now on
  };

  ArrivalQueue(std::string model_name, Limits limits) : name_(std::move(model_name)), limits_(limits) {}

  /// Adds an arrival to the end of the line. Errors: queue_full.
  Result<Ticket> add(const Arrival& arrival, TimeUs now);

  /// Removes the first arrival and returns its ticket.
  std::optional<Ticket> take();
  /// Remove the client's request with that tag, or all that the client has in the line.
  std::optional<Ticket> cancel(ClientId client, std::uint64_t tag);
  std::vector<Ticket> client_gone(ClientId client);
  /// An arrival whose time is over, with its error: timeout if its own time is over, queue_full if the line's is.
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
    bool is_own_time = false;  ///< whether `until` is the request's own time, not the line's
  };
  void forget(std::map<Ticket, Waiting>::iterator at);

  std::string name_;
  Limits limits_;
  std::map<Ticket, Waiting> waiting_;
  std::int64_t bytes_ = 0;
  Ticket last_ = 0;
};

}  // namespace pagoda::model_pool
