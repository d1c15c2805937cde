#include "apps/doctor/findings.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>

#include <boost/algorithm/string/join.hpp>
#include <nlohmann/json.hpp>

namespace pagoda::apps {
namespace {

std::string gib(std::uint64_t bytes) {
  char text[32];
  std::snprintf(text, sizeof text, "%.1f GiB", static_cast<double>(bytes) / (1 << 30));
  return text;
}

std::string number(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

std::string count_of(int count, const std::string& what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

class Examination {
 public:
  explicit Examination(const MachineFacts& facts) : facts_(facts) {}

  std::vector<Finding> all() {
    of_build();
    of_processor();
    of_frequency();
    of_cores();
    of_quota();
    of_memory();
    of_huge_pages();
    of_file_limit();
    of_gpu();
    for (const auto& port : facts_.ports) of_port(port);
    if (facts_.model) of_model(*facts_.model);
    return std::move(findings_);
  }

 private:
  void add(const char* topic, Severity severity, std::string what, std::string why, std::string todo = "") {
    findings_.push_back({topic, severity, std::move(what), std::move(why), std::move(todo)});
  }

  void of_build();
  void of_processor();
  void of_frequency();
  void of_cores();
  void of_quota();
  void of_memory();
  void of_huge_pages();
  void of_file_limit();
  void of_gpu();
  void of_port(const PortFacts& port);
  void of_model(const ModelFacts& model);
  void of_page_cache(const ModelFacts& model);

  const MachineFacts& facts_;
  std::vector<Finding> findings_;
};

void Examination::of_build() {
  const auto& build = facts_.build;
  const auto yes = [](bool is_in) { return is_in ? "yes" : "no"; };
  const std::string what = "pagoda " + build.version + ", " + build.compiler + "; CUDA: " + yes(build.cuda) +
                           ", TLS: " + build.tls +
                           ", sentencepiece: yes, binding to cores: " + yes(build.core_binding) +
                           ", line editing: " + yes(build.line_editing) + ", KV events: " + yes(build.kv_events);
  const bool is_slow = !build.is_optimised || !build.sanitizer.empty();
  add("build", is_slow ? Severity::slow : Severity::good, what + (is_slow ? "; not optimised" : ""),
      is_slow ? "a build for finding errors is many times slower"
              : "a request for a part that is not compiled in is refused",
      is_slow ? "serve with a release build: scripts/build release" : "");
}

void Examination::of_processor() {
  const auto& cpu = facts_.processor;
  const std::string name = cpu.name.empty() ? "processor" : cpu.name;
  if (cpu.chosen_set.empty()) {
    return add("processor", Severity::fatal, name + ": --cpu-isa " + cpu.wanted_set + " is not available",
               "the kernels of an instruction set need a processor that has it, and a build that has them",
               "leave --cpu-isa out, or use one of " + boost::algorithm::join(cpu.kernel_sets, ", "));
  }
  const std::string what =
      name + ": kernels " + cpu.chosen_set + ", of " + boost::algorithm::join(cpu.kernel_sets, ", ");
  if (!cpu.wanted_set.empty()) {
    return add("processor", cpu.wanted_set == cpu.kernel_sets.back() ? Severity::good : Severity::note, what,
               "--cpu-isa selects these kernels; without it the fastest are used");
  }
  if (cpu.chosen_set == "scalar") {
    const std::string wanted = cpu.is_x86 ? "AVX2, FMA and F16C" : "NEON";
    return add("processor", Severity::slow, what, "without " + wanted + " a model runs several times slower",
               "use a machine with " + wanted + ", or let the virtual machine pass the processor of its host through");
  }
  const bool passes_over = cpu.chosen_set != cpu.kernel_sets.back();
  add("processor", Severity::good, what,
      passes_over ? cpu.kernel_sets.back() + " is slower on this make of processor"
                  : "the fastest that this machine has");
  if (cpu.has_matrix_unit && std::ranges::find(cpu.kernel_sets, "avx512_amx") == cpu.kernel_sets.end()) {
    add("processor", Severity::slow, "the matrix unit (AMX) is not used",
        "this system does not let the process use it, this build has no kernels for it, or its results were wrong",
        "use Linux 5.16 or later, and let virtual machines and sandboxes pass AMX through");
  }
  constexpr int kFamily = 6;
  constexpr int kSkylakeServer = 85;  // also Cascade Lake and Cooper Lake
  if (cpu.is_intel && cpu.family == kFamily && cpu.model == kSkylakeServer && cpu.chosen_set.starts_with("avx512")) {
    add("processor", Severity::note, "this generation of Intel's processors lowers its frequency for AVX-512",
        "with few threads AVX2 may be as fast", "compare: pagoda bench throughput with --cpu-isa avx2 and without");
  }
}

void Examination::of_frequency() {
  const auto& cpu = facts_.processor;
  if (cpu.governors.empty()) return;
  const auto has = [&](const char* name) { return std::ranges::find(cpu.governors, name) != cpu.governors.end(); };
  // These two drivers choose frequencies themselves; their governor powersave raises the frequency under load.
  const bool chooses_itself =
      cpu.frequency_driver == "intel_pstate" || cpu.frequency_driver.starts_with("amd-pstate-epp");
  const bool is_low = (has("powersave") && !chooses_itself) || has("conservative");
  const std::string what = "governor " + boost::algorithm::join(cpu.governors, ", ") +
                           (cpu.frequency_driver.empty() ? "" : " of " + cpu.frequency_driver);
  add("frequency", is_low ? Severity::slow : Severity::good, what,
      is_low ? "the processor stays at a low frequency, or reaches a high one late"
             : "the processor runs fast under load",
      is_low ? "cpupower frequency-set --governor performance" : "");
}

void Examination::of_cores() {
  const auto& cores = facts_.cores;
  std::string what = count_of(cores.allowed_cpus, "CPU");
  if (cores.online_cpus > cores.allowed_cpus) {
    what += " of " + std::to_string(cores.online_cpus) + " by the affinity mask of the process (taskset, cpuset)";
  }
  if (cores.cores > 0) what += ", " + count_of(cores.cores, "core");
  if (cores.nodes > 1) what += ", " + count_of(cores.nodes, "NUMA node");
  const int most = std::max(1, cores.allowed_cpus);
  if (cores.wanted_threads > most) {
    return add("cores", Severity::slow, what + "; --threads " + std::to_string(cores.wanted_threads),
               "threads that share a CPU wait for each other in every layer",
               "leave --threads out, or at most " + std::to_string(most));
  }
  if (cores.cores > 0 && cores.cores < cores.allowed_cpus && cores.nodes == 1 && cores.wanted_threads == 0) {
    return add("cores", Severity::note, what + ": hardware threads share cores",
               "decoding is bound by memory, so a thread for each core may be as fast and leaves room for the server",
               "compare: pagoda bench throughput with --threads " + std::to_string(cores.cores) + " and without");
  }
  if (cores.nodes > 1 && !facts_.build.core_binding) {
    return add("cores", Severity::slow, what + "; this build cannot bind threads to cores",
               "memory of another NUMA node is slower, and only threads that are bound to cores can be placed near "
               "their memory",
               "install libhwloc-dev and build again");
  }
  add("cores", Severity::good, what,
      cores.nodes > 1 ? "threads and memory are spread over the nodes (--cpu-affinity auto)"
                      : "one thread runs on each CPU, unless --threads or a quota sets another number");
}

void Examination::of_quota() {
  const auto& cores = facts_.cores;
  if (!cores.quota_cpus) return;
  const int threads = cores.wanted_threads > 0 ? cores.wanted_threads : cores.default_threads;
  const int fitting = std::max(1, static_cast<int>(std::floor(*cores.quota_cpus)));
  const bool is_over = threads > std::max(*cores.quota_cpus, 1.0);
  const std::string what = "CPU time of " + number(*cores.quota_cpus) + " CPUs (" + cores.quota_limit + "), for " +
                           count_of(threads, "thread");
  add("cpu quota", is_over ? Severity::slow : Severity::good, what,
      is_over ? "when the time of a period is used up, all threads stop until the next period"
              : "the threads fit into it",
      is_over ? "--threads " + std::to_string(fitting) : "");
}

void Examination::of_memory() {
  const auto& memory = facts_.memory;
  constexpr std::size_t kLeast = std::size_t{256} << 20;
  const std::string what =
      gib(memory.available_bytes) + " may be taken of " + gib(memory.total_bytes) + " (" + memory.limit + ")";
  if (memory.available_bytes < kLeast) {
    return add("memory", Severity::fatal, what, "no model fits beside the memory of the server itself",
               "free memory, or raise the limit");
  }
  add("memory", Severity::good, what, "weights, KV cache and working memory use it (--kv-cache-memory)");
  if (memory.overcommit == 2) {
    add("memory", Severity::note, "vm.overcommit_memory is 2",
        "the system counts memory that is reserved and not yet used, also mapped weights and thread stacks",
        "sysctl vm.overcommit_memory=0 if starting fails though memory is free");
  }
}

void Examination::of_huge_pages() {
  const auto& setting = facts_.memory.huge_pages;
  if (setting == "always" || setting == "madvise") {
    return add("huge pages", Severity::good, "transparent huge pages: " + setting,
               "weights and KV cache are on huge pages, which are read faster");
  }
  const std::string what =
      setting.empty() ? "this kernel has no transparent huge pages" : "transparent huge pages: never";
  add("huge pages", Severity::slow, what, "on small pages a mapping of weights is read up to a quarter slower",
      setting.empty() ? "" : "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled");
}

void Examination::of_file_limit() {
  const auto& files = facts_.files;
  constexpr std::uint64_t kOwn = 64;  // files of the model, the log, the actor system
  const std::uint64_t needed = files.wanted_connections + kOwn;
  const std::string what =
      std::to_string(files.soft) + " open files, " + std::to_string(files.wanted_connections) + " connections may come";
  if (files.soft >= needed) return add("open files", Severity::good, what, "each connection takes one");
  const bool can_raise = files.hard >= needed;
  add("open files", files.soft < kOwn ? Severity::fatal : Severity::slow, what,
      "each connection takes one; if none is left, new clients wait",
      (can_raise ? "ulimit -n " : "as root: ulimit -Hn ") + std::to_string(needed) +
          ", LimitNOFILE= of the service, or lower --max-connections and --http-max-connections");
}

void Examination::of_gpu() {
  const auto& gpu = facts_.gpu;
  const Severity missing = gpu.is_wanted ? Severity::fatal : Severity::note;
  if (!gpu.usable.empty()) {
    const bool is_unused = !gpu.is_wanted;
    return add("gpu", is_unused ? Severity::note : Severity::good,
               boost::algorithm::join(gpu.usable, ", ") + (gpu.driver.empty() ? "" : "; driver " + gpu.driver),
               is_unused ? "it is used only if --device names it" : "--device names it",
               is_unused ? "--device cuda" : "");
  }
  if (!gpu.problem.empty() && gpu.in_build && (gpu.is_wanted || !gpu.driver.empty())) {
    return add("gpu", missing, gpu.problem,
               "--device cuda needs a GPU of compute capability 8.0 or newer and its driver",
               "nvidia-smi shows the driver; in a container: --gpus all, or the device of the GPU");
  }
  if (!gpu.in_build && (gpu.is_wanted || !gpu.driver.empty() || !gpu.present.empty())) {
    const std::string seen = gpu.present.empty() ? "no GPU is seen" : boost::algorithm::join(gpu.present, ", ");
    return add("gpu", missing, seen + "; this build has no CUDA backend", "it serves on the processor alone",
               "build where nvcc is installed: scripts/build cuda");
  }
  add("gpu", Severity::good, gpu.in_build ? "none" : "none, and no CUDA backend in this build",
      "models are served on the processor");
}

void Examination::of_port(const PortFacts& port) {
  const std::string what = "--" + port.key + " " + port.address;
  if (port.problem.empty()) return add("port", Severity::good, what + " is free", "the server listens there");
  add("port", Severity::fatal, what + ": " + port.problem, "the server would not start",
      "if it is in use, ss -ltnp shows the process; otherwise change what the message names");
}

void Examination::of_model(const ModelFacts& model) {
  if (!model.problem.empty()) {
    return add("model", Severity::fatal, model.problem, "the model cannot be served with these flags",
               "pagoda inspect " + model.path + " shows its memory plan");
  }
  std::string what = model.path + ": " + gib(model.file_bytes) + " of weights";
  if (model.needed_bytes > 0) what += ", serving takes " + gib(model.needed_bytes) + " of memory";
  add("model", Severity::good, what, "it fits with these flags");
  of_page_cache(model);
}

void Examination::of_page_cache(const ModelFacts& model) {
  if (model.file_bytes == 0) return;
  const auto percent = model.cached_bytes * 100 / model.file_bytes;
  const std::string what = std::to_string(percent) + " % of the model is in the page cache";
  const bool is_cached = percent >= 95;
  if (is_cached) return add("model disk", Severity::good, what, "it loads at the speed of memory");
  const bool is_slow = !model.filesystem.empty() || model.is_rotational;
  const std::string disk = model.is_rotational ? "a rotating disk" : model.filesystem;
  add("model disk", is_slow ? Severity::slow : Severity::note, what + (is_slow ? ", the rest on " + disk : ""),
      "the first start reads the rest from the disk; mapped weights are read when a step needs them",
      is_slow ? "copy the model to a local SSD" : "");
}

}  // namespace

std::string_view to_string(Severity severity) {
  switch (severity) {
    case Severity::good:
      return "ok";
    case Severity::note:
      return "note";
    case Severity::slow:
      return "slow";
    case Severity::fatal:
      return "fail";
  }
  return "?";
}

std::vector<Finding> examine(const MachineFacts& facts) {
  return Examination(facts).all();
}

bool would_run(std::span<const Finding> findings) {
  return std::ranges::none_of(findings, [](const Finding& f) { return f.severity == Severity::fatal; });
}

std::string as_text(std::span<const Finding> findings) {
  std::string text;
  for (const auto& finding : findings) {
    char head[32];
    std::snprintf(head, sizeof head, "%-5s %-11s ", std::string(to_string(finding.severity)).c_str(),
                  finding.topic.c_str());
    text += head + finding.what + "\n";
    if (finding.severity == Severity::good) continue;
    text += "                  why: " + finding.why + "\n";
    if (!finding.todo.empty()) text += "                  do:  " + finding.todo + "\n";
  }
  return text +
         (would_run(findings) ? "Pagoda would run here.\n" : "Pagoda cannot run here; see the findings above.\n");
}

std::string as_json(std::span<const Finding> findings) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const auto& finding : findings) {
    list.push_back({{"topic", finding.topic},
                    {"severity", to_string(finding.severity)},
                    {"what", finding.what},
                    {"why", finding.why},
                    {"todo", finding.todo}});
  }
  return nlohmann::ordered_json{{"runs", would_run(findings)}, {"findings", std::move(list)}}.dump(
             -1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) +
         "\n";
}

}  // namespace pagoda::apps
