#include "io/model_files/gguf/gguf_parse.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <optional>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "engine/text/unicode.hpp"
#include "io/model_files/file_text.hpp"
#include "io/model_files/gguf/gguf_blocks.hpp"

namespace pagoda::io {
namespace {

static_assert(std::endian::native == std::endian::little, "numbers are taken as they lie in the file");

constexpr std::int64_t kMaxInt64 = std::numeric_limits<std::int64_t>::max();

using ValueType = GgufValueType;

/// A type of value: the C++ type that it has in the file, and the type that GgufValue keeps.
template <class StoredType, class KeptType>
struct As {
  using Stored = StoredType;
  using Kept = KeptType;
  /// Least size of a value in the file. A string needs at least its length field.
  static constexpr std::size_t kMinBytes =
      std::is_same_v<Stored, std::string_view> ? sizeof(std::uint64_t) : sizeof(Stored);
};

/// Returns the bytes of `elements` weights in blocks; nothing when the number does not fit 63 bits.
std::optional<std::int64_t> bytes_of(std::int64_t elements, const GgmlTypeInfo& info) {
  const std::int64_t blocks = elements / info.block_elements;
  if (blocks > kMaxInt64 / info.block_bytes) return std::nullopt;
  return blocks * info.block_bytes;
}

/// Reads a file from its beginning. Functions that return bool return false after an error, which is then in `error`.
class Parser {
 public:
  explicit Parser(std::span<const std::byte> file)
      : file_(file), header_(file.first(std::min(file.size(), kMaxGgufHeaderBytes))) {}

  GgufContents contents;
  Error error{ErrorCode::bad_file};

  bool parse() {
    std::uint64_t num_tensors = 0;
    std::uint64_t num_keys = 0;
    if (!read_start(num_tensors, num_keys)) return false;
    for (std::uint64_t i = 0; i < num_keys; ++i) {
      place_ = "key " + std::to_string(i + 1) + " of " + std::to_string(num_keys);
      if (!read_key_and_value()) return false;
    }
    // The alignment is checked before the tensors, because its message is clearer than errors that follow from it.
    std::int64_t alignment = 0;
    if (!find_alignment(alignment)) return false;
    for (std::uint64_t i = 0; i < num_tensors; ++i) {
      place_ = "tensor " + std::to_string(i + 1) + " of " + std::to_string(num_tensors);
      if (!read_tensor()) return false;
    }
    return place_data(alignment);
  }

 private:
  /// Position of a tensor's data, in bytes from the beginning of all data.
  struct Extent {
    GgufTensor* tensor = nullptr;
    std::uint64_t begin = 0;
    std::int64_t bytes = 0;
  };

  bool stop(std::string message, ErrorCode code = ErrorCode::bad_file) {
    error.code = code;
    error.message = std::move(message);
    return false;
  }
  /// Records an error in the key or tensor that is being read.
  bool stop_here(const std::string& reason, ErrorCode code = ErrorCode::bad_file) {
    return stop(place_ + ": " + reason, code);
  }

  /// Returns whether `count` items of at least `size` bytes follow.
  bool has(std::uint64_t count, std::size_t size) {
    if (count <= (header_.size() - at_) / size) return true;
    if (count > (kMaxGgufHeaderBytes - at_) / size) {
      return stop_here("what follows byte " + std::to_string(at_) + " makes the header longer than the limit of " +
                       std::to_string(kMaxGgufHeaderBytes) + " bytes");
    }
    return stop("ends at byte " + std::to_string(file_.size()) + ", inside " + place_ +
                ": the download is not complete?");
  }

  template <class T>
  bool read(T& number) {
    static_assert(std::is_arithmetic_v<T> && !std::is_same_v<T, bool>);
    if (!has(1, sizeof(T))) return false;
    std::memcpy(&number, header_.data() + at_, sizeof(T));
    at_ += sizeof(T);
    return true;
  }

