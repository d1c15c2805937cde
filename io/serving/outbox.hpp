#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

namespace pagoda::serving {

/// Passes events from CAF's threads to the I/O thread. Events that are pushed before the I/O thread runs are delivered
/// in one call, with one wake-up. Thread-safe.
template <class Event>
class Outbox : public std::enable_shared_from_this<Outbox<Event>> {
 public:
  /// Called on the I/O thread with the events in order.
  using Deliver = std::function<void(std::vector<Event>&)>;

  Outbox(boost::asio::io_context& io, Deliver deliver) : io_(&io), deliver_(std::move(deliver)) {}

  /// Throws std::bad_alloc if there is no memory for the event. Earlier and later events are not affected.
  void push(Event event) {
    const std::lock_guard lock(mutex_);
    if (io_ == nullptr) return;
    if (!is_posted_) boost::asio::post(*io_, [self = this->shared_from_this()] { self->hand_over(); });
    is_posted_ = true;
    events_.push_back(std::move(event));
  }

  /// Call on the I/O thread. Drops the waiting events. Afterwards no event is delivered, and `io` is not used any more.
  void close() {
    {
      const std::lock_guard lock(mutex_);
      io_ = nullptr;
      events_.clear();
    }
    deliver_ = nullptr;
  }

 private:
  void hand_over() {
    std::vector<Event> events;
    {
      const std::lock_guard lock(mutex_);
      events.swap(events_);
      is_posted_ = false;
    }
    if (events.empty()) return;
    // deliver() may close this outbox, which clears deliver_: the copy keeps the running function alive.
    if (const auto deliver = deliver_) deliver(events);
  }

  std::mutex mutex_;
  boost::asio::io_context* io_;  ///< null once closed
  std::vector<Event> events_;    ///< events that are not delivered yet
  bool is_posted_ = false;       ///< whether a call of hand_over() is posted and has not run yet
  Deliver deliver_;              ///< I/O thread only
};

}  // namespace pagoda::serving
