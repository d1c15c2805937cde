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

/// A file of named tensors behind a header that tells where each lies; it is a PartFile until it is finished. Errors
/// are a PartFile's.
class TensorFile {
 public:
  struct Place {
    std::size_t offset = 0;  ///< behind the header
    std::size_t bytes = 0;
  };
  using Places = std::map<std::string, Place, std::less<>>;

  /// Writes the header. `data_bytes`: how far the data behind it reach, which are zeros until they are written.
  static Result<TensorFile> create(const std::filesystem::path& path, std::string_view header, Places places,
                                   std::size_t data_bytes);

  /// The file as it is so far.
  const std::filesystem::path& part() const { return file_.part(); }

  /// The data of one of the tensors, all of it; each is written once.
  Status write(std::string_view name, std::span<const std::byte> data);

  /// All tensors are written.
  Status finish();

 private:
  TensorFile(PartFile file, Places places, std::size_t header_bytes)
      : file_(std::move(file)), left_(std::move(places)), header_bytes_(header_bytes) {}

  PartFile file_;
  Places left_;  // to write
  std::size_t header_bytes_;
};

}  // namespace pagoda::io