  bool read(std::string_view& text) {
    std::uint64_t size = 0;
    if (!read(size) || !has(size, 1)) return false;
    text = {reinterpret_cast<const char*>(header_.data()) + at_, static_cast<std::size_t>(size)};
    at_ += text.size();
    return true;
  }

  /// Reads the name of a key or tensor.
  bool read_name(std::string_view& name, std::size_t max_bytes) {
    if (!read(name)) return false;
    if (name.empty()) return stop_here("its name is empty");
    if (name.size() > max_bytes) {
      return stop_here("its name of " + std::to_string(name.size()) + " bytes is longer than the limit of " +
                       std::to_string(max_bytes));
    }
    // Names appear in messages, which are UTF-8.
    if (text::find_invalid_utf8(name) != std::string_view::npos) return stop_here("its name is not UTF-8");
    return true;
  }

  bool read_start(std::uint64_t& num_tensors, std::uint64_t& num_keys) {
    constexpr std::string_view kMagic = "GGUF";
    place_ = "the header";
    if (file_.size() < kMagic.size()) {
      return stop("not a GGUF file: " + std::to_string(file_.size()) + " bytes are too few");
    }
    const std::string_view magic(reinterpret_cast<const char*>(file_.data()), kMagic.size());
    if (magic != kMagic) return stop("not a GGUF file: it begins with " + quote(magic) + ", not with \"GGUF\"");
    at_ = kMagic.size();
    std::uint32_t version = 0;
    if (!read(version) || !check_version(version)) return false;
    if (!read(num_tensors) || !read(num_keys)) return false;
    return check_count("tensors", num_tensors, kMaxGgufTensors) && check_count("keys", num_keys, kMaxGgufKeys);
  }

  bool check_version(std::uint32_t version) {
    if (version == 2 || version == 3) return true;
    // In a big-endian file the version is in the upper half of the number read here.
    if (version != 0 && (version & 0xFFFFU) == 0) {
      return stop("a big-endian GGUF file is not supported", ErrorCode::unsupported);
    }
    return stop("GGUF version " + std::to_string(version) + " is not supported: only 2 and 3 are",
                version == 0 ? ErrorCode::bad_file : ErrorCode::unsupported);
  }

  bool check_count(const char* what, std::uint64_t count, std::uint64_t limit) {
    return count <= limit || stop("the header declares " + std::to_string(count) + " " + what +
                                  ", more than the limit of " + std::to_string(limit));
  }

  bool read_key_and_value() {
    std::string_view key;
    if (!read_name(key, kMaxGgufKeyBytes)) return false;
    place_ = "key " + quote(key);
    const auto [entry, is_new] = contents.metadata.try_emplace(std::string(key));
    if (!is_new) return stop_here("it occurs twice");
    std::uint32_t type = 0;
    if (!read(type)) return false;
    const std::size_t begin = at_;
    const bool is_array = ValueType{type} == ValueType::array;
    if (!(is_array ? read_array(entry->second) : read_scalar(type, entry->second))) return false;
    contents.entries.push_back({key, ValueType{type}, file_.subspan(begin, at_ - begin)});
    return true;
  }

  /// Calls `visit` with the As of `type`. An array is an error.
  template <class Visit>
  bool visit_type(std::uint32_t type, const Visit& visit) {
    switch (ValueType{type}) {
      case ValueType::u8:
        return visit(As<std::uint8_t, std::int64_t>());
      case ValueType::i8:
        return visit(As<std::int8_t, std::int64_t>());
      case ValueType::u16:
        return visit(As<std::uint16_t, std::int64_t>());
      case ValueType::i16:
        return visit(As<std::int16_t, std::int64_t>());
      case ValueType::u32:
        return visit(As<std::uint32_t, std::int64_t>());
      case ValueType::i32:
        return visit(As<std::int32_t, std::int64_t>());
      case ValueType::u64:
        return visit(As<std::uint64_t, std::int64_t>());
      case ValueType::i64:
        return visit(As<std::int64_t, std::int64_t>());
      case ValueType::f32:
        return visit(As<float, double>());
      case ValueType::f64:
        return visit(As<double, double>());
      case ValueType::boolean:
        return visit(As<std::uint8_t, bool>());
      case ValueType::string:
        return visit(As<std::string_view, std::string_view>());
      case ValueType::array:
        return stop_here("an array of arrays is not allowed");
    }
    return stop_here("unknown value type " + std::to_string(type));
  }

