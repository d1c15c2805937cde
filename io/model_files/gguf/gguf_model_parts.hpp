#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "io/model_files/gguf/gguf_file.hpp"
#include "io/model_files/gguf/gguf_metadata.hpp"
#include "io/model_files/gguf/gguf_names.hpp"
#include "io/model_files/gguf/gguf_tensor_file.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// The contents of a GGUF file of a model with plain weights.
struct GgufModelParts {
  struct Tensor {
    GgufTensorHeader described;
    /// Returns the data of the tensor: in place, or written to `memory`.
    std::function<std::span<const std::byte>(std::vector<std::byte>& memory)> data;
  };

  const GgufArchitecture* architecture = nullptr;
  GgufHeads heads;
  std::int64_t alignment = kDefaultGgufAlignment;
  GgufMetadata metadata;
  std::vector<Tensor> tensors;  ///< in the order of the file
};

/// Returns the parts of `file` unchanged, except that keys about its split are left out. Errors: as
/// find_gguf_architecture; bad_file (a number of heads that is no integer).
Result<GgufModelParts> gguf_parts_of_file(const std::shared_ptr<const GgufFile>& file);

}  // namespace pagoda::io
