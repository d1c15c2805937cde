#pragma once

/// Several CPU devices on one machine, each with a part of the threads.

#include <memory>
#include <string>

#include "kernels/device.hpp"
#include "kernels/result.hpp"

namespace pagoda::kernels {

/// One of several about equal parts of a machine's compute threads: that of one replica. Threads of different parts are
/// bound to different cores, and those of one part to as few NUMA nodes as possible.
struct CpuPart {
  int part = 0;
  int num_parts = 1;
};

/// As create_cpu_device of kernels/device.hpp, which creates the only part. `options.num_threads`, or its default,
/// counts for all parts. Pages of large buffers of one of several parts are on the nodes whose threads write them
/// first. Errors: also bad_config (fewer threads than parts).
Result<std::shared_ptr<Device>> create_cpu_device(const CpuDeviceOptions& options, const CpuPart& part);

/// Returns whether parts with this affinity are bound to different NUMA nodes on this machine, so that each reads
/// memory of its own faster than that of another part.
bool cpu_parts_have_own_nodes(const std::string& affinity);

}  // namespace pagoda::kernels
