#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>

#include "engine/types.hpp"

namespace pagoda::model_pool {

/// How a model is there.
enum class ModelState : std::uint8_t {
  unloaded,   ///< its files are known, and nothing of it is in memory
  waiting,    ///< requests wait for it, and it for room
  loading,    ///< requests may wait for it
  loaded,     ///< requests run at once
  unloading,  ///< its last outputs are on their way, or its memory
};

constexpr std::string_view to_string(ModelState state) {
  switch (state) {
    case ModelState::unloaded:
      return "unloaded";
    case ModelState::waiting:
      return "waiting";
    case ModelState::loading:
      return "loading";
    case ModelState::loaded:
      return "loaded";
    case ModelState::unloading:
      return "unloading";
  }
  return "unloaded";
}

/// What anybody may read of a model at any time, and whoever keeps it writes.
struct Residency {
  std::atomic<ModelState> state = ModelState::unloaded;
  std::atomic<std::int64_t> waiting = 0;        ///< requests and questions that wait for it
  std::atomic<std::int64_t> loads = 0;          ///< that have ended well
  std::atomic<std::int64_t> load_failures = 0;  ///< that have not
  std::atomic<std::int64_t> unloads = 0;
  std::atomic<TimeUs> last_load_us = 0;          ///< what the last good load took
  std::atomic<std::int64_t> expires_unix_s = 0;  ///< when it goes unless it is used; 0: not while this is so
};
using SharedResidency = std::shared_ptr<Residency>;

}  // namespace pagoda::model_pool
