#include "engine/model_pool/arrival_queue.hpp"

#include <algorithm>
#include <utility>

namespace pagoda::model_pool {
namespace {

/// Time after which a client may retry when the line was full or the model was not loaded in time.
constexpr int kRetryAfterMs = 5000;

Error full(std::string message) {
  return {ErrorCode::queue_full, std::move(message), "model", kRetryAfterMs};
}

}  // namespace

Result<ArrivalQueue::Ticket> ArrivalQueue::add(const Arrival& arrival, TimeUs now) {
  if (waiting_.size() >= limits_.max_waiting) {
    return fail(full("the model " + name_ + " is not loaded yet, and " + std::to_string(waiting_.size()) +
                     " requests wait for it, which is the limit"));
  }
  // A single arrival is accepted whatever its size, which the server limits.
  if (!waiting_.empty() && bytes_ + arrival.bytes > limits_.max_bytes) {
    return fail(full("the model " + name_ + " is not loaded yet, and the requests that wait for it hold " +
                     std::to_string(bytes_) + " bytes; the limit is " + std::to_string(limits_.max_bytes)));
  }
  const bool is_own_time = arrival.time_us && *arrival.time_us < limits_.max_wait_us;
  const TimeUs until = now + (is_own_time ? *arrival.time_us : limits_.max_wait_us);
  waiting_.emplace(++last_, Waiting{arrival, until, is_own_time});
  bytes_ += arrival.bytes;
  return last_;
}

void ArrivalQueue::forget(std::map<Ticket, Waiting>::iterator at) {
  bytes_ -= at->second.arrival.bytes;
  waiting_.erase(at);
}

std::optional<ArrivalQueue::Ticket> ArrivalQueue::take() {
  if (waiting_.empty()) return {};
  const Ticket first = waiting_.begin()->first;
  forget(waiting_.begin());
  return first;
}

std::optional<ArrivalQueue::Ticket> ArrivalQueue::cancel(ClientId client, std::uint64_t tag) {
  const auto found = std::ranges::find_if(waiting_, [&](const auto& entry) {
    return entry.second.arrival.client == client && entry.second.arrival.tag == tag;
  });
  if (found == waiting_.end()) return {};
  const Ticket ticket = found->first;
  forget(found);
  return ticket;
}

std::vector<ArrivalQueue::Ticket> ArrivalQueue::client_gone(ClientId client) {
  std::vector<Ticket> tickets;
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    const auto next = std::next(it);
    if (it->second.arrival.client == client) {
      tickets.push_back(it->first);
      forget(it);
    }
    it = next;
  }
  return tickets;
}

std::vector<ArrivalQueue::Expired> ArrivalQueue::expire(TimeUs now) {
  std::vector<Expired> expired;
  for (auto it = waiting_.begin(); it != waiting_.end();) {
    const auto next = std::next(it);
    if (it->second.until <= now) {
      constexpr TimeUs kUsPerS = 1'000'000;
      const auto seconds = std::to_string(limits_.max_wait_us / kUsPerS);
      expired.push_back({it->first, it->second.is_own_time
                                        ? Error{ErrorCode::timeout,
                                                "the request's time ran out before the model " + name_ + " was loaded"}
                                        : full("the model " + name_ + " was not loaded within " + seconds +
                                               " s: other models are in use, or it takes longer to load")});
      forget(it);
    }
    it = next;
  }
  return expired;
}

std::optional<TimeUs> ArrivalQueue::next_expiry() const {
  std::optional<TimeUs> next;
  for (const auto& [ticket, waiting] : waiting_) next = std::min(next.value_or(waiting.until), waiting.until);
  return next;
}

}  // namespace pagoda::model_pool
