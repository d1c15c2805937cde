#pragma once

/// Facts that `pagoda doctor` knows about a machine, as plain values: probes read them, tests make them up.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace pagoda::apps {

struct ProcessorFacts {
  std::string name = {};  ///< as in /proc/cpuinfo; empty if it has none
  bool is_intel = false;
  int family = 0;
  int model = 0;
  bool is_x86 = false;
  std::string hypervisor_flag = {};           ///< "hypervisor" on a virtual machine
  std::vector<std::string> kernel_sets = {};  ///< sets that this build has and this machine runs, scalar first
  std::string chosen_set = {};                ///< set of --cpu-isa, or the fastest
  std::string wanted_set = {};                ///< --cpu-isa; empty: the fastest
  bool has_matrix_unit = false;               ///< whether the processor has AMX for bytes and bfloat16
  std::vector<std::string> governors = {};    ///< governors of cpufreq, each once; empty if they are not known
  std::string frequency_driver = {};          ///< scaling_driver; empty if it is not known
};

struct CoreFacts {
  int allowed_cpus = 0;  ///< number of hardware threads that this process may use
  int online_cpus = 0;   ///< number of hardware threads of the machine
  /// Number of cores of the allowed threads; 0: not known (a build without hwloc).
  int cores = 0;
  int nodes = 1;                          ///< number of NUMA nodes of these cores
  std::optional<double> quota_cpus = {};  ///< CPU time per second that cgroups allow
  std::string quota_limit = {};           ///< cgroup that has the quota
  int default_threads = 1;                ///< number of compute threads without --threads
  int wanted_threads = 0;                 ///< --threads; 0: default_threads
};

struct MemoryFacts {
  std::size_t total_bytes = 0;      ///< memory of the machine
  std::size_t available_bytes = 0;  ///< memory that this process may still take
  std::string limit = {};           ///< limit that makes available_bytes so low
  std::string huge_pages = {};      ///< "always", "madvise", "never"; empty if the kernel has none
  int overcommit = 0;               ///< vm.overcommit_memory
};

struct FileLimitFacts {
  std::uint64_t soft = 0;
  std::uint64_t hard = 0;
  std::uint64_t wanted_connections = 0;  ///< number of connections that the servers would take
};

struct GpuFacts {
  bool in_build = false;                  ///< whether the CUDA backend is in the build
  std::string driver = {};                ///< version of the kernel driver; empty: none is loaded
  std::vector<std::string> present = {};  ///< names of devices that the driver knows, without CUDA
  std::vector<std::string> usable = {};   ///< descriptions of devices on which Pagoda can run
  std::string problem = {};               ///< why no device is usable
  bool is_wanted = false;                 ///< whether --device cuda was given
};

struct PortFacts {
  std::string key = {};      ///< listen or http
  std::string address = {};  ///< HOST:PORT
  std::string problem = {};  ///< why the address cannot be served; empty: it can
};

struct ModelFacts {
  std::string path = {};
  std::string problem = {};        ///< why the model cannot be served; empty: it can
  std::uint64_t file_bytes = 0;    ///< size of the weight files
  std::uint64_t cached_bytes = 0;  ///< bytes of these files in the page cache
  /// "nfs", "fuse" and others whose reads leave the machine; empty: a local file system
  std::string filesystem = {};
  bool is_rotational = false;      ///< whether it is on a rotating disk
  std::uint64_t needed_bytes = 0;  ///< memory that serving takes; 0: not known
};

struct BuildFacts {
  std::string version = {};
  std::string compiler = {};
  bool cuda = false;
  std::string tls = {};       ///< name and version of the library
  bool core_binding = false;  ///< whether the build has hwloc
  bool line_editing = false;  ///< whether the build has libedit
  bool kv_events = false;     ///< whether the build has ZeroMQ
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
