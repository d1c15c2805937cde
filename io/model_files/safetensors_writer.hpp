#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "kernels/result.hpp"

namespace pagoda::io {

/// Writes a safetensors file whose tensors are known before their elements are. Until it is finished the file is called
/// PATH.part, so that nobody takes a part of it for the whole; one that is never finished is removed.
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
  ~SafetensorsWriter();
  SafetensorsWriter(SafetensorsWriter&& other) noexcept
      : path_(std::move(other.path_)),
        part_(std::exchange(other.part_, {})),
        file_(std::move(other.file_)),
        left_(std::move(other.left_)) {}
  SafetensorsWriter& operator=(SafetensorsWriter&&) = delete;

  /// The elements of one of the tensors, all of them; each is written once. Errors: io_failed.
  Status write(std::string_view name, std::span<const std::byte> elements);

  /// All tensors are written. Errors: io_failed.
  Status finish();

 private:
  SafetensorsWriter() = default;
  Status check() const;

  struct Place {
    std::size_t offset = 0;  // in the file
    std::size_t bytes = 0;
  };
  std::filesystem::path path_;
  std::filesystem::path part_;  // empty once it is finished
  std::ofstream file_;
  std::map<std::string, Place, std::less<>> left_;
};

}  // namespace pagoda::io
