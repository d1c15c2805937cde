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

std::vector<std::size_t> in_turn(const std::vector<std::size_t>& cores, int num_threads) {
  PAGODA_ASSERT(!cores.empty(), "a machine has a core");
  std::vector<std::size_t> places;
  for (int thread = 0; thread < num_threads; ++thread) {
    places.push_back(cores[static_cast<std::size_t>(thread) % cores.size()]);
  }
  return places;
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
  return in_turn(order_of_cores(topology, affinity), num_threads);
}

std::vector<std::size_t> place_threads_of_part(const CpuTopology& topology, int part, int num_parts, int num_threads) {
  const std::vector<std::size_t> order = order_of_cores(topology, CpuAffinity::cores);
  const auto border = [&](int before) {
    return order.begin() + static_cast<std::ptrdiff_t>(order.size()) * before / num_parts;
  };
  std::vector<std::size_t> own(border(part), border(part + 1));
  if (own.empty()) own = order;  // there are more parts than cores
  return in_turn(own, num_threads);
}

}  // namespace pagoda::kernels
