#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>

namespace pagoda::serving {

/// The events of a stream, as bytes, by their numbers: the first is 0. The oldest may have been dropped.
class EventHistory {
 public:
  /// What the list itself takes of each event.
  static constexpr std::size_t kEventBytes = sizeof(std::string);

  /// The oldest that is there, and the one behind the newest.
  std::uint64_t first() const { return first_; }
  std::uint64_t next() const { return first_ + events_.size(); }
  std::size_t bytes() const { return bytes_; }

  void add(std::string event) {
    bytes_ += event.size() + kEventBytes;
    events_.push_back(std::move(event));
  }
  /// One that is there.
  const std::string& at(std::uint64_t number) const { return events_[static_cast<std::size_t>(number - first_)]; }
  /// There must be one.
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
