#pragma once

/// Assignment of compute threads to cores. It is computed from the numbers in a CpuTopology, not from the machine.

#include <cstdint>
#include <string_view>
#include <vector>

#include "kernels/result.hpp"

namespace pagoda::kernels {

/// Rule for the binding of threads to cores.
enum class CpuAffinity : std::uint8_t {
  automatic,  ///< numa on a machine with several NUMA nodes, none on other machines
  none,       ///< the operating system places threads
  cores,      ///< threads fill the cores in the machine's order, node by node
  numa        ///< threads are assigned to the nodes in turn, so that each node has about the same number of threads
};

/// Parses "auto", "none", "cores" or "numa"; any other name is an error (bad_config).
Result<CpuAffinity> parse_affinity(std::string_view name);

/// A physical core that this process may run on.
struct CpuCore {
  int node = 0;           ///< NUMA node, in [0, num_nodes)
  std::vector<int> cpus;  ///< the operating system's numbers of its hardware threads

  bool operator==(const CpuCore&) const = default;
};

struct CpuTopology {
  std::vector<CpuCore> cores;
  int num_nodes = 1;
};

/// Returns numa or none for automatic, depending on the machine; returns other values unchanged.
CpuAffinity resolve_affinity(CpuAffinity affinity, const CpuTopology& topology);

/// Returns the core of each thread, as an index of topology.cores. `affinity` is cores or numa. Threads beyond the
/// number of cores start again at the first core and share it. There must be at least one core.
std::vector<std::size_t> place_threads(const CpuTopology& topology, CpuAffinity affinity, int num_threads);

/// Returns the core of each thread of one of `num_parts` parts of the machine. Each part has about the same number of
/// cores, next to each other in the machine's order, node by node. Threads beyond the number of its cores start again
/// at its first core. Parts share cores only if there are fewer cores than parts.
std::vector<std::size_t> place_threads_of_part(const CpuTopology& topology, int part, int num_parts, int num_threads);

}  // namespace pagoda::kernels
