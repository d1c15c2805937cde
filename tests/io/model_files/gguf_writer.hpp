#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace pagoda::io::testing {

/// Numbers of types, as a file has them.
enum class GgufType : std::uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };
inline constexpr std::uint32_t kGgmlF32 = 0;
inline constexpr std::uint32_t kGgmlF16 = 1;
inline constexpr std::uint32_t kGgmlQ8_0 = 8;

template <class T>
constexpr GgufType gguf_type_of() {
  if constexpr (std::is_same_v<T, bool>) return GgufType::boolean;
  if constexpr (std::is_same_v<T, std::uint8_t>) return GgufType::u8;
  if constexpr (std::is_same_v<T, std::int8_t>) return GgufType::i8;
  if constexpr (std::is_same_v<T, std::uint16_t>) return GgufType::u16;
  if constexpr (std::is_same_v<T, std::int16_t>) return GgufType::i16;
  if constexpr (std::is_same_v<T, std::uint32_t>) return GgufType::u32;
  if constexpr (std::is_same_v<T, std::int32_t>) return GgufType::i32;
  if constexpr (std::is_same_v<T, std::uint64_t>) return GgufType::u64;
  if constexpr (std::is_same_v<T, std::int64_t>) return GgufType::i64;
  if constexpr (std::is_same_v<T, float>) return GgufType::f32;
  if constexpr (std::is_same_v<T, double>) return GgufType::f64;
  return GgufType::string;
}

/// `value` as a GGUF file has it: a number, or a text behind its length.
template <class T>
std::string gguf_bytes(const T& value) {
  if constexpr (std::is_convertible_v<const T&, std::string_view>) {
    const std::string_view text = value;
    return gguf_bytes(std::uint64_t{text.size()}).append(text);
  } else {
    static_assert(std::is_arithmetic_v<T>);
    const auto bytes = std::bit_cast<std::array<char, sizeof(T)>>(value);
    return {bytes.data(), bytes.size()};
  }
}

/// The bytes of an array of this type, with a count of its own.
inline std::string gguf_array(GgufType type, std::uint64_t count, std::string_view items) {
  return (gguf_bytes(static_cast<std::uint32_t>(type)) + gguf_bytes(count)).append(items);
}

/// Builds GGUF files, good ones and such that no other writer would make.
class GgufWriter {
 public:
  explicit GgufWriter(std::uint32_t version = 3) : version_(version) {}

  /// The type in the file is that of T, a number, bool or a text: `1` is an int32, `1.0` a float64.
  template <class T>
  GgufWriter& add(std::string_view key, const T& value) {
    return add_raw(key, static_cast<std::uint32_t>(gguf_type_of<T>()), gguf_bytes(value));
  }
  template <class T>
  GgufWriter& add(std::string_view key, const std::vector<T>& values) {
    std::string items;
    for (auto&& value : values) items += gguf_bytes<T>(value);
    return add_raw(key, static_cast<std::uint32_t>(GgufType::array),
                   gguf_array(gguf_type_of<T>(), values.size(), items));
  }
  /// `value` is all that comes behind the number of the type.
  GgufWriter& add_raw(std::string_view key, std::uint32_t type, std::string_view value) {
    keys_.append(gguf_bytes(key)).append(gguf_bytes(type)).append(value);
    ++num_keys_;
    return *this;
  }

  /// The distance that tensors are aligned to, and general.alignment.
  GgufWriter& align(std::uint32_t alignment) {
    alignment_ = alignment;
    return add("general.alignment", alignment);
  }

  /// A tensor behind those before. `shape` has the outermost size first, as GgufTensor; `data` is as it shall lie
  /// there.
  GgufWriter& add_tensor(std::string_view name, std::uint32_t type, std::vector<std::uint64_t> shape,
                         std::string_view data) {
    pad(data_);
    const std::uint64_t offset = data_.size();
    data_ += data;
    return add_tensor_at(name, type, {shape.rbegin(), shape.rend()}, offset);
  }
  /// The description of a tensor only. `sizes` has the innermost first, as the file.
  GgufWriter& add_tensor_at(std::string_view name, std::uint32_t type, const std::vector<std::uint64_t>& sizes,
                            std::uint64_t offset) {
    tensors_.append(gguf_bytes(name)).append(gguf_bytes(static_cast<std::uint32_t>(sizes.size())));
    for (const auto size : sizes) tensors_ += gguf_bytes(size);
    tensors_.append(gguf_bytes(type)).append(gguf_bytes(offset));
    ++num_tensors_;
    return *this;
  }
  /// A tensor of zeros as float32.
  GgufWriter& add_zeros(std::string_view name, const std::vector<std::uint64_t>& shape) {
    std::size_t bytes = sizeof(float);
    for (const auto size : shape) bytes *= size;
    return add_tensor(name, kGgmlF32, shape, std::string(bytes, '\0'));
  }

  /// Bytes of data that belong to no tensor.
  GgufWriter& add_data(std::string_view data) {
    data_ += data;
    return *this;
  }
  /// What the header declares in place of the truth.
  GgufWriter& say_counts(std::uint64_t tensors, std::uint64_t keys) {
    said_ = {tensors, keys};
    return *this;
  }

  std::uint64_t num_tensors() const { return num_tensors_; }

  std::string bytes() const {
    const auto [tensors, keys] = said_.value_or(std::pair(num_tensors_, num_keys_));
    std::string file = "GGUF" + gguf_bytes(version_) + gguf_bytes(tensors) + gguf_bytes(keys) + keys_ + tensors_;
    if (!data_.empty()) pad(file);
    return file + data_;
  }
  std::filesystem::path write(const std::filesystem::path& path) const {
    std::ofstream(path, std::ios::binary) << bytes();
    return path;
  }

 private:
  void pad(std::string& bytes) const { bytes.resize((bytes.size() + alignment_ - 1) / alignment_ * alignment_, '\0'); }

  std::uint32_t version_;
  std::size_t alignment_ = 32;
  std::string keys_;
  std::string tensors_;
  std::string data_;
  std::uint64_t num_keys_ = 0;
  std::uint64_t num_tensors_ = 0;
  std::optional<std::pair<std::uint64_t, std::uint64_t>> said_;
};

/// "m-00002-of-00003.gguf" for `no` = 1.
inline std::string gguf_part_name(std::string_view stem, std::size_t no, std::size_t count) {
  std::array<char, 64> ending{};
  std::snprintf(ending.data(), ending.size(), "-%05zu-of-%05zu.gguf", no + 1, count);
  return std::string(stem).append(ending.data());
}

/// Writes `parts` as the parts of one split file; the keys about this are added. Returns the path of the first.
inline std::filesystem::path write_gguf_parts(const std::filesystem::path& folder, std::string_view stem,
                                              std::vector<GgufWriter> parts) {
  std::uint64_t tensors = 0;
  for (const auto& part : parts) tensors += part.num_tensors();
  for (std::size_t no = 0; no < parts.size(); ++no) {
    parts[no]
        .add("split.no", static_cast<std::uint16_t>(no))
        .add("split.count", static_cast<std::uint16_t>(parts.size()))
        .add("split.tensors.count", static_cast<std::int32_t>(tensors))
        .write(folder / gguf_part_name(stem, no, parts.size()));
  }
  return folder / gguf_part_name(stem, 0, parts.size());
}

}  // namespace pagoda::io::testing
