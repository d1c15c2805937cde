#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "io/jinja/limits.hpp"
#include "io/jinja/object.hpp"

namespace pagoda::jinja {

/// Owns all objects that one template or one render creates, until it is destroyed: values are plain pointers into it,
/// so that cycles and deep nesting cost nothing. Counts work and bytes, and throws Failure beyond the limits. Not
/// thread-safe.
class Heap {
 public:
  explicit Heap(const Limits& limits)
      : limits_(limits), steps_left_(limits.max_steps), bytes_left_(limits.max_bytes_made) {}

  template <class T, class... Args>
  T* make(Args&&... args) {
    take(sizeof(T) + sizeof(void*));
    auto object = std::make_unique<T>(std::forward<Args>(args)...);
    T* made = object.get();
    objects_.push_back(std::move(object));
    return made;
  }

  /// Call before memory is allocated.
  void take(std::size_t bytes) {
    if (bytes > bytes_left_) throw Failure("the values of the template exceed the memory limit");
    bytes_left_ -= bytes;
  }

  void step(std::size_t steps = 1) {
    if (steps > steps_left_) throw Failure("the template exceeds the limit of rendering steps");
    steps_left_ -= steps;
  }
  /// Call before work on `bytes` bytes.
  void look_at(std::size_t bytes) { step(bytes / 64); }

  const Limits& limits() const { return limits_; }

 private:
  Limits limits_;
  std::size_t steps_left_;
  std::size_t bytes_left_;
  std::vector<std::unique_ptr<Object>> objects_;
};

}  // namespace pagoda::jinja
