#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>

namespace pagoda::serving {

/// Carries events from CAF's threads to the I/O thread. Events that come together are handed over together, with one
/// wake-up. Thread-safe.
template <class Event>
class Outbox : public std::enable_shared_from_this<Outbox<Event>> {
 public:
  /// Called on the I/O thread with the events in order.
  using Deliver = std::function<void(std::vector<Event>&)>;

  Outbox(boost::asio::io_context& io, Deliver deliver) : io_(&io), deliver_(std::move(deliver)) {}

  /// Where there is no memory for it (std::bad_alloc), the events before and behind it are none the worse.
  void push(Event event) {
    const std::lock_guard lock(mutex_);
    if (io_ == nullptr) return;
    if (!is_posted_) boost::asio::post(*io_, [self = this->shared_from_this()] { self->hand_over(); });
    is_posted_ = true;
    events_.push_back(std::move(event));
  }

  /// I/O thread. Nothing is delivered after it, and `io` is not touched any more.
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
    // The delivery may close this outbox, which drops deliver_: keep what runs alive.
    if (const auto deliver = deliver_) deliver(events);
  }

  std::mutex mutex_;
  boost::asio::io_context* io_;  ///< null once closed
  std::vector<Event> events_;    ///< not handed over yet
  bool is_posted_ = false;       ///< a hand-over is on its way
  Deliver deliver_;              ///< I/O thread only
};

}  // namespace pagoda::serving
