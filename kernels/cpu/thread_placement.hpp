#pragma once

/// Which core each compute thread is bound to: a plan made of plain numbers, apart from the machine.

#include <cstdint>
#include <string_view>
#include <vector>

#include "kernels/result.hpp"

namespace pagoda::kernels {

/// automatic: numa on a machine of several NUMA nodes, none on others. none: the operating system moves threads as it
/// likes. cores: threads fill the cores in the machine's order, node by node. numa: threads take turns over the nodes,
/// so that the memory of each serves as many of them.
enum class CpuAffinity : std::uint8_t { automatic, none, cores, numa };

/// "auto", "none", "cores" or "numa"; another name is an error (bad_config).
Result<CpuAffinity> parse_affinity(std::string_view name);

/// A physical core that this process may run on.
struct CpuCore {
  int node = 0;           ///< NUMA node, in [0, num_nodes)
  std::vector<int> cpus;  ///< its hardware threads, as the operating system counts them

  bool operator==(const CpuCore&) const = default;
};

struct CpuTopology {
  std::vector<CpuCore> cores;
  int num_nodes = 1;
};

/// What automatic means on a machine: numa or none. Others are what they are.
CpuAffinity resolve_affinity(CpuAffinity affinity, const CpuTopology& topology);

/// The core of each thread, as an index of topology.cores, for cores and numa. Threads beyond the number of cores start
/// again at the first ones: they share a core, as its hardware threads. There must be a core.
std::vector<std::size_t> place_threads(const CpuTopology& topology, CpuAffinity affinity, int num_threads);

}  // namespace pagoda::kernels
