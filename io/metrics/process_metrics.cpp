#include "io/metrics/process_metrics.hpp"

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <sys/resource.h>
#include <unistd.h>

#include "io/metrics/prometheus_text.hpp"

namespace pagoda::metrics {
namespace {

/// Facts from /proc/PID/stat and the machine's clock. Times in seconds.
struct ProcessFacts {
  double cpu_s = 0;
  double start_s = 0;  ///< since 1970
  std::int64_t num_threads = 0;
  std::int64_t virtual_bytes = 0;
  std::int64_t resident_bytes = 0;
};

double boot_time_s() {
  std::ifstream stat("/proc/stat");
  for (std::string line; std::getline(stat, line);) {
    if (line.starts_with("btime ")) return std::stod(line.substr(6));
  }
  return 0;
}

/// Returns false if there is no such process.
bool read_facts(const std::string& pid, ProcessFacts& facts) {
  std::ifstream file("/proc/" + pid + "/stat");
  std::string line;
  std::getline(file, line);
  const auto name_end = line.rfind(')');  // the name may contain any character
  if (name_end == std::string::npos) return false;
  std::istringstream fields(line.substr(name_end + 1));
  std::string skipped;
  const auto skip = [&](int count) {
    for (int i = 0; i < count; ++i) fields >> skipped;
  };
  double user = 0;
  double system = 0;
  double start = 0;
  std::int64_t pages = 0;
  skip(11);  // state to cmajflt
  fields >> user >> system;
  skip(4);  // cutime to nice
  fields >> facts.num_threads;
  skip(1);  // itrealvalue
  fields >> start >> facts.virtual_bytes >> pages;
  const auto ticks = static_cast<double>(::sysconf(_SC_CLK_TCK));
  facts.cpu_s = (user + system) / ticks;
  facts.start_s = start / ticks;
  facts.resident_bytes = pages * ::sysconf(_SC_PAGESIZE);
  return !fields.fail();
}

std::int64_t num_open_files() {
  std::error_code error;
  std::int64_t count = -1;  // not counting the descriptor of the folder itself
  for (std::filesystem::directory_iterator at("/proc/self/fd", error), end; !error && at != end; at.increment(error)) {
    ++count;
  }
  return count;
}

}  // namespace

void write_process_metrics(PrometheusText& text) {
  ProcessFacts facts;
  if (read_facts("self", facts)) {
    static const double booted = boot_time_s();
    text.counter("process_cpu_seconds_total", "Time that the process has used on all cores, in seconds.");
    text.sample(facts.cpu_s);
    text.gauge("process_resident_memory_bytes", "Resident memory of the process in bytes.");
    text.sample(facts.resident_bytes);
    text.gauge("process_virtual_memory_bytes", "Virtual memory of the process in bytes.");
    text.sample(facts.virtual_bytes);
    text.gauge("process_start_time_seconds", "Time at which the process started, in seconds since 1970.");
    text.sample(booted + facts.start_s);
    text.gauge("process_threads", "Number of threads of the process.");
    text.sample(facts.num_threads);
  }
  if (const auto open = num_open_files(); open >= 0) {
    text.gauge("process_open_fds", "Number of open file descriptors.");
    text.sample(open);
  }
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    text.gauge("process_max_fds", "Maximum number of open file descriptors.");
    text.sample(static_cast<double>(limit.rlim_cur));
  }
}

std::int64_t resident_bytes_of(std::int64_t pid) {
  ProcessFacts facts;
  return read_facts(std::to_string(pid), facts) ? facts.resident_bytes : 0;
}

}  // namespace pagoda::metrics
