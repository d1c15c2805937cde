#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/memory/kv_events.hpp"
#include "io/kv_events/config.hpp"
#include "io/metrics/metrics_source.hpp"
#include "kernels/result.hpp"

namespace pagoda::kv_events {

/// Publishes the changes of the prefix caches of an engine on ZeroMQ sockets, as vLLM does. Each replica has a PUB
/// socket, whose messages are [topic, sequence number, payload]: the number is 8 bytes, big-endian, and counts the
/// batches of the replica from 0 on. With a replay endpoint it also has a ROUTER socket: a request [empty, number] is
/// answered by [empty, topic, number, payload] for each batch from this number on that is still kept, and by [empty,
/// empty, -1, empty] at the end.
///
/// A thread of its own encodes and sends. A batch that finds max_queue_size batches waiting for this thread is dropped
/// and counted. It has taken its number, so observers see the gap.
class Publisher final : public memory::KvEventSink, public metrics::MetricsSource {
 public:
  /// Maximum bytes of the payloads that are kept for replay for each replica, and of the tokens that wait for the
  /// thread.
  static constexpr std::size_t kMaxKeptBytes = std::size_t{256} << 20U;

  /// Returns whether this build contains ZeroMQ. Without it `start` fails.
  static bool in_build();
  /// Binds or connects the sockets. Errors: unsupported, io_failed if a socket cannot be bound; the message has the
  /// endpoint.
  static Result<std::shared_ptr<Publisher>> start(const Config& config, std::int32_t num_replicas);
  /// As stop().
  ~Publisher() override;

  void publish(ReplicaId replica, memory::KvEventBatch batch) override;
  void name_adapter(AdapterId adapter, const std::string& name) override;
  void forget_adapter(AdapterId adapter) override;

  /// Sends the batches that wait, and closes the sockets. Later batches are ignored. Blocks for less than a second.
  void stop();

  struct Counts {
    std::int64_t published = 0;  ///< number of batches that were sent
    std::int64_t dropped = 0;    ///< number of batches that were not sent, because too many waited
  };
  Counts counts(ReplicaId replica) const;
  void write(metrics::PrometheusText& text) const override;

 private:
  struct State;
  explicit Publisher(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace pagoda::kv_events
