#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "io/model_files/part_file.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// A file of named tensors after a header with the place of each. The file is a PartFile until it is finished, and
/// errors are those of a PartFile.
class TensorFile {
 public:
  struct Extent {
    std::size_t offset = 0;  ///< from the end of the header
    std::size_t bytes = 0;
  };
  using Extents = std::map<std::string, Extent, std::less<>>;

  /// Writes the header. `data_bytes`: size of the data after the header, which are zeros until they are written.
  static Result<TensorFile> create(const std::filesystem::path& path, std::string_view header, Extents extents,
                                   std::size_t data_bytes);

  /// Returns the path of the file before it is finished.
  const std::filesystem::path& part() const { return file_.part(); }

  /// Writes all data of one tensor. Each tensor is written once.
  Status write(std::string_view name, std::span<const std::byte> data);

  /// Call after all tensors are written: gives the file its name.
  Status finish();

 private:
  TensorFile(PartFile file, Extents extents, std::size_t header_bytes)
      : file_(std::move(file)), left_(std::move(extents)), header_bytes_(header_bytes) {}

  PartFile file_;
  Extents left_;  // tensors that are not written yet
  std::size_t header_bytes_;
};

}  // namespace pagoda::io
