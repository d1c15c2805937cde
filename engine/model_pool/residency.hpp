#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>

#include "engine/types.hpp"

namespace pagoda::model_pool {

/// Where a model is between its files and memory.
enum class ModelState : std::uint8_t {
  unloaded,   ///< its files are known, and no part of it is in memory
  waiting,    ///< requests wait for the model, and the model waits for room
  loading,    ///< requests may wait for the model
  loaded,     ///< requests run at once
  unloading,  ///< its last outputs are being sent, or its memory is being freed
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

/// A keep-alive without end: the model stays until another model needs its room.
inline constexpr TimeUs kForever = -1;

/// The state of a model. One owner writes it; any thread may read it at any time.
struct Residency {
  std::atomic<ModelState> state = ModelState::unloaded;
  std::atomic<std::int64_t> waiting = 0;        ///< number of requests and questions that wait for the model
  std::atomic<std::int64_t> loads = 0;          ///< number of successful loads
  std::atomic<std::int64_t> load_failures = 0;  ///< number of failed loads
  std::atomic<std::int64_t> unloads = 0;
  std::atomic<TimeUs> last_load_us = 0;          ///< duration of the last successful load
  std::atomic<TimeUs> keep_alive_us = kForever;  ///< time that the model stays loaded without work
  /// Time when an idle model is unloaded unless it is used; 0: it has work, or stays.
  std::atomic<std::int64_t> expires_unix_s = 0;
};
using SharedResidency = std::shared_ptr<Residency>;

}  // namespace pagoda::model_pool
