#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "io/model_files/gguf/gguf_file.hpp"
#include "io/model_files/gguf/gguf_metadata.hpp"
#include "io/model_files/gguf/gguf_parse.hpp"
#include "io/model_files/tensor_file.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// A tensor's entry in the header of a GGUF file.
struct GgufTensorHeader {
  std::string name;
  GgmlType type{};
  std::vector<std::int64_t> shape;  ///< outermost size first
};

/// Begins a GGUF file, version 3, which GgufFile::open accepts even before it is finished. Tensors lie in the given
/// order, at multiples of `alignment`; if this is not the default, the metadata must have it. Types must be supported,
/// and rows must be whole blocks. Errors: io_failed.
Result<TensorFile> create_gguf_file(const std::filesystem::path& path, const GgufMetadata& metadata,
                                    const std::vector<GgufTensorHeader>& tensors,
                                    std::int64_t alignment = kDefaultGgufAlignment);

}  // namespace pagoda::io
