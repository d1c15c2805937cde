#pragma once

#include <atomic>
#include <memory>

#include "actors/interfaces.hpp"

namespace pagoda::json_lines {

/// What the fake router saw, and is to say, for the test's thread.
struct FakeRouterCounts {
  std::atomic<int> submitted{0};
  std::atomic<int> live{0};
  std::atomic<int> cancelled{0};
  std::atomic<int> lost_sinks{0};
  std::atomic<int> resets{0};           ///< of the prefix cache
  std::atomic<int> views{0};            ///< how often it was asked what it is doing
  std::atomic<bool> overloaded{false};  ///< what it is to say of itself
};

/// A request router that makes up outputs: each request gets max_tokens deltas "w0 ", "w1 ", ... and then done. Its
/// prompt chooses the manner: "hold" gives one delta and waits for a cancel, "silent" none, "refuse" is refused, "fail"
/// ends with an error and "fail late" with two deltas before it, "flood" gives long deltas without end, "last words"
/// ends all requests with what they have and then the router, whose end is heard of first. The deltas of a request with
/// an adapter begin with the adapter's name in place of "w". It knows the adapters "sql" and "poet" at first; a path
/// that contains "damaged" cannot be loaded.
actors::RequestRouterActor spawn_fake_router(caf::actor_system& system, std::shared_ptr<FakeRouterCounts> counts);

}  // namespace pagoda::json_lines
