#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "kernels/result.hpp"

namespace pagoda::kv_events {

/// The key of all errors of this folder.
inline constexpr const char* kKey = "kv_events_config";

/// An address of a ZeroMQ socket, which is bound, or connected to a name of another machine.
struct Endpoint {
  std::string text;       ///< as it was given; empty: there is none
  std::string address;    ///< address of the first replica, without the port if it has one
  std::int32_t port = 0;  ///< port of the first replica; 0 = the address has none
  bool is_bound = true;   ///< false: the socket connects
  bool is_local = false;  ///< whether only processes of this machine reach it
  bool is_version_6 = false;

  bool empty() const { return text.empty(); }
  /// Returns the address of a replica, as ZeroMQ takes it. Each replica has the next port.
  std::string of_replica(std::int32_t replica) const;
};

/// Reads `tcp://HOST:PORT` or `ipc://PATH`. HOST is bound if it is *, localhost or a numeric address; another name is
/// connected to. `field` names the value in errors.
Result<Endpoint> read_endpoint(std::string_view field, const std::string& text);

/// Where and how the changes of the prefix caches are published. Names and defaults are those of vLLM's KVEventsConfig,
/// except for the default endpoint, which is this machine alone.
struct Config {
  bool is_on = false;
  Endpoint endpoint;
  Endpoint replay_endpoint;               ///< empty: missed batches cannot be asked for
  std::int64_t buffer_steps = 10'000;     ///< number of batches that are kept for replay
  std::int64_t hwm = 100'000;             ///< number of batches that wait for a slow subscriber; later ones are lost
  std::int64_t max_queue_size = 100'000;  ///< number of batches that wait to be sent; later ones are dropped
  std::string topic;
};

/// Reads a config from a JSON object, for an engine with this number of replicas. Errors: bad_config.
Result<Config> read_config(std::string_view json, std::int32_t num_replicas);

}  // namespace pagoda::kv_events
