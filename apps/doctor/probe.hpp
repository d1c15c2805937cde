#pragma once

/// Reads the facts of this machine. Nothing here changes anything; what cannot be read stays unknown.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "apps/doctor/facts.hpp"
#include "engine/config.hpp"

namespace pagoda::apps {

/// What this program was built with.
BuildFacts probe_build();

/// `root`: the folder that proc and sys lie under; "/" but in tests.
ProcessorFacts probe_processor(const std::string& wanted_set, const std::filesystem::path& root = "/");
CoreFacts probe_cores(int wanted_threads, const std::filesystem::path& root = "/");
MemoryFacts probe_memory(const std::filesystem::path& root = "/");
GpuFacts probe_gpu(const EngineConfig& config, const std::filesystem::path& root = "/");

FileLimitFacts probe_file_limit(std::uint64_t wanted_connections);

/// Plans an engine of the model, as serve would, and looks at its files. `config` is valid.
ModelFacts probe_model(const EngineConfig& config);

/// The share of a file that is in the page cache, in bytes; 0 where the system does not tell.
std::uint64_t cached_bytes_of(const std::filesystem::path& file);

}  // namespace pagoda::apps
