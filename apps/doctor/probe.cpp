#include "apps/doctor/probe.hpp"

#include <algorithm>

#include <openssl/crypto.h>
#include <sys/resource.h>
#include <unistd.h>

#include "apps/line_input.hpp"
#include "io/kv_events/publisher.hpp"
#include "io/version.hpp"
#include "kernels/cpu/cpu_count.hpp"
#include "kernels/cpu/isa.hpp"
#include "kernels/cpu/machine_topology.hpp"
#include "kernels/cpu/memory_limits.hpp"
#include "kernels/cpu/proc_files.hpp"
#include "kernels/cuda/cuda_device.hpp"

namespace pagoda::apps {
namespace {

namespace fs = std::filesystem;
using kernels::below_root;
using kernels::first_line_of;
using kernels::lines_of;
using kernels::number_after;
using kernels::number_in;

#if defined(__clang__)
constexpr const char* kCompiler = "Clang " __clang_version__;
#else
constexpr const char* kCompiler = "GCC " __VERSION__;
#endif

/// Returns the text after "key : " in a file of such lines; empty if the key is missing.
std::string value_of(const std::vector<std::string>& lines, const std::string& key) {
  for (const auto& line : lines) {
    const auto colon = line.find(':');
    if (colon == std::string::npos || !line.starts_with(key)) continue;
    if (line.find_first_not_of(" \t", key.size()) != colon) continue;
    const auto begin = line.find_first_not_of(" \t", colon + 1);
    return begin == std::string::npos ? "" : line.substr(begin);
  }
  return "";
}

int small_number_in(const std::string& text) {
  constexpr std::size_t kMost = 1 << 20;
  return static_cast<int>(std::min(number_in(text).value_or(0), kMost));
}

std::vector<fs::path> folders_in(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> found;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    found.push_back(entry->path());
  }
  std::ranges::sort(found);
  return found;
}

/// Returns the word in brackets of a line such as "always [madvise] never".
std::string chosen_word(const std::string& line) {
  const auto open = line.find('[');
  const auto close = line.find(']', open == std::string::npos ? 0 : open);
  if (open == std::string::npos || close == std::string::npos) return "";
  return line.substr(open + 1, close - open - 1);
}

/// Returns the version in "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.161.08  ...": the first word of digits
/// and points.
std::string driver_version(const std::string& line) {
  for (const auto& word : kernels::words_of(line)) {
    const bool is_version =
        word.find('.') != std::string::npos && word.find_first_not_of("0123456789.") == std::string::npos;
    if (is_version) return word;
  }
  return "";
}

}  // namespace

BuildFacts probe_build() {
  BuildFacts build;
  build.version = version();
  build.compiler = kCompiler;
  build.cuda = kernels::cuda_in_build();
  build.tls = OpenSSL_version(OPENSSL_VERSION_STRING) != nullptr
                  ? std::string("OpenSSL ") + OpenSSL_version(OPENSSL_VERSION_STRING)
                  : "OpenSSL";
  build.core_binding = kernels::MachineTopology::in_build();
  build.line_editing = LineInput::can_edit();
  build.kv_events = kv_events::Publisher::in_build();
#if !defined(__OPTIMIZE__)
  build.is_optimised = false;
#endif
#if defined(__SANITIZE_ADDRESS__)
  build.sanitizer = "address";
#elif defined(__SANITIZE_THREAD__)
  build.sanitizer = "thread";
#endif
  return build;
}

