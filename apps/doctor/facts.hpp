#pragma once

/// What `pagoda doctor` knows about a machine: plain values, which tests make up and the probes read.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pagoda::apps {

struct ProcessorFacts {
  std::string name = {};  ///< as /proc/cpuinfo has it; empty where it does not
  bool is_intel = false;
  int family = 0;
  int model = 0;
  bool is_x86 = false;
  std::string hypervisor_flag = {};           ///< "hypervisor" on a virtual machine
  std::vector<std::string> kernel_sets = {};  ///< that this build has and this machine runs, scalar first
  std::string chosen_set = {};                ///< that of --cpu-isa, or the fastest
  std::string wanted_set = {};                ///< --cpu-isa; empty: by itself
  std::vector<std::string> governors = {};    ///< of cpufreq, each once; empty where nothing tells
  std::string frequency_driver = {};          ///< scaling_driver; empty where nothing tells
};

struct CoreFacts {
  int allowed_cpus = 0;                   ///< hardware threads that this process may run on
  int online_cpus = 0;                    ///< of the machine
  int cores = 0;                          ///< that they belong to; 0: not known (a build without hwloc)
  int nodes = 1;                          ///< NUMA nodes of these
  std::optional<double> quota_cpus = {};  ///< CPU time a second that cgroups allow
  std::string quota_limit = {};           ///< which cgroup says so
  int default_threads = 1;                ///< compute threads without --threads
  int wanted_threads = 0;                 ///< --threads; 0: default_threads
};

struct MemoryFacts {
  std::size_t total_bytes = 0;      ///< of the machine
  std::size_t available_bytes = 0;  ///< that this process may still take
  std::string limit = {};           ///< which limit leaves so little
  std::string huge_pages = {};      ///< "always", "madvise", "never"; empty where the kernel has none
  int overcommit = 0;               ///< vm.overcommit_memory
};

struct FileLimitFacts {
  std::uint64_t soft = 0;
  std::uint64_t hard = 0;
  std::uint64_t wanted_connections = 0;  ///< that the servers would take
};

struct GpuFacts {
  bool in_build = false;                  ///< the CUDA backend
  std::string driver = {};                ///< version of the kernel's driver; empty: none is loaded
  std::vector<std::string> present = {};  ///< names that the driver knows, without CUDA
  std::vector<std::string> usable = {};   ///< what Pagoda can run on, described
  std::string problem = {};               ///< why there is none usable
  bool is_wanted = false;                 ///< --device cuda
};

struct PortFacts {
  std::string key = {};      ///< listen or http
  std::string address = {};  ///< HOST:PORT
  std::string problem = {};  ///< empty: it can be served
};

struct ModelFacts {
  std::string path = {};
  std::string problem = {};        ///< why it cannot be served; empty: it can
  std::uint64_t file_bytes = 0;    ///< of the weights' files
  std::uint64_t cached_bytes = 0;  ///< of these, in the page cache
  std::string filesystem = {};     ///< "nfs", "fuse" and such, where reads go elsewhere; empty: a local one
  bool is_rotational = false;      ///< on a disk that turns
  std::uint64_t needed_bytes = 0;  ///< memory that serving takes; 0: not known
};

struct BuildFacts {
  std::string version = {};
  std::string compiler = {};
  bool cuda = false;
  std::string tls = {};       ///< the library and its version
  bool core_binding = false;  ///< hwloc
  bool line_editing = false;  ///< libedit
  bool is_optimised = true;
  std::string sanitizer = {};  ///< empty: none
};

struct MachineFacts {
  BuildFacts build = {};
  ProcessorFacts processor = {};
  CoreFacts cores = {};
  MemoryFacts memory = {};
  FileLimitFacts files = {};
  GpuFacts gpu = {};
  std::vector<PortFacts> ports = {};
  std::optional<ModelFacts> model = {};
};

}  // namespace pagoda::apps
