#pragma once

#include <filesystem>
#include <vector>

#include "engine/request/sampling_defaults.hpp"
#include "io/model_files/gguf/gguf_metadata.hpp"
#include "io/model_files/gguf/gguf_names.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// Values of a config that GGUF's metadata does not hold or that other functions need.
struct GgufConfig {
  const GgufArchitecture* architecture = nullptr;
  GgufHeads heads;
  std::int64_t vocab_size = 0;
  std::vector<float> rope_factors;  ///< values of the tensor kRopeFactors; empty where there is no such scaling
};

/// Writes the model of `folder`/config.json as GGUF metadata: the inverse of read_gguf_spec, without special tokens.
/// Errors: bad_config; unsupported (GGUF cannot express the config): one line that names file and key.
Result<GgufConfig> write_gguf_config(const std::filesystem::path& folder, GgufMetadata& metadata);

/// The inverse of read_gguf_sampling_defaults. A length is left out, because GGUF has no key for it.
void write_gguf_sampling_defaults(const SamplingDefaults& defaults, GgufMetadata& metadata);

}  // namespace pagoda::io