ProcessorFacts probe_processor(const std::string& wanted_set, const fs::path& root) {
  ProcessorFacts cpu;
  const auto info = lines_of(below_root(root, "/proc/cpuinfo"));
  cpu.name = value_of(info, "model name");
  cpu.has_matrix_unit = kernels::processor_has_matrix_unit();
  cpu.is_intel = value_of(info, "vendor_id") == "GenuineIntel";
  cpu.family = small_number_in(value_of(info, "cpu family"));
  cpu.model = small_number_in(value_of(info, "model"));
#if defined(__x86_64__)
  cpu.is_x86 = true;
#endif
  for (const auto isa : kernels::available_isas()) cpu.kernel_sets.emplace_back(kernels::to_string(isa));
  cpu.wanted_set = wanted_set;
  if (const auto chosen = kernels::choose_isa(wanted_set)) cpu.chosen_set = kernels::to_string(*chosen);
  for (const auto& folder : folders_in(below_root(root, "/sys/devices/system/cpu"))) {
    const auto governor = first_line_of(folder / "cpufreq" / "scaling_governor");
    if (governor.empty()) continue;
    if (std::ranges::find(cpu.governors, governor) == cpu.governors.end()) cpu.governors.push_back(governor);
    if (cpu.frequency_driver.empty()) cpu.frequency_driver = first_line_of(folder / "cpufreq" / "scaling_driver");
  }
  return cpu;
}

CoreFacts probe_cores(int wanted_threads, const fs::path& root) {
  CoreFacts facts;
  facts.wanted_threads = wanted_threads;
  const kernels::UsableCpus cpus = kernels::usable_cpus(root);
  facts.allowed_cpus = cpus.allowed;
  facts.online_cpus = cpus.online;
  facts.default_threads = cpus.default_threads();
  if (kernels::MachineTopology::in_build()) {
    if (const auto machine = kernels::MachineTopology::load()) {
      facts.cores = static_cast<int>((*machine)->cpus().cores.size());
      facts.nodes = std::max(1, (*machine)->cpus().num_nodes);
    }
  }
  if (cpus.quota) {
    facts.quota_cpus = cpus.quota->cpus;
    facts.quota_limit = cpus.quota->limit;
  }
  return facts;
}

MemoryFacts probe_memory(const fs::path& root) {
  constexpr std::size_t kKib = 1024;
  MemoryFacts facts;
  const auto available = kernels::available_memory(root);
  facts.available_bytes = available.bytes;
  facts.limit = available.limit;
  facts.total_bytes = number_after(below_root(root, "/proc/meminfo"), "MemTotal:").value_or(0) * kKib;
  facts.huge_pages = chosen_word(first_line_of(below_root(root, "/sys/kernel/mm/transparent_hugepage/enabled")));
  facts.overcommit = small_number_in(first_line_of(below_root(root, "/proc/sys/vm/overcommit_memory")));
  return facts;
}

GpuFacts probe_gpu(const EngineConfig& config, const fs::path& root) {
  GpuFacts gpu;
  gpu.in_build = kernels::cuda_in_build();
  gpu.is_wanted = config.device != "cpu";
  gpu.driver = driver_version(first_line_of(below_root(root, "/proc/driver/nvidia/version")));
  for (const auto& folder : folders_in(below_root(root, "/proc/driver/nvidia/gpus"))) {
    const auto name = value_of(lines_of(folder / "information"), "Model");
    gpu.present.push_back(name.empty() ? folder.filename().string() : name);
  }
  std::vector<int> indices;
  for (ReplicaId id = 0; gpu.is_wanted && id < config.data_parallel_size; ++id) {
    indices.push_back(config.of_replica(id).cuda_index());
  }
  for (int index = 0; !gpu.is_wanted && index < std::max(1, kernels::cuda_device_count()); ++index) {
    indices.push_back(index);
  }
  for (const int index : indices) {
    const auto device = kernels::create_cuda_device(index);
    if (device) {
      gpu.usable.push_back((*device)->description() + ", " +
                           std::to_string((*device)->available_bytes(kernels::MemoryKind::device) >> 20) + " MiB free");
    } else if (gpu.problem.empty()) {
      gpu.problem = device.error().message;
    }
  }
  return gpu;
}

FileLimitFacts probe_file_limit(std::uint64_t wanted_connections) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return {limit.rlim_cur, limit.rlim_max, wanted_connections};
}

}  // namespace pagoda::apps
