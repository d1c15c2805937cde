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

/// Types of tensors, with their numbers in the file. Those that gguf_blocks.hpp does not know are refused by name.
enum class GgmlType : std::uint32_t {};

/// Types of values in metadata, with their numbers in the file.
enum class GgufValueType : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };

/// A key of the metadata as it lies in the file.
struct GgufEntry {
  std::string_view key;
  GgufValueType type{};
  std::span<const std::byte> bytes;  ///< of the value: all behind the number of its type
};

/// A value of a GGUF's metadata. Strings point into the mapped file; they need not be UTF-8. Integers of all widths
/// become int64 (a uint64 above its range is refused), float32 becomes double.
using GgufValue = std::variant<bool, std::int64_t, double, std::string_view, std::vector<bool>,
                               std::vector<std::int64_t>, std::vector<double>, std::vector<std::string_view>>;

/// A tensor as it lies in the file.
struct GgufTensor {
  std::string name;
  GgmlType type{};
  /// Outermost size first, as Hugging Face writes it (the file has it innermost first). 1 to 4 sizes, each at least 1;
  /// a tensor without sizes is {1}.
  std::vector<std::int64_t> shape;
  std::span<const std::byte> data;  ///< all of its blocks, in the mapped file
  std::size_t file = 0;             ///< which of the parts holds it

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
  /// Opens `path`; where it says split.count > 1, it must be the first part (NAME-00001-of-0000N.gguf), and the others
  /// are opened beside it. Errors, one line that names file, key or tensor, and reason: io_failed (no such file),
  /// bad_file (damaged or hostile: counts, strings and arrays beyond the end of the file or the limits, unknown value
  /// types, arrays of arrays, keys or tensors twice, an alignment that is no power of two from 8 to 1 MiB, sizes that
  /// are 0 or whose product overflows, rows that are not whole blocks, data that is misaligned, overlaps or reaches
  /// behind the end, parts that do not belong together), unsupported (a version that is not 2 or 3, big-endian, a type
  /// of tensor that is not known: named, with the list of those that are). Names of keys and tensors are UTF-8.
  ///
  /// Metadata is that of the first part; the other parts' may not contradict it, save in split.no and
  /// general.alignment, which each part has for itself.
  static Result<std::shared_ptr<const GgufFile>> open(const std::filesystem::path& path);

  /// Of the first part, for messages.
  const std::string& path() const { return files_.front().path(); }
  std::size_t num_files() const { return files_.size(); }
  const std::string& path_of(const GgufTensor& tensor) const { return files_[tensor.file].path(); }

  /// Null when the key is not there.
  const GgufValue* find(std::string_view key) const;
  /// The value of `key` as T, one of GgufValue's alternatives; none when the key is not there. Errors: bad_file (it has
  /// another type; an integer is taken as a double too, and an array of integers as one of doubles). The message names
  /// file and key.
  template <class T>
  Result<std::optional<T>> get(std::string_view key) const;
  /// An error about `key`: "FILE: KEY REASON", with the key as Error::param.
  tl::unexpected<Error> bad(std::string_view key, std::string_view reason, ErrorCode code = ErrorCode::bad_file) const;

  const std::map<std::string, GgufValue, std::less<>>& metadata() const { return metadata_; }
  /// The same as it lies in the file, in its order.
  const std::vector<GgufEntry>& entries() const { return entries_; }
  const std::map<std::string, GgufTensor, std::less<>>& tensors() const { return tensors_; }
  const GgufTensor* tensor(std::string_view name) const;

  /// A hint: the tensor has been copied, and its pages may serve others until they are read again.
  void drop_pages(const GgufTensor& tensor) const;

 private:
  GgufFile() = default;
  /// Takes over one more part and its tensors, whose names must be new.
  Status add_part(MappedFile file, std::map<std::string, GgufTensor, std::less<>> tensors);
  /// Adds the other parts of a split file of which `first` is the first part.
  Status add_other_parts(const std::filesystem::path& first);

  std::vector<MappedFile> files_;
  std::map<std::string, GgufValue, std::less<>> metadata_;
  std::vector<GgufEntry> entries_;
  std::map<std::string, GgufTensor, std::less<>> tensors_;
};

}  // namespace pagoda::io
