#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/model_files/part_file.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// Writes a safetensors file whose tensors are known before their elements are; it is a PartFile until it is finished.
class SafetensorsWriter {
 public:
  struct Tensor {
    std::string name;
    std::string dtype;  ///< in the words of safetensors, for example "BF16"
    std::vector<std::int64_t> shape;
    std::size_t bytes = 0;
  };

  /// Writes the header. Tensors of wide elements come first, so that each lies at a multiple of its element size.
  /// Errors: io_failed.
  static Result<SafetensorsWriter> create(const std::filesystem::path& path, std::vector<Tensor> tensors);

  /// The elements of one of the tensors, all of them; each is written once. Errors: io_failed.
  Status write(std::string_view name, std::span<const std::byte> elements);

  /// All tensors are written. Errors: io_failed.
  Status finish();

 private:
  explicit SafetensorsWriter(PartFile file) : file_(std::move(file)) {}

  struct Place {
    std::size_t offset = 0;  // in the file
    std::size_t bytes = 0;
  };
  PartFile file_;
  std::map<std::string, Place, std::less<>> left_;
};

}  // namespace pagoda::io
