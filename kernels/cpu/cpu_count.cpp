#include "kernels/cpu/cpu_count.hpp"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstddef>
#include <memory>
#include <thread>

#include <sched.h>
#include <unistd.h>

namespace pagoda::kernels {
namespace {

/// Returns the number of CPUs in the affinity mask of the process's main thread. With some C libraries,
/// std::thread::hardware_concurrency counts all CPUs of the machine instead.
int cpus_in_mask() {
#if defined(__linux__)
  constexpr int kMaxCpus = 1 << 20;
  for (int cpus = CPU_SETSIZE; cpus <= kMaxCpus; cpus *= 2) {
    const auto free_set = [](cpu_set_t* set) { CPU_FREE(set); };
    const std::unique_ptr<cpu_set_t, decltype(free_set)> set(CPU_ALLOC(cpus), free_set);
    const std::size_t bytes = CPU_ALLOC_SIZE(cpus);
    if (set == nullptr) break;
    if (sched_getaffinity(getpid(), bytes, set.get()) == 0) return CPU_COUNT_S(bytes, set.get());
    if (errno != EINVAL) break;  // otherwise the machine has more CPUs than the mask
  }
#endif
  return static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace

int UsableCpus::threads_for(int candidates) const {
  if (quota && quota->cpus < candidates) return std::max(1, static_cast<int>(std::floor(quota->cpus)));
  return std::max(1, candidates);
}

UsableCpus usable_cpus(const std::filesystem::path& root) {
  UsableCpus cpus;
  cpus.allowed = std::max(1, cpus_in_mask());
  cpus.online = std::max(cpus.allowed, static_cast<int>(sysconf(_SC_NPROCESSORS_ONLN)));
  cpus.quota = cpu_quota(root);
  return cpus;
}

}  // namespace pagoda::kernels
