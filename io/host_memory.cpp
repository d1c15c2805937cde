#include "io/host_memory.hpp"

#include <fstream>
#include <string>

namespace pagoda::io {
namespace {

constexpr double kBytesPerGib = 1 << 30;
constexpr double kShareOfAvailable = 0.4;  // the weights' pages and other programs need the rest

}  // namespace

std::int64_t available_host_memory_bytes() {
  std::ifstream meminfo("/proc/meminfo");
  std::string word;
  while (meminfo >> word) {
    std::int64_t kib = 0;
    if (word == "MemAvailable:" && meminfo >> kib) return kib * 1024;
  }
  return 0;
}

std::int64_t kv_cache_budget_bytes(const EngineConfig& config) {
  if (config.kv_cache_memory > 0) return static_cast<std::int64_t>(config.kv_cache_memory * kBytesPerGib);
  return static_cast<std::int64_t>(static_cast<double>(available_host_memory_bytes()) * kShareOfAvailable);
}

}  // namespace pagoda::io
