#include "io/kv_events/config.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

#include <arpa/inet.h>

#include "io/nearest_name.hpp"
#include "io/wire/json_reader.hpp"

namespace pagoda::kv_events {
namespace {

constexpr std::int32_t kMaxPort = 65535;
constexpr std::int64_t kMaxCount = 10'000'000;
constexpr std::size_t kMaxTopicBytes = 256;
constexpr std::size_t kMaxIpcPathBytes = 107;  // of a Unix socket
constexpr std::size_t kMaxDepth = 4;
constexpr const char* kDefaultEndpoint = "tcp://127.0.0.1:5557";
constexpr std::array<std::string_view, 8> kFields{"enable_kv_cache_events", "publisher",    "endpoint",
                                                  "replay_endpoint",        "buffer_steps", "hwm",
                                                  "max_queue_size",         "topic"};

tl::unexpected<Error> refuse(const std::string& what) {
  return fail(ErrorCode::bad_config, std::string(kKey) + ": " + what, kKey);
}

tl::unexpected<Error> refuse(std::string_view field, const std::string& expected, const wire::Json& given) {
  return refuse(std::string(field) + " must be " + expected + ", not " + given.dump());
}

bool is_numeric(int family, const std::string& host) {
  std::array<unsigned char, sizeof(in6_addr)> address{};
  return inet_pton(family, host.c_str(), address.data()) == 1;
}

/// Reads the fields of a config, and remembers the first error.
class Reader {
 public:
  explicit Reader(const wire::Json& object) : object_(object) {}

  void read(std::string_view field, bool& value) {
    if (const auto* given = find(field)) {
      if (given->is_boolean()) {
        value = given->get<bool>();
      } else {
        keep(refuse(field, "true or false", *given));
      }
    }
  }
  /// A null is an absent field, as in vLLM.
  void read(std::string_view field, std::optional<std::string>& value) {
    if (const auto* given = find(field); given != nullptr && !given->is_null()) {
      if (given->is_string()) {
        value = given->get<std::string>();
      } else {
        keep(refuse(field, "a string", *given));
      }
    }
  }
  void read(std::string_view field, std::int64_t least, std::int64_t& value) {
    if (const auto* given = find(field)) {
      if (given->is_number_integer() && *given >= least && *given <= kMaxCount) {
        value = given->get<std::int64_t>();
      } else {
        keep(refuse(field, "from " + std::to_string(least) + " to " + std::to_string(kMaxCount), *given));
      }
    }
  }
  void read(std::string_view field, const std::optional<std::string>& text, Endpoint& endpoint) {
    if (!text) return;
    if (auto read = read_endpoint(field, *text)) {
      endpoint = std::move(*read);
    } else {
      keep(tl::unexpected(std::move(read.error())));
    }
  }
  void keep(tl::unexpected<Error> error) {
    if (status_) status_ = std::move(error);
  }
  const Status& status() const { return status_; }

 private:
  const wire::Json* find(std::string_view field) const {
    const auto found = object_.find(field);
    return found == object_.end() ? nullptr : &*found;
  }

