#pragma once

#include <cstdint>

namespace pagoda::metrics {

class PrometheusText;

/// Writes the system's metrics of this process, under the common names of Prometheus exporters (process_...). Values
/// that the system does not provide are left out.
void write_process_metrics(PrometheusText& text);

/// Returns the resident memory, in bytes, of another process on this machine; 0 if it cannot be read.
std::int64_t resident_bytes_of(std::int64_t pid);

}  // namespace pagoda::metrics
