#include "io/model_files/gguf/sentencepiece_proto.hpp"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "io/model_files/little_endian.hpp"

namespace pagoda::io {
namespace {

// Protobuf's encoding: a field is its number and wire type, then the value.
void append_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out += static_cast<char>((value & 0x7F) | 0x80);
  out += static_cast<char>(value);
}

void append_number(std::string& out, std::uint32_t field, std::uint64_t value) {
  append_varint(out, field << 3);
  append_varint(out, value);
}

void append_bytes(std::string& out, std::uint32_t field, std::string_view bytes) {
  append_varint(out, field << 3 | 2);
  append_varint(out, bytes.size());
  out += bytes;
}

void append_float(std::string& out, std::uint32_t field, float value) {
  append_varint(out, field << 3 | 5);
  const auto bits = std::bit_cast<std::uint32_t>(value);
  for (int shift = 0; shift < 32; shift += 8) out += static_cast<char>(bits >> shift & 0xFF);
}

std::uint32_t read_u32(std::string_view bytes, std::size_t at) {
  return static_cast<std::uint32_t>(little_endian(std::as_bytes(std::span(bytes.substr(at, sizeof(std::uint32_t))))));
}

}  // namespace

std::string serialize(const SentencePieceProto& proto) {
  std::string model;
  std::string message;
  for (const SentencePieceProto::Piece& piece : proto.pieces) {
    message.clear();
    append_bytes(message, 1, piece.text);
    append_float(message, 2, piece.score);
    append_number(message, 3, static_cast<std::uint64_t>(piece.type));
    append_bytes(model, 1, message);
  }
  std::string trainer_spec;
  append_number(trainer_spec, 3, static_cast<std::uint64_t>(proto.algorithm));  // model_type
  append_number(trainer_spec, 35, proto.byte_fallback ? 1 : 0);
  append_bytes(model, 2, trainer_spec);
  std::string normalizer_spec;
  append_bytes(normalizer_spec, 1, "from a GGUF file");  // name
  append_bytes(normalizer_spec, 2, proto.precompiled_charsmap);
  append_number(normalizer_spec, 3, proto.add_dummy_prefix ? 1 : 0);
  append_number(normalizer_spec, 4, proto.remove_extra_whitespaces ? 1 : 0);
  append_number(normalizer_spec, 5, 1);  // escape_whitespaces
  append_bytes(model, 3, normalizer_spec);
  return model;
}

namespace {

/// The double array of darts-clone. A unit is a value (highest bit set), or has a byte as its label and leads to those
/// at base ^ byte, where base = index ^ offset; at its base itself lies the value of the path to it, if it has one.
class DoubleArray {
 public:
  static constexpr std::uint32_t kIsValue = 1U << 31;

  explicit DoubleArray(std::string_view bytes) : bytes_(bytes) {}

  std::size_t size() const { return bytes_.size() / kUnitBytes; }
  std::uint32_t unit(std::size_t index) const { return read_u32(bytes_, index * kUnitBytes); }
  static bool is_value(std::uint32_t unit) { return (unit & kIsValue) != 0; }
  static bool has_value(std::uint32_t unit) { return (unit & (1U << 8)) != 0; }
  static bool leads_by(std::uint32_t unit, std::size_t byte) { return (unit & (kIsValue | 0xFFU)) == byte; }
  static std::size_t base(std::size_t index, std::uint32_t unit) {
    return index ^ (std::size_t{unit >> 10} << ((unit & (1U << 9)) >> 6));
  }

  static constexpr std::size_t kUnitBytes = 4;

 private:
  std::string_view bytes_;
};

/// The most values that lie on any path through a double array whose units all lead within it.
class LongestPath {
 public:
  explicit LongestPath(const DoubleArray& array) : array_(array), most_(array.size(), kUnknown) {}

  /// Nothing when a path runs in a circle or is longer than any text that is worth replacing.
  std::optional<int> from(std::size_t base, int depth = 0) {
    constexpr int kMaxDepth = 512;
    if (most_[base] == kOnThePath || depth > kMaxDepth) return std::nullopt;
    if (most_[base] != kUnknown) return most_[base];
    most_[base] = kOnThePath;
    int most = 0;
    for (std::size_t byte = 1; byte < 256; ++byte) {
      const std::size_t index = base ^ byte;
      const std::uint32_t unit = array_.unit(index);
      if (!DoubleArray::leads_by(unit, byte)) continue;
      const auto behind = from(DoubleArray::base(index, unit), depth + 1);
      if (!behind) return std::nullopt;
      most = std::max(most, *behind + (DoubleArray::has_value(unit) ? 1 : 0));
    }
    most_[base] = most;
    return most;
  }

 private:
  static constexpr int kUnknown = -1;
  static constexpr int kOnThePath = -2;
  const DoubleArray& array_;
  std::vector<int> most_;  // by base
};

}  // namespace

bool is_sound_charsmap(std::string_view charsmap) {
  // The library keeps so many values of a path on its stack, and then reads as many as there were.
  constexpr int kMostValuesOfAPath = 32;
  constexpr std::size_t kSizeBytes = 4;
  if (charsmap.size() < kSizeBytes) return false;
  const std::size_t array_bytes = read_u32(charsmap, 0);
  if (array_bytes % DoubleArray::kUnitBytes != 0 || array_bytes >= charsmap.size() - kSizeBytes ||
      !charsmap.ends_with('\0')) {
    return false;
  }
  const DoubleArray array(charsmap.substr(kSizeBytes, array_bytes));
  const std::size_t text_bytes = charsmap.size() - kSizeBytes - array_bytes;
  if (array.size() == 0 || DoubleArray::is_value(array.unit(0))) return false;  // the first one is where paths begin
  for (std::size_t index = 0; index < array.size(); ++index) {
    const std::uint32_t unit = array.unit(index);
    if (DoubleArray::is_value(unit)) continue;
    const std::size_t base = DoubleArray::base(index, unit);
    if ((base | 0xFF) >= array.size()) return false;
    if (DoubleArray::has_value(unit) && (array.unit(base) & ~DoubleArray::kIsValue) >= text_bytes) return false;
  }
  const auto most = LongestPath(array).from(DoubleArray::base(0, array.unit(0)));
  return most && *most <= kMostValuesOfAPath;
}

}  // namespace pagoda::io
