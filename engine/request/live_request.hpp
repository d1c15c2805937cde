#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/types.hpp"

namespace pagoda {

/// How far a live request has come.
enum class RequestState : std::uint8_t {
  preparing,  ///< its prompt is tokenized, or its grammar compiled
  waiting,    ///< for its turn, or to be computed again
  running,
  swapped,
};

constexpr std::string_view to_string(RequestState state) {
  switch (state) {
    case RequestState::preparing:
      return "preparing";
    case RequestState::waiting:
      return "waiting";
    case RequestState::running:
      return "running";
    case RequestState::swapped:
      return "swapped";
  }
  return "";
}

/// What the scheduler knows of a group.
struct GroupProgress {
  RequestId id = 0;
  RequestState state = RequestState::waiting;
  std::int64_t generated_tokens = 0;  ///< of its sequences that are there
};

/// A live request, for whoever runs the engine: nothing of its prompt or its output.
struct LiveRequest {
  RequestId id = 0;        ///< the engine's
  std::string request_id;  ///< what its client calls it; empty: nothing
  std::string user;        ///< its tenant
  RequestState state = RequestState::preparing;
  std::int64_t prompt_tokens = 0;  ///< 0 while it is prepared
  std::int64_t generated_tokens = 0;
  double age_s = 0;  ///< since it came
};

}  // namespace pagoda
