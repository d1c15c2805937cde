#pragma once

#include <cstdint>

namespace pagoda::metrics {

class PrometheusText;

/// What the system tells of this process, under the names that all exporters have for it (process_...). What it does
/// not tell is left out.
void write_process_metrics(PrometheusText& text);

/// Of another process of this machine; 0 where it cannot be read.
std::int64_t resident_bytes_of(std::int64_t pid);

}  // namespace pagoda::metrics
