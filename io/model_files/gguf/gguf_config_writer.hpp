#pragma once

#include <filesystem>
#include <vector>

#include "engine/request/sampling_defaults.hpp"
#include "io/model_files/gguf/gguf_architecture.hpp"
#include "io/model_files/gguf/gguf_metadata.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// What of a config is no metadata in GGUF, or is asked for elsewhere.
struct GgufConfig {
  const GgufArchitecture* architecture = nullptr;
  GgufHeads heads;
  std::int64_t vocab_size = 0;
  std::vector<float> rope_factors;  ///< of the tensor kRopeFactors; none where there is no such scaling
};

/// Writes what `folder`/config.json says of the model as GGUF has it: the inverse of read_gguf_spec, special tokens
/// aside. Errors: bad_config; unsupported (what GGUF has no words for): one line that names file and key.
Result<GgufConfig> write_gguf_config(const std::filesystem::path& folder, GgufMetadata& metadata);

/// The inverse of read_gguf_sampling_defaults. A length, which GGUF has no place for, is left out.
void write_gguf_sampling_defaults(const SamplingDefaults& defaults, GgufMetadata& metadata);

}  // namespace pagoda::io
