#pragma once

#include <cstdint>

#include "engine/config.hpp"

namespace pagoda::io {

/// Bytes that a program can allocate now without swapping, as the kernel estimates them; 0 when it does not say.
std::int64_t available_host_memory_bytes();

/// Bytes for the KV cache on a CPU: kv_cache_memory when it is set, else a share of the memory that is available now.
std::int64_t kv_cache_budget_bytes(const EngineConfig& config);

}  // namespace pagoda::io
