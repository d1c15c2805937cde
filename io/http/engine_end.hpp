#pragma once

#include <functional>
#include <unordered_map>
#include <utility>

namespace pagoda::http {

/// Those whose answers wait for the engine, so that they hear of its end. I/O thread only.
class EngineEnd {
 public:
  /// Until it is forgotten. `on_end` may forget anybody.
  void tell(const void* who, std::function<void()> on_end) { waiting_.insert_or_assign(who, std::move(on_end)); }
  void forget(const void* who) { waiting_.erase(who); }

  /// The engine has ended: everybody hears it once.
  void announce() {
    while (!waiting_.empty()) waiting_.extract(waiting_.begin()).mapped()();
  }

 private:
  std::unordered_map<const void*, std::function<void()>> waiting_;
};

}  // namespace pagoda::http
