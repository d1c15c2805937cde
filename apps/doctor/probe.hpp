#pragma once

/// Reads the facts of this machine. Changes nothing. Facts that cannot be read stay unknown.

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "apps/doctor/facts.hpp"
#include "engine/config.hpp"

namespace pagoda::apps {

/// Returns the settings of this build.
BuildFacts probe_build();

/// Read facts of the machine. `root`: folder with proc and sys; only tests use another than "/".
ProcessorFacts probe_processor(const std::string& wanted_set, const std::filesystem::path& root = "/");
CoreFacts probe_cores(int wanted_threads, const std::filesystem::path& root = "/");
MemoryFacts probe_memory(const std::filesystem::path& root = "/");
GpuFacts probe_gpu(const EngineConfig& config, const std::filesystem::path& root = "/");

FileLimitFacts probe_file_limit(std::uint64_t wanted_connections);

/// Plans an engine of the model as serve does, and looks at its files. `config` must be valid.
ModelFacts probe_model(const EngineConfig& config);

/// Returns the bytes of a file in the page cache; 0 if the system does not report them.
std::uint64_t cached_bytes_of(const std::filesystem::path& file);

}  // namespace pagoda::apps
