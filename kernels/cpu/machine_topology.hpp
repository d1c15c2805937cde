#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cpu/thread_placement.hpp"
#include "kernels/result.hpp"

namespace pagoda::kernels {

/// The cores and NUMA nodes of this machine, and the binding of threads and memory to them, by hwloc. Immutable, so
/// any thread may call it.
class MachineTopology {
 public:
  /// Whether this build contains hwloc. Without it `load` is an error.
  static bool in_build();

  /// What this process may run on (its CPU mask and its cgroup are respected). `synthetic` describes an imaginary
  /// machine instead (in hwloc's words, "numa:2 core:4 pu:2"), to which nothing can be bound. Errors: the build has no
  /// hwloc (unsupported), hwloc cannot tell (internal).
  static Result<std::shared_ptr<const MachineTopology>> load(const std::string& synthetic = "");

  const CpuTopology& cpus() const { return cpus_; }

  /// From now on the calling thread runs on `core` alone. Errors: the system refuses it (bad_config).
  Status bind_this_thread(const CpuCore& core) const;

  /// Pages of [data, data + bytes) that have not been touched yet will lie on the nodes in turn. A wish: where the
  /// system does not grant it, they lie where they are touched first. `data` is aligned to a page.
  void interleave(void* data, std::size_t bytes) const;

 private:
  struct Handle;
  explicit MachineTopology(std::shared_ptr<Handle> handle);

  std::shared_ptr<Handle> handle_;
  CpuTopology cpus_;
};

}  // namespace pagoda::kernels