  const wire::Json& object_;
  Status status_;
};

/// Checks the ports of all replicas.
Status check_ports(const Config& config, std::int32_t num_replicas) {
  const auto check = [&](const char* field, const Endpoint& endpoint) -> Status {
    if (endpoint.empty() || num_replicas == 1) return {};
    if (endpoint.port == 0) {
      return refuse(std::string(field) + " must be tcp://HOST:PORT with data_parallel_size above 1, not " +
                    endpoint.text + ": each replica has a port of its own");
    }
    if (endpoint.port + num_replicas - 1 > kMaxPort) {
      return refuse(std::string(field) + " " + endpoint.text + ": replica " + std::to_string(num_replicas - 1) +
                    " would have port " + std::to_string(endpoint.port + num_replicas - 1) + ", above 65535");
    }
    return {};
  };
  if (auto status = check("endpoint", config.endpoint); !status) return status;
  if (auto status = check("replay_endpoint", config.replay_endpoint); !status) return status;
  const bool both_have_ports = config.endpoint.is_bound && config.endpoint.port > 0 && config.replay_endpoint.port > 0;
  if (both_have_ports && std::abs(config.endpoint.port - config.replay_endpoint.port) < num_replicas) {
    return refuse("the ports of endpoint " + config.endpoint.text + " and replay_endpoint " +
                  config.replay_endpoint.text + " must be at least " + std::to_string(num_replicas) +
                  " apart: replica i has port + i");
  }
  return {};
}

}  // namespace

std::string Endpoint::of_replica(std::int32_t replica) const {
  return port == 0 ? address : address + ":" + std::to_string(port + replica);
}

Result<Endpoint> read_endpoint(std::string_view field, const std::string& text) {
  const auto bad = [&](const std::string& why) {
    return refuse(std::string(field) + " must be tcp://HOST:PORT or ipc://PATH, not \"" + text + "\"" + why);
  };
  constexpr std::string_view kTcp = "tcp://";
  constexpr std::string_view kIpc = "ipc://";
  Endpoint endpoint;
  endpoint.text = text;
  if (text.starts_with(kIpc)) {
    const std::size_t length = text.size() - kIpc.size();
    if (length == 0 || length > kMaxIpcPathBytes) return bad(": PATH has 1 to 107 bytes");
    endpoint.address = text;
    endpoint.is_local = true;
    return endpoint;
  }
  if (!text.starts_with(kTcp)) return bad("");
  const std::size_t colon = text.rfind(':');
  if (colon < kTcp.size()) return bad("");
  std::string host = text.substr(kTcp.size(), colon - kTcp.size());
  const char* const end = text.data() + text.size();
  const auto [rest, error] = std::from_chars(text.data() + colon + 1, end, endpoint.port);
  if (error != std::errc() || rest != end || endpoint.port < 1 || endpoint.port > kMaxPort) {
    return bad(": PORT is from 1 to 65535");
  }
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (host == "localhost") host = "127.0.0.1";
  if (is_numeric(AF_INET6, host)) {
    endpoint.is_version_6 = true;
    endpoint.is_local = host == "::1";
    host = "[" + host + "]";
  } else if (is_numeric(AF_INET, host)) {
    endpoint.is_local = host.starts_with("127.");
  } else if (host != "*") {
    constexpr std::string_view kOfNames = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_";
    const bool is_name = !host.empty() && host.find_first_not_of(kOfNames) == std::string::npos &&
                         host.find_first_not_of("0123456789.") != std::string::npos;
    if (!is_name) return bad(": HOST is *, an address or a name");
    endpoint.is_bound = false;
  }
  endpoint.address = std::string(kTcp) + host;
  return endpoint;
}

Result<Config> read_config(std::string_view json, std::int32_t num_replicas) {
  const auto object = wire::read_json(json, kMaxDepth);
  if (!object) return refuse("must be a JSON object: " + object.error().message);
  if (!object->is_object()) return refuse("must be a JSON object, not " + object->dump());
  for (const auto& [field, value] : object->items()) {
    if (std::ranges::find(kFields, field) != kFields.end()) continue;
    const auto nearest = io::nearest_name(field, kFields);
    return refuse("unknown key \"" + field + "\"" +
                  (nearest.empty() ? "" : "; did you mean \"" + std::string(nearest) + "\"?"));
  }
  Config config;
  Reader reader(*object);
  bool is_enabled = false;
  std::optional<std::string> publisher, endpoint = kDefaultEndpoint, replay_endpoint, topic;
  reader.read("enable_kv_cache_events", is_enabled);
  reader.read("publisher", publisher);
  if (publisher && *publisher != "zmq" && *publisher != "null") {
    reader.keep(refuse("publisher must be zmq or null, not \"" + *publisher + "\""));
  }
  reader.read("endpoint", endpoint);
  reader.read("endpoint", endpoint, config.endpoint);
  reader.read("replay_endpoint", replay_endpoint);
  reader.read("replay_endpoint", replay_endpoint, config.replay_endpoint);
  if (!config.replay_endpoint.is_bound) {
    reader.keep(
        refuse("replay_endpoint must be * or an address of this machine, not \"" + config.replay_endpoint.text + "\""));
  }
  reader.read("buffer_steps", 1, config.buffer_steps);
  reader.read("hwm", 1, config.hwm);
  reader.read("max_queue_size", 1, config.max_queue_size);
  reader.read("topic", topic);
  config.topic = topic.value_or("");
  if (config.topic.size() > kMaxTopicBytes) reader.keep(refuse("topic must have at most 256 bytes"));
  if (!reader.status()) return fail(reader.status().error());
  config.is_on = is_enabled && publisher.value_or("zmq") == "zmq";
  if (config.is_on) {
    if (auto status = check_ports(config, num_replicas); !status) return fail(std::move(status.error()));
  }
  return config;
}

}  // namespace pagoda::kv_events
