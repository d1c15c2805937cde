#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "engine/types.hpp"

namespace pagoda {

/// State of a live request.
enum class RequestState : std::uint8_t {
  preparing,  ///< the prompt is being tokenized, the grammar compiled, or the adapter loaded
  waiting,    ///< the request waits for its turn, or to be computed again
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

/// The scheduler's facts about a group.
struct GroupProgress {
  RequestId id = 0;
  RequestState state = RequestState::waiting;
  std::int64_t generated_tokens = 0;  ///< number of generated tokens, finished sequences included
};

/// A live request, for operators of the engine. It contains nothing of the prompt or the output.
struct LiveRequest {
  RequestId id = 0;        ///< the engine's id
  std::string request_id;  ///< name that the client gives the request; empty = none
  std::string user;        ///< tenant
  std::string adapter;     ///< name of its adapter; empty = the base model
  RequestState state = RequestState::preparing;
  std::int64_t prompt_tokens = 0;  ///< number of tokens; 0 while the request is being prepared
  std::int64_t generated_tokens = 0;
  double age_s = 0;        ///< seconds since arrival
  ReplicaId replica = -1;  ///< the replica that runs it; -1 while the request is being prepared
};

}  // namespace pagoda
