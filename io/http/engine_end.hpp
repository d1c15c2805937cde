#pragma once

#include <functional>
#include <unordered_map>
#include <utility>

namespace pagoda::http {

/// Calls registered callbacks when the engine ends. Each answer that waits for the engine registers a callback. I/O
/// thread only.
class EngineEnd {
 public:
  /// Registers `on_end` under the key `who`, until unsubscribe(who). `on_end` may remove any entry.
  void subscribe(const void* who, std::function<void()> on_end) { waiting_.insert_or_assign(who, std::move(on_end)); }
  void unsubscribe(const void* who) { waiting_.erase(who); }

  /// Call when the engine has ended. Calls and removes every registered `on_end`.
  void notify_all() {
    while (!waiting_.empty()) waiting_.extract(waiting_.begin()).mapped()();
  }

 private:
  std::unordered_map<const void*, std::function<void()>> waiting_;
};

}  // namespace pagoda::http