  template <class Type>
  bool read_one(typename Type::Kept& value) {
    typename Type::Stored stored{};
    if (!read(stored)) return false;
    if constexpr (std::is_same_v<typename Type::Kept, bool>) {
      if (stored > 1) return stop_here("a boolean must be 0 or 1, not " + std::to_string(stored));
      value = stored == 1;
    } else {
      if constexpr (std::is_same_v<typename Type::Stored, std::uint64_t>) {
        if (!std::in_range<std::int64_t>(stored)) {
          return stop_here(std::to_string(stored) + " is more than the limit of " + std::to_string(kMaxInt64));
        }
      }
      value = static_cast<typename Type::Kept>(stored);
    }
    return true;
  }

  bool read_scalar(std::uint32_t type, GgufValue& value) {
    return visit_type(type, [&]<class Type>(Type) { return read_one<Type>(value.emplace<typename Type::Kept>()); });
  }

  bool read_array(GgufValue& value) {
    std::uint32_t type = 0;
    std::uint64_t count = 0;
    if (!read(type) || !read(count)) return false;
    return visit_type(type, [&]<class Type>(Type) {
      if (!has(count, Type::kMinBytes)) return false;
      auto& items = value.emplace<std::vector<typename Type::Kept>>();
      items.reserve(static_cast<std::size_t>(count));
      for (std::uint64_t i = 0; i < count; ++i) {
        typename Type::Kept item{};
        if (!read_one<Type>(item)) return false;
        items.push_back(item);
      }
      return true;
    });
  }

  bool find_alignment(std::int64_t& alignment) {
    alignment = kDefaultGgufAlignment;
    const auto entry = contents.metadata.find("general.alignment");
    if (entry == contents.metadata.end()) return true;
    place_ = "key " + quote(entry->first);
    const auto* value = std::get_if<std::int64_t>(&entry->second);
    if (value == nullptr) return stop_here("it must be an integer");
    if (*value < kMinGgufAlignment || *value > kMaxGgufAlignment || !std::has_single_bit(std::uint64_t(*value))) {
      return stop_here(std::to_string(*value) + " is not a power of two from " + std::to_string(kMinGgufAlignment) +
                       " to " + std::to_string(kMaxGgufAlignment));
    }
    alignment = *value;
    return true;
  }

  bool read_tensor() {
    std::string_view name;
    if (!read_name(name, kMaxGgufTensorNameBytes)) return false;
    place_ = "tensor " + quote(name);
    const auto [entry, is_new] = contents.tensors.try_emplace(std::string(name));
    if (!is_new) return stop_here("it occurs twice");
    GgufTensor& tensor = entry->second;
    tensor.name = name;
    std::uint32_t type = 0;
    Extent extent{.tensor = &tensor};
    if (!read_shape(tensor.shape) || !read(type) || !read(extent.begin)) return false;
    tensor.type = GgmlType{type};
    if (!measure(tensor, extent.bytes)) return false;
    extents_.push_back(extent);
    return true;
  }

