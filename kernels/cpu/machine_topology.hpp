#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cpu/thread_placement.hpp"
#include "kernels/result.hpp"

namespace pagoda::kernels {

/// The cores and NUMA nodes of this machine, and the binding of threads and memory to them, through hwloc. Immutable
/// and thread-safe.
class MachineTopology {
 public:
  /// Returns whether this build contains hwloc. Without hwloc, `load` fails.
  static bool in_build();

  /// Loads the cores that this process may run on (within its CPU mask and its cgroup). `synthetic` describes an
  /// imaginary machine instead (in hwloc's syntax, "numa:2 core:4 pu:2"), to which neither threads nor memory can be
  /// bound. Errors: unsupported if the build has no hwloc, internal if hwloc fails.
  static Result<std::shared_ptr<const MachineTopology>> load(const std::string& synthetic = "");

  const CpuTopology& cpus() const { return cpus_; }

  /// Binds the calling thread to `core`. Errors: bad_config if the system refuses.
  Status bind_this_thread(const CpuCore& core) const;

  /// Requests that pages of [data, data + bytes) that have not been touched yet are allocated on the nodes in turn. If
  /// the system refuses, each page is allocated on the node of the thread that touches it first. `data` is aligned to a
  /// page.
  void interleave(void* data, std::size_t bytes) const;

 private:
  struct Handle;
  explicit MachineTopology(std::shared_ptr<Handle> handle);

  std::shared_ptr<Handle> handle_;
  CpuTopology cpus_;
};

}  // namespace pagoda::kernels
