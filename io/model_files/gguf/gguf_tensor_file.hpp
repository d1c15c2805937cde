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

/// A tensor of a GGUF file, as its header tells of it.
struct GgufTensorHeader {
  std::string name;
  GgmlType type{};
  std::vector<std::int64_t> shape;  ///< outermost size first
};

/// Begins a GGUF file, version 3, which GgufFile::open takes before it is finished, too. Tensors lie in the order
/// given, at multiples of `alignment`, which metadata names where it is not the default. Types are supported ones, rows
/// whole blocks. Errors: io_failed.
Result<TensorFile> create_gguf_file(const std::filesystem::path& path, const GgufMetadata& metadata,
                                    const std::vector<GgufTensorHeader>& tensors,
                                    std::int64_t alignment = kDefaultGgufAlignment);

}  // namespace pagoda::io
