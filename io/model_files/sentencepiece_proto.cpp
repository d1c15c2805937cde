#include "io/model_files/sentencepiece_proto.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "io/model_files/little_endian.hpp"

namespace pagoda::io {
namespace {

// Protobuf's encoding: a field is its number and wire type, followed by the value.
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

/// Iterates over the fields of one message in protobuf's encoding.
class ProtoFields {
 public:
  enum class WireType : std::uint8_t {
    varint = 0,
    eight_bytes = 1,
    bytes = 2,
    group = 3,
    group_end = 4,
    four_bytes = 5
  };

  explicit ProtoFields(std::string_view message) : rest_(message) {}

  /// Goes to the next field. Returns false at the end of the message, and where it is damaged.
  bool next() {
    if (rest_.empty() || damaged_) return false;
    constexpr std::uint64_t kMaxFields = std::uint64_t{1} << 29;
    const std::uint64_t tag = varint();
    field_ = tag >> 3;
    type_ = static_cast<WireType>(tag & 7);
    if (field_ == 0 || field_ >= kMaxFields) damaged_ = true;
    switch (type_) {
      case WireType::varint:
        number_ = varint();
        break;
      case WireType::eight_bytes:
        take(8);
        break;
      case WireType::bytes:
        take(varint());
        break;
      case WireType::four_bytes:
        take(4);
        break;
      case WireType::group:
      case WireType::group_end:  // ModelProto has no groups
      default:
        damaged_ = true;
    }
    return !damaged_;
  }

  bool damaged() const { return damaged_; }
  bool is(std::uint64_t field, WireType type) const { return field_ == field && type_ == type; }
  std::uint64_t number() const { return number_; }
  std::string_view bytes() const { return bytes_; }

 private:
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (unsigned shift = 0; shift < 64 && !rest_.empty(); shift += 7) {
      const auto byte = static_cast<unsigned char>(rest_.front());
      rest_.remove_prefix(1);
      value |= std::uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) return value;
    }
    damaged_ = true;
    return 0;
  }

  void take(std::uint64_t size) {
    damaged_ = damaged_ || size > rest_.size();
    if (damaged_) return;
    bytes_ = rest_.substr(0, static_cast<std::size_t>(size));
    rest_.remove_prefix(bytes_.size());
  }

  std::string_view rest_;
  std::uint64_t field_ = 0;
  WireType type_ = WireType::varint;
  std::uint64_t number_ = 0;
  std::string_view bytes_;
  bool damaged_ = false;
};

using WireType = ProtoFields::WireType;

/// Reads an enum with the values 1 to `last`; an unknown value counts as absent.
template <class Enum>
void read_enum(std::uint64_t number, Enum last, Enum& value) {
  if (number >= 1 && number <= static_cast<std::uint64_t>(last)) value = static_cast<Enum>(number);
}

bool read_piece(std::string_view message, SentencePieceProto::Piece& piece) {
  ProtoFields fields(message);
  while (fields.next()) {
    if (fields.is(1, WireType::bytes)) piece.text = fields.bytes();
    if (fields.is(2, WireType::four_bytes)) piece.score = std::bit_cast<float>(read_u32(fields.bytes(), 0));
    if (fields.is(3, WireType::varint)) read_enum(fields.number(), SentencePieceProto::PieceType::byte, piece.type);
  }
  return !fields.damaged();
}

bool read_trainer_spec(std::string_view message, SentencePieceProto& proto) {
  ProtoFields fields(message);
  while (fields.next()) {
    if (fields.is(3, WireType::varint)) {
      read_enum(fields.number(), SentencePieceProto::Algorithm::character, proto.algorithm);
    }
    if (fields.is(24, WireType::varint)) proto.treat_whitespace_as_suffix = fields.number() != 0;
    if (fields.is(35, WireType::varint)) proto.byte_fallback = fields.number() != 0;
  }
  return !fields.damaged();
}

bool read_normalizer_spec(std::string_view message, SentencePieceProto& proto) {
  ProtoFields fields(message);
  while (fields.next()) {
    if (fields.is(2, WireType::bytes)) proto.precompiled_charsmap = fields.bytes();
    if (fields.is(3, WireType::varint)) proto.add_dummy_prefix = fields.number() != 0;
    if (fields.is(4, WireType::varint)) proto.remove_extra_whitespaces = fields.number() != 0;
    if (fields.is(5, WireType::varint)) proto.escape_whitespaces = fields.number() != 0;
  }
  return !fields.damaged();
}

