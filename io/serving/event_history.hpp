#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>

namespace pagoda::serving {

/// The events of a stream, as bytes. Events are numbered from 0. The oldest events may have been dropped.
class EventHistory {
 public:
  /// Bytes that the list itself takes for each event.
  static constexpr std::size_t kEventBytes = sizeof(std::string);

  /// Returns the number of the oldest event that is kept.
  std::uint64_t first() const { return first_; }
  /// Returns the number of the next event to be added.
  std::uint64_t next() const { return first_ + events_.size(); }
  std::size_t bytes() const { return bytes_; }

  void add(std::string event) {
    bytes_ += event.size() + kEventBytes;
    events_.push_back(std::move(event));
  }
  /// Requires first() <= number < next().
  const std::string& at(std::uint64_t number) const { return events_[static_cast<std::size_t>(number - first_)]; }
  /// Requires that an event is kept.
  void drop_oldest() {
    bytes_ -= events_.front().size() + kEventBytes;
    events_.pop_front();
    ++first_;
  }

 private:
  std::deque<std::string> events_;
  std::uint64_t first_ = 0;
  std::size_t bytes_ = 0;
};

}  // namespace pagoda::serving
