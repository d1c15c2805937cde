#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "io/model_files/mapped_file.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// Types of tensors, with their numbers in the file. A type that gguf_blocks.hpp does not know is an error.
enum class GgmlType : std::uint32_t {};

/// Types of values in metadata, with their numbers in the file.
enum class GgufValueType : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };

/// A key of the metadata with the bytes of its value in the file.
struct GgufEntry {
  std::string_view key;
  GgufValueType type{};
  std::span<const std::byte> bytes;  ///< bytes of the value, after the number of its type
};

/// A value of a GGUF's metadata. Strings point into the mapped file; they need not be UTF-8. Integers of all widths
/// become int64 (a uint64 above its range is an error), float32 becomes double.
using GgufValue = std::variant<bool, std::int64_t, double, std::string_view, std::vector<bool>,
                               std::vector<std::int64_t>, std::vector<double>, std::vector<std::string_view>>;

/// A tensor of the file.
struct GgufTensor {
  std::string name;
  GgmlType type{};
  /// Outermost size first, as Hugging Face writes it (the file has it innermost first). 1 to 4 sizes, each at least 1;
  /// a tensor without sizes is {1}.
  std::vector<std::int64_t> shape;
  std::span<const std::byte> data;  ///< all blocks of the tensor, in the mapped file
  std::size_t file = 0;             ///< index of the part that holds the tensor

  std::int64_t elements() const {
    std::int64_t n = 1;
    for (const auto d : shape) n *= d;
    return n;
  }
};

/// A GGUF file, or all parts of a split one, mapped: metadata and tensors. Format: ggml's docs/gguf.md, versions 2 and
/// 3, little-endian. Thread-safe after open.
class GgufFile {
 public:
  /// Opens `path`. If its metadata has split.count > 1, `path` must be the first part (NAME-00001-of-0000N.gguf), and
  /// the other parts are opened beside it. Names of keys and tensors are UTF-8.
  ///
  /// The metadata is that of the first part. The other parts must not contradict it, except in split.no and
  /// general.alignment, which each part has for itself.
  ///
  /// Errors, one line that names file, key or tensor, and reason: io_failed (no such file), bad_file (damaged or
  /// hostile: counts, strings and arrays beyond the end of the file or the limits, unknown value types, arrays of
  /// arrays, duplicate keys or tensors, an alignment that is not a power of two from 8 to 1 MiB, sizes that are 0 or
  /// whose product overflows, rows that are not whole blocks, data that is misaligned, overlaps or lies beyond the end,
  /// parts that do not belong together), unsupported (a version that is not 2 or 3, big-endian, an unknown type of
  /// tensor: the message has its name and the known types).
  static Result<std::shared_ptr<const GgufFile>> open(const std::filesystem::path& path);

  /// Returns the path of the first part, for messages.
  const std::string& path() const { return files_.front().path(); }
  std::size_t num_files() const { return files_.size(); }
  const std::string& path_of(const GgufTensor& tensor) const { return files_[tensor.file].path(); }

  /// Returns null when there is no such key.
  const GgufValue* find(std::string_view key) const;
  /// Returns the value of `key` as T, one of GgufValue's alternatives; nothing when there is no such key. An integer is
  /// also valid as a double, and an array of integers as an array of doubles. Errors: bad_file (the value has another
  /// type); the message names file and key.
  template <class T>
  Result<std::optional<T>> get(std::string_view key) const;
  /// Returns an error about `key`: "FILE: KEY REASON", with the key as Error::param.
  tl::unexpected<Error> bad(std::string_view key, std::string_view reason, ErrorCode code = ErrorCode::bad_file) const;

  const std::map<std::string, GgufValue, std::less<>>& metadata() const { return metadata_; }
  /// Returns the metadata as it is in the file, in the file's order.
  const std::vector<GgufEntry>& entries() const { return entries_; }
  const std::map<std::string, GgufTensor, std::less<>>& tensors() const { return tensors_; }
  const GgufTensor* tensor(std::string_view name) const;

  /// Call after the tensor was copied: the system may reuse its pages until they are read again.
  void drop_pages(const GgufTensor& tensor) const;

 private:
  GgufFile() = default;
  /// Adds one more part and its tensors, whose names must be new.
  Status add_part(MappedFile file, std::map<std::string, GgufTensor, std::less<>> tensors);
  /// Adds the other parts of a split file of which `first` is the first part.
  Status add_other_parts(const std::filesystem::path& first);

  std::vector<MappedFile> files_;
  std::map<std::string, GgufValue, std::less<>> metadata_;
  std::vector<GgufEntry> entries_;
  std::map<std::string, GgufTensor, std::less<>> tensors_;
};

}  // namespace pagoda::io
