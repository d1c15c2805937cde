#include "kernels/cpu/machine_topology.hpp"

#include <cerrno>
#include <cstring>
#include <map>
#include <utility>

#if defined(PAGODA_HAS_HWLOC)
#include <hwloc.h>
#endif

namespace pagoda::kernels {

#if defined(PAGODA_HAS_HWLOC)

namespace {

using Bitmap = std::unique_ptr<hwloc_bitmap_s, decltype(&hwloc_bitmap_free)>;

Bitmap new_bitmap() {
  return {hwloc_bitmap_alloc(), &hwloc_bitmap_free};
}

/// Returns the cores in hwloc's order, node by node; hardware threads if the system does not report cores.
CpuTopology read_cpus(hwloc_topology_t topology) {
  const hwloc_obj_type_t type = hwloc_get_nbobjs_by_type(topology, HWLOC_OBJ_CORE) > 0 ? HWLOC_OBJ_CORE : HWLOC_OBJ_PU;
  CpuTopology cpus;
  std::map<int, int> node_index;
  for (hwloc_obj_t core = nullptr; (core = hwloc_get_next_obj_by_type(topology, type, core)) != nullptr;) {
    const auto node = node_index.emplace(hwloc_bitmap_first(core->nodeset), static_cast<int>(node_index.size()));
    CpuCore found{node.first->second, {}};
    for (int cpu = hwloc_bitmap_first(core->cpuset); cpu >= 0; cpu = hwloc_bitmap_next(core->cpuset, cpu)) {
      found.cpus.push_back(cpu);
    }
    cpus.cores.push_back(std::move(found));
  }
  cpus.num_nodes = static_cast<int>(node_index.size());
  return cpus;
}

}  // namespace

struct MachineTopology::Handle {
  Handle() { hwloc_topology_init(&topology); }
  ~Handle() { hwloc_topology_destroy(topology); }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;

  Status load(const std::string& synthetic) {
    if (!synthetic.empty() && hwloc_topology_set_synthetic(topology, synthetic.c_str()) != 0) {
      return fail(ErrorCode::internal, "hwloc cannot read the machine description \"" + synthetic + "\"");
    }
    if (hwloc_topology_load(topology) != 0) {
      return fail(ErrorCode::internal,
                  std::string("hwloc cannot read this machine's topology: ") + std::strerror(errno));
    }
    if (!synthetic.empty()) return {};
    const Bitmap allowed = new_bitmap();
    if (hwloc_get_cpubind(topology, allowed.get(), HWLOC_CPUBIND_PROCESS) == 0) {
      hwloc_topology_restrict(topology, allowed.get(), HWLOC_RESTRICT_FLAG_REMOVE_CPULESS);
    }
    return {};
  }

  hwloc_topology_t topology = nullptr;
};

MachineTopology::MachineTopology(std::shared_ptr<Handle> handle)
    : handle_(std::move(handle)), cpus_(read_cpus(handle_->topology)) {}

bool MachineTopology::in_build() {
  return true;
}

Result<std::shared_ptr<const MachineTopology>> MachineTopology::load(const std::string& synthetic) {
  auto handle = std::make_shared<Handle>();
  if (auto status = handle->load(synthetic); !status) return fail(std::move(status.error()));
  return std::shared_ptr<const MachineTopology>(new MachineTopology(std::move(handle)));
}

Status MachineTopology::bind_this_thread(const CpuCore& core) const {
  const Bitmap cpus = new_bitmap();
  std::string list;
  for (const int cpu : core.cpus) {
    hwloc_bitmap_set(cpus.get(), static_cast<unsigned>(cpu));
    list += (list.empty() ? "" : ", ") + std::to_string(cpu);
  }
  if (hwloc_set_cpubind(handle_->topology, cpus.get(), HWLOC_CPUBIND_THREAD) == 0) return {};
  return fail(ErrorCode::bad_config, "cannot bind a thread to CPU " + list + ": " + std::strerror(errno),
              "cpu_affinity");
}

void MachineTopology::interleave(void* data, std::size_t bytes) const {
  hwloc_set_area_membind(handle_->topology, data, bytes, hwloc_topology_get_topology_nodeset(handle_->topology),
                         HWLOC_MEMBIND_INTERLEAVE, HWLOC_MEMBIND_BYNODESET);
}

#else

struct MachineTopology::Handle {};

bool MachineTopology::in_build() {
  return false;
}

Result<std::shared_ptr<const MachineTopology>> MachineTopology::load(const std::string&) {
  return fail(
      ErrorCode::unsupported,
      "cpu_affinity cores and numa need hwloc, which is not in this build: install libhwloc-dev and build again, "
      "or leave cpu_affinity at auto or none",
      "cpu_affinity");
}

Status MachineTopology::bind_this_thread(const CpuCore&) const {
  return {};
}

void MachineTopology::interleave(void*, std::size_t) const {}

#endif

}  // namespace pagoda::kernels
