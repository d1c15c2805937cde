#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/model_files/gguf/gguf_file.hpp"
#include "io/model_files/gguf/gguf_metadata.hpp"
#include "io/model_files/gguf/gguf_parse.hpp"
#include "io/model_files/part_file.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// Writes a GGUF file, version 3, whose tensors are known before their elements are; it is a PartFile until it is
/// finished.
class GgufFileWriter {
 public:
  struct Tensor {
    std::string name;
    GgmlType type{};
    std::vector<std::int64_t> shape;  ///< outermost size first
  };

  /// Writes the header; tensors lie in the order given, at multiples of `alignment`, which metadata names where it is
  /// not the default. Types are supported ones, rows whole blocks. Errors: io_failed.
  static Result<GgufFileWriter> create(const std::filesystem::path& path, const GgufMetadata& metadata,
                                       const std::vector<Tensor>& tensors,
                                       std::int64_t alignment = kDefaultGgufAlignment);

  /// The file as it is so far, which GgufFile::open takes: tensors that are not written are zeros.
  const std::filesystem::path& part() const { return file_.part(); }

  /// The data of one of the tensors, all of it; each is written once. Errors: io_failed.
  Status write(std::string_view name, std::span<const std::byte> data);

  /// All tensors are written. Errors: io_failed.
  Status finish();

 private:
  explicit GgufFileWriter(PartFile file) : file_(std::move(file)) {}

  struct Place {
    std::size_t offset = 0;  // in the file
    std::size_t bytes = 0;
  };
  PartFile file_;
  std::map<std::string, Place, std::less<>> left_;
};

}  // namespace pagoda::io
