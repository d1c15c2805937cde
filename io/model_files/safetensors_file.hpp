#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "io/model_files/tensor_file.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// A tensor's entry in the header of a safetensors file.
struct SafetensorsTensor {
  std::string name;
  std::string dtype;  ///< element type in safetensors' notation, for example "BF16"
  std::vector<std::int64_t> shape;
  std::size_t bytes = 0;
};

/// Begins a safetensors file. Tensors with wide elements come first, so that each lies at a multiple of its element
/// size. `metadata`: texts of the header, beside its `format`. Errors: io_failed.
Result<TensorFile> create_safetensors_file(const std::filesystem::path& path, std::vector<SafetensorsTensor> tensors,
                                           const std::map<std::string, std::string>& metadata = {});

}  // namespace pagoda::io
