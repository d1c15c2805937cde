#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "io/serving/request_counts.hpp"
#include "io/serving/request_record.hpp"

namespace pagoda::serving {

/// What a server of clients has open. Counted on its I/O thread, read from any.
struct ConnectionMeter {
  std::atomic<std::int64_t> open = 0;
  std::atomic<std::int64_t> accepted = 0;        ///< since it started
  std::atomic<std::int64_t> buffered_bytes = 0;  ///< that clients have sent or are to be sent, in memory
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

/// What the servers of a process have in common for those who watch them: each counts its connections, and tells the
/// observers of its requests.
struct Telemetry {
  ConnectionMeter http;
  ConnectionMeter json_lines;
  RequestObservers observers;  ///< not changed once a server runs
  RequestCounts counts;

  /// The answer to a request has ended.
  void ended(RequestRecord& record);
  /// What it had generated is told only now: its answer had ended before, or was another process's.
  void generated(RequestRecord& record);
  /// Metrics of all this.
  void write(metrics::PrometheusText& text) const;
};

}  // namespace pagoda::serving
