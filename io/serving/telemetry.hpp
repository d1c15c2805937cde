#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "io/serving/ignored_field_counts.hpp"
#include "io/serving/request_counts.hpp"
#include "io/serving/request_record.hpp"
#include "kernels/result.hpp"

namespace pagoda::serving {

/// What a server of clients has open. Counted on its I/O thread, read from any.
struct ConnectionMeter {
  std::atomic<std::int64_t> open = 0;
  std::atomic<std::int64_t> accepted = 0;          ///< since it started
  std::atomic<std::int64_t> buffered_bytes = 0;    ///< that clients have sent or are to be sent, in memory
  std::atomic<std::int64_t> refused_for_room = 0;  ///< bodies and lines for which others left none, since it started
};

/// A connection's part of a meter, for as long as it lives.
class MeteredConnection {
 public:
  /// `meter` must outlive it.
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

  /// From now on.
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

/// Bytes that a client has sent and its connection has passed on, for as long as they are kept.
class MeteredBytes {
 public:
  MeteredBytes() = default;
  /// `meter` must outlive it.
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

/// What a request hears for whose bytes others leave no room: queue_full, and to try again.
Error no_room();

/// What the servers of a process have in common for those who watch them: each counts its connections, and tells the
/// observers of its requests.
struct Telemetry {
  static constexpr std::int64_t kMaxBufferedBytes = std::int64_t{1} << 30;

  std::int64_t max_buffered_bytes = kMaxBufferedBytes;  ///< of all connections; not changed once a server runs
  ConnectionMeter http;
  ConnectionMeter json_lines;
  RequestObservers observers;  ///< not changed once a server runs
  RequestCounts counts;
  IgnoredFieldCounts ignored_fields;

  /// Whether `more` bytes that a client wants to send may wait in memory beside what waits there. Answers to what runs
  /// are not held back: they have the bounds of their connections.
  bool has_room_for(std::uint64_t more) const;

  /// The answer to a request has ended.
  void ended(RequestRecord& record);
  /// What it had generated is told only now: its answer had ended before, or was another process's.
  void generated(RequestRecord& record);
  /// Metrics of all this.
  void write(metrics::PrometheusText& text) const;
};

}  // namespace pagoda::serving
