#include "io/model_files/gguf/sentencepiece_proto.hpp"

#include <bit>
#include <cstddef>

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
  std::uint32_t value = 0;
  for (std::size_t i = 0; i < 4; ++i) value |= std::uint32_t{static_cast<std::uint8_t>(bytes[at + i])} << (8 * i);
  return value;
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

bool is_sound_charsmap(std::string_view charsmap) {
  constexpr std::size_t kUnitBytes = 4;
  if (charsmap.size() < kUnitBytes) return false;
  const std::size_t array_bytes = read_u32(charsmap, 0);
  if (array_bytes % kUnitBytes != 0 || array_bytes >= charsmap.size() - kUnitBytes || !charsmap.ends_with('\0')) {
    return false;
  }
  const std::string_view array = charsmap.substr(kUnitBytes, array_bytes);
  const std::size_t text_bytes = charsmap.size() - kUnitBytes - array_bytes;
  const std::size_t num_units = array_bytes / kUnitBytes;
  if (num_units == 0) return false;
  // A unit is a value (highest bit set), or leads to those at index ^ offset ^ byte; the one of byte 0 is its value.
  constexpr std::uint32_t kIsValue = 1U << 31;
  constexpr std::uint32_t kHasValue = 1U << 8;
  for (std::size_t index = 0; index < num_units; ++index) {
    const std::uint32_t unit = read_u32(array, index * kUnitBytes);
    if ((unit & kIsValue) != 0) continue;
    const std::size_t offset = std::size_t{unit >> 10} << ((unit & (1U << 9)) >> 6);
    const std::size_t next = index ^ offset;
    if ((next | 0xFF) >= num_units) return false;
    if ((unit & kHasValue) == 0) continue;
    const std::uint32_t value = read_u32(array, next * kUnitBytes) & ~kIsValue;
    if (value >= text_bytes) return false;
  }
  return true;
}

}  // namespace pagoda::io
