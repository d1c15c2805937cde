#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "io/model_files/tensor_file.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// A tensor of a safetensors file, as its header tells of it.
struct SafetensorsTensor {
  std::string name;
  std::string dtype;  ///< in the words of safetensors, for example "BF16"
  std::vector<std::int64_t> shape;
  std::size_t bytes = 0;
};

/// Begins a safetensors file. Tensors of wide elements come first, so that each lies at a multiple of its element size.
/// Errors: io_failed.
Result<TensorFile> create_safetensors_file(const std::filesystem::path& path, std::vector<SafetensorsTensor> tensors);

}  // namespace pagoda::io
