#include "kernels/cpu/thread_placement.hpp"

#include <array>
#include <cstddef>
#include <string>
#include <utility>

namespace pagoda::kernels {
namespace {

constexpr std::array<std::pair<std::string_view, CpuAffinity>, 4> kNames{{{"auto", CpuAffinity::automatic},
                                                                          {"none", CpuAffinity::none},
                                                                          {"cores", CpuAffinity::cores},
                                                                          {"numa", CpuAffinity::numa}}};

/// Returns the cores in the order in which threads are assigned to them.
std::vector<std::size_t> order_of_cores(const CpuTopology& topology, CpuAffinity affinity) {
  std::vector<std::vector<std::size_t>> of_node(static_cast<std::size_t>(topology.num_nodes));
  for (std::size_t core = 0; core < topology.cores.size(); ++core) {
    of_node[static_cast<std::size_t>(topology.cores[core].node)].push_back(core);
  }
  std::vector<std::size_t> order;
  if (affinity == CpuAffinity::cores) {
    for (const auto& cores : of_node) order.insert(order.end(), cores.begin(), cores.end());
    return order;
  }
  for (std::size_t turn = 0; order.size() < topology.cores.size(); ++turn) {
    for (const auto& cores : of_node) {
      if (turn < cores.size()) order.push_back(cores[turn]);
    }
  }
  return order;
}

}  // namespace

Result<CpuAffinity> parse_affinity(std::string_view name) {
  for (const auto& [known, affinity] : kNames) {
    if (name == known) return affinity;
  }
  return fail(ErrorCode::bad_config,
              "cpu_affinity must be auto, none, cores or numa, not \"" + std::string(name) + "\"", "cpu_affinity");
}

CpuAffinity resolve_affinity(CpuAffinity affinity, const CpuTopology& topology) {
  if (affinity != CpuAffinity::automatic) return affinity;
  return topology.num_nodes > 1 ? CpuAffinity::numa : CpuAffinity::none;
}

std::vector<std::size_t> place_threads(const CpuTopology& topology, CpuAffinity affinity, int num_threads) {
  PAGODA_ASSERT(!topology.cores.empty(), "a machine has a core");
  const std::vector<std::size_t> order = order_of_cores(topology, affinity);
  std::vector<std::size_t> places;
  for (int thread = 0; thread < num_threads; ++thread) {
    places.push_back(order[static_cast<std::size_t>(thread) % order.size()]);
  }
  return places;
}

}  // namespace pagoda::kernels
