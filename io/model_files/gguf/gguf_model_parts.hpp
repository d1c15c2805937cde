#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "io/model_files/gguf/gguf_architecture.hpp"
#include "io/model_files/gguf/gguf_file.hpp"
#include "io/model_files/gguf/gguf_metadata.hpp"
#include "io/model_files/gguf/gguf_tensor_file.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// All that a GGUF file of a model with plain weights holds.
struct GgufModelParts {
  struct Tensor {
    GgufTensorHeader described;
    /// Its data: where they lie, or in `memory`.
    std::function<std::span<const std::byte>(std::vector<std::byte>& memory)> data;
  };

  const GgufArchitecture* architecture = nullptr;
  GgufHeads heads;
  std::int64_t alignment = kDefaultGgufAlignment;
  GgufMetadata metadata;
  std::vector<Tensor> tensors;  ///< in the order in which they are to lie in the file
};

/// Those of `file`, as they lie in it; what is said of its being split is left out. Errors: as find_gguf_architecture;
/// bad_file (heads that are no integers).
Result<GgufModelParts> gguf_parts_of_file(const std::shared_ptr<const GgufFile>& file);

}  // namespace pagoda::io