bool read_denormalizer_spec(std::string_view message, SentencePieceProto& proto) {
  ProtoFields fields(message);
  while (fields.next()) {
    if (fields.is(2, WireType::bytes)) proto.denormalizer_charsmap = fields.bytes();
  }
  return !fields.damaged();
}

}  // namespace

Result<SentencePieceProto> parse_sentencepiece_proto(std::string_view bytes) {
  SentencePieceProto proto;
  proto.algorithm = SentencePieceProto::Algorithm::unigram;  // defaults of the message
  proto.remove_extra_whitespaces = true;
  ProtoFields fields(bytes);
  bool whole = true;
  while (whole && fields.next()) {
    if (fields.is(1, WireType::bytes)) whole = read_piece(fields.bytes(), proto.pieces.emplace_back());
    if (fields.is(2, WireType::bytes)) whole = read_trainer_spec(fields.bytes(), proto);
    if (fields.is(3, WireType::bytes)) whole = read_normalizer_spec(fields.bytes(), proto);
    if (fields.is(5, WireType::bytes)) whole = read_denormalizer_spec(fields.bytes(), proto);
  }
  if (whole && !fields.damaged()) return proto;
  return fail(ErrorCode::bad_config, "is not a SentencePiece model: the encoding of its message is damaged");
}

Status check_sentencepiece_proto(const SentencePieceProto& proto) {
  for (const std::string_view charsmap : {proto.precompiled_charsmap, proto.denormalizer_charsmap}) {
    if (charsmap.empty() || is_valid_charsmap(charsmap)) continue;
    return fail(ErrorCode::bad_config, "is not a SentencePiece model: its precompiled_charsmap is damaged");
  }
  const auto is_finite = [](const SentencePieceProto::Piece& piece) { return std::isfinite(piece.score); };
  const auto bad = std::ranges::find_if_not(proto.pieces, is_finite);
  if (bad == proto.pieces.end()) return {};
  return fail(ErrorCode::bad_config, "has a score that is not a finite number, for the token with the id " +
                                         std::to_string(bad - proto.pieces.begin()));
}

namespace {

/// The double array of darts-clone. A unit is a value (highest bit set), or it has a byte as its label and leads to the
/// units at base ^ byte, where base = index ^ offset. The unit at the base holds the value of the path, if the path has
/// one.
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

/// Computes the largest number of values on a path through a double array whose units all lead to indices within it.
class LongestPath {
 public:
  explicit LongestPath(const DoubleArray& array) : array_(array), most_(array.size(), kUnknown) {}

  /// Returns nothing when a path is circular or longer than kMaxDepth.
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
      const auto after = from(DoubleArray::base(index, unit), depth + 1);
      if (!after) return std::nullopt;
      most = std::max(most, *after + (DoubleArray::has_value(unit) ? 1 : 0));
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

bool is_valid_charsmap(std::string_view charsmap) {
  // The library keeps at most this many values of a path on its stack, and then reads as many as there were.
  constexpr int kMaxValuesOfAPath = 32;
  constexpr std::size_t kSizeBytes = 4;
  if (charsmap.size() < kSizeBytes) return false;
  const std::size_t array_bytes = read_u32(charsmap, 0);
  if (array_bytes % DoubleArray::kUnitBytes != 0 || array_bytes >= charsmap.size() - kSizeBytes ||
      !charsmap.ends_with('\0')) {
    return false;
  }
  const DoubleArray array(charsmap.substr(kSizeBytes, array_bytes));
  const std::size_t text_bytes = charsmap.size() - kSizeBytes - array_bytes;
  if (array.size() == 0 || DoubleArray::is_value(array.unit(0))) return false;  // paths begin at the first unit
  for (std::size_t index = 0; index < array.size(); ++index) {
    const std::uint32_t unit = array.unit(index);
    if (DoubleArray::is_value(unit)) continue;
    const std::size_t base = DoubleArray::base(index, unit);
    if ((base | 0xFF) >= array.size()) return false;
    if (DoubleArray::has_value(unit) && (array.unit(base) & ~DoubleArray::kIsValue) >= text_bytes) return false;
  }
  const auto most = LongestPath(array).from(DoubleArray::base(0, array.unit(0)));
  return most && *most <= kMaxValuesOfAPath;
}

}  // namespace pagoda::io
