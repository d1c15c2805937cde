#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "io/kv_events/config.hpp"
#include "io/metrics/metrics_source.hpp"
#include "io/serving/ignored_field_counts.hpp"
#include "io/serving/request_counts.hpp"
#include "io/serving/request_record.hpp"
#include "kernels/result.hpp"

namespace pagoda::serving {

/// Counts of a server's connections. Its I/O thread updates them; any thread may read them.
struct ConnectionMeter {
  std::atomic<std::int64_t> open = 0;
  std::atomic<std::int64_t> accepted = 0;          ///< connections accepted since the start
  std::atomic<std::int64_t> buffered_bytes = 0;    ///< bytes in memory that clients sent or that will be sent to them
  std::atomic<std::int64_t> refused_for_room = 0;  ///< bodies and lines refused since the start for lack of room
};

/// Counts one connection in a meter while the object lives.
class MeteredConnection {
 public:
  /// `meter` must outlive the object.
  explicit MeteredConnection(ConnectionMeter& meter) : meter_(meter) {
    meter_.open.fetch_add(1, std::memory_order_relaxed);
    meter_.accepted.fetch_add(1, std::memory_order_relaxed);
  }
  ~MeteredConnection() {
    buffers(0);
    meter_.open.fetch_sub(1, std::memory_order_relaxed);
  }
  MeteredConnection(const MeteredConnection&) = delete;
  MeteredConnection& operator=(const MeteredConnection&) = delete;

  /// Sets the number of bytes that the connection buffers.
  void buffers(std::size_t num_bytes) {
    const auto now = static_cast<std::int64_t>(num_bytes);
    if (now == buffered_) return;
    meter_.buffered_bytes.fetch_add(now - buffered_, std::memory_order_relaxed);
    buffered_ = now;
  }

 private:
  ConnectionMeter& meter_;
  std::int64_t buffered_ = 0;
};

/// Counts bytes in a meter while the object lives. Use it for bytes that a connection has received and passed on, and
/// that are still in memory.
class MeteredBytes {
 public:
  MeteredBytes() = default;
  /// `meter` must outlive the object.
  MeteredBytes(ConnectionMeter& meter, std::size_t num_bytes)
      : meter_(&meter), num_bytes_(static_cast<std::int64_t>(num_bytes)) {
    meter_->buffered_bytes.fetch_add(num_bytes_, std::memory_order_relaxed);
  }
  ~MeteredBytes() {
    if (meter_ != nullptr) meter_->buffered_bytes.fetch_sub(num_bytes_, std::memory_order_relaxed);
  }
  MeteredBytes(MeteredBytes&& other) noexcept
      : meter_(std::exchange(other.meter_, nullptr)), num_bytes_(other.num_bytes_) {}
  MeteredBytes& operator=(MeteredBytes&& other) noexcept {
    std::swap(meter_, other.meter_);
    std::swap(num_bytes_, other.num_bytes_);
    return *this;
  }

 private:
  ConnectionMeter* meter_ = nullptr;
  std::int64_t num_bytes_ = 0;
};

/// Returns the error of a request that is refused because too many bytes are buffered: queue_full, with a time after
/// which to try again.
Error no_room();

/// Observation data that all servers of a process share. Each server counts its connections and reports its requests to
/// the observers.
struct Telemetry {
  static constexpr std::int64_t kMaxBufferedBytes = std::int64_t{1} << 30;

  std::int64_t max_buffered_bytes = kMaxBufferedBytes;  ///< for all connections; not changed once a server runs
  ConnectionMeter http;
  ConnectionMeter json_lines;
  RequestObservers observers;  ///< not changed once a server runs
  RequestCounts counts;
  IgnoredFieldCounts ignored_fields;
  /// Other parts of the server that have metrics; not changed once a server runs.
  std::vector<std::shared_ptr<const metrics::MetricsSource>> sources;
  /// Where the changes of prefix caches are published; not changed once a server runs.
  kv_events::Config kv_events;

  /// Returns whether `more` bytes from a client may be buffered in addition to the bytes that are buffered already. The
  /// limit does not apply to answers of running requests, which the limits of their connections bound.
  bool has_room_for(std::uint64_t more) const;

  /// Call when the answer to a request has ended: counts it and reports it to the observers.
  void ended(RequestRecord& record);
  /// Reports a request to the observers without counting it: its answer ended before, or an earlier process gave it.
  void generated(RequestRecord& record);
  /// Writes the metrics of the counts, the observers and the sources.
  void write(metrics::PrometheusText& text) const;
};

}  // namespace pagoda::serving