  /// Reads a shape as GgufTensor has it; the product of its sizes fits 63 bits.
  bool read_shape(std::vector<std::int64_t>& shape) {
    std::uint32_t rank = 0;
    if (!read(rank)) return false;
    if (rank > kMaxGgufTensorRank) {
      return stop_here(std::to_string(rank) + " dimensions are more than the limit of " +
                       std::to_string(kMaxGgufTensorRank));
    }
    if (rank == 0) shape.push_back(1);
    std::int64_t elements = 1;
    for (std::uint32_t i = 0; i < rank; ++i) {
      std::uint64_t size = 0;
      if (!read(size)) return false;
      if (size == 0) return stop_here("a dimension is 0");
      if (size > static_cast<std::uint64_t>(kMaxInt64 / elements)) return stop_here("its sizes are too large");
      shape.push_back(static_cast<std::int64_t>(size));
      elements *= shape.back();
    }
    std::ranges::reverse(shape);
    return true;
  }

  bool measure(const GgufTensor& tensor, std::int64_t& bytes) {
    const auto* info = ggml_type_info(tensor.type);
    if (info == nullptr) {
      return stop_here(ggml_type_name(tensor.type) + " is not supported: only " + supported_ggml_types() + " are",
                       ErrorCode::unsupported);
    }
    if (tensor.shape.back() % info->block_elements != 0) {
      return stop_here("rows of " + std::to_string(tensor.shape.back()) + " are not whole blocks of " +
                       std::to_string(info->block_elements) + ", as " + info->name + " has them");
    }
    const auto needed = bytes_of(tensor.elements(), *info);
    if (!needed) return stop_here("its sizes are too large");
    bytes = *needed;
    return true;
  }

  /// Finds the tensors' data, which begin after the header and may have gaps.
  bool place_data(std::int64_t alignment) {
    if (extents_.empty()) return true;
    const auto step = static_cast<std::size_t>(alignment);
    const std::size_t data_begin = (at_ + step - 1) / step * step;
    const auto most = static_cast<std::uint64_t>(kMaxInt64) - data_begin;
    for (const auto& [tensor, begin, bytes] : extents_) {
      place_ = "tensor " + quote(tensor->name);
      if (begin % step != 0) {
        return stop_here("its offset " + std::to_string(begin) + " is not a multiple of the alignment " +
                         std::to_string(step));
      }
      if (begin > most || static_cast<std::uint64_t>(bytes) > most - begin) {
        return stop_here("its offset " + std::to_string(begin) + " is too large");
      }
    }
    std::ranges::sort(extents_, {}, &Extent::begin);
    for (std::size_t i = 1; i < extents_.size(); ++i) {
      const auto& previous = extents_[i - 1];
      if (extents_[i].begin - previous.begin >= static_cast<std::uint64_t>(previous.bytes)) continue;
      return stop("tensor " + quote(extents_[i].tensor->name) + " overlaps tensor " + quote(previous.tensor->name));
    }
    // The extents do not overlap, so the last one reaches furthest.
    const auto& last = extents_.back();
    const std::uint64_t end = data_begin + last.begin + static_cast<std::uint64_t>(last.bytes);
    if (end > file_.size()) {
      return stop("ends at byte " + std::to_string(file_.size()) + ", tensor " + quote(last.tensor->name) + " needs " +
                  std::to_string(end) + ": the download is not complete?");
    }
    for (const auto& [tensor, begin, bytes] : extents_) {
      tensor->data = file_.subspan(data_begin + static_cast<std::size_t>(begin), static_cast<std::size_t>(bytes));
    }
    return true;
  }

  std::span<const std::byte> file_;
  std::span<const std::byte> header_;  // the leading bytes of the file that may hold the header
  std::size_t at_ = 0;
  std::string place_;  // the key or tensor that is being read, for messages
  std::vector<Extent> extents_;
};

}  // namespace

Result<GgufContents> parse_gguf(std::span<const std::byte> file, std::string_view file_name) {
  Parser parser(file);
  if (!parser.parse()) return fail(parser.error.code, std::string(file_name) + ": " + parser.error.message);
  return std::move(parser.contents);
}

}  // namespace pagoda::io
