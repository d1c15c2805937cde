#include "engine/text/unicode.hpp"

#include <array>

#include <utf8proc.h>

namespace pagoda::text {
namespace {

struct ByteLevelAlphabet {
  std::array<std::array<char, 2>, 256> characters{};
  std::array<std::uint8_t, 256> sizes{};
  std::array<std::int16_t, 512> bytes{};  // by character; the alphabet ends below U+0144
};

ByteLevelAlphabet make_byte_level_alphabet() {
  ByteLevelAlphabet alphabet;
  alphabet.bytes.fill(-1);
  char32_t next_free = 256;
  for (int byte = 0; byte < 256; ++byte) {
    const bool visible =
        (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || (byte >= 0xAE && byte <= 0xFF);
    const char32_t character = visible ? static_cast<char32_t>(byte) : next_free++;
    std::string utf8;
    append_utf8(utf8, character);
    for (std::size_t i = 0; i < utf8.size(); ++i) alphabet.characters[byte][i] = utf8[i];
    alphabet.sizes[byte] = static_cast<std::uint8_t>(utf8.size());
    alphabet.bytes[character] = static_cast<std::int16_t>(byte);
  }
  return alphabet;
}

const ByteLevelAlphabet& byte_level_alphabet() {
  static const ByteLevelAlphabet alphabet = make_byte_level_alphabet();
  return alphabet;
}

utf8proc_category_t category(char32_t character) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(character));
}

}  // namespace

Utf8Unit first_utf8_unit(std::string_view bytes) {
  const auto lead = static_cast<std::uint8_t>(bytes[0]);
  if (lead < 0x80) return {Utf8Status::complete, 1};
  // The range of the second byte rules out overlong forms, surrogates and values above U+10FFFF.
  std::size_t size = 0;
  std::uint8_t low = 0x80;
  std::uint8_t high = 0xBF;
  if (lead >= 0xC2 && lead <= 0xDF) {
    size = 2;
  } else if (lead >= 0xE0 && lead <= 0xEF) {
    size = 3;
    if (lead == 0xE0) low = 0xA0;
    if (lead == 0xED) high = 0x9F;
  } else if (lead >= 0xF0 && lead <= 0xF4) {
    size = 4;
    if (lead == 0xF0) low = 0x90;
    if (lead == 0xF4) high = 0x8F;
  } else {
    return {Utf8Status::invalid, 1};
  }
  for (std::size_t i = 1; i < size; ++i) {
    if (i == bytes.size()) return {Utf8Status::incomplete, i};
    const auto byte = static_cast<std::uint8_t>(bytes[i]);
    if (byte < low || byte > high) return {Utf8Status::invalid, i};
    low = 0x80;
    high = 0xBF;
  }
  return {Utf8Status::complete, size};
}

std::size_t find_invalid_utf8(std::string_view text) {
  std::size_t position = 0;
  while (position < text.size()) {
    if (static_cast<std::uint8_t>(text[position]) < 0x80) {
      ++position;
      continue;
    }
    const Utf8Unit unit = first_utf8_unit(text.substr(position));
    if (unit.status != Utf8Status::complete) return position;
    position += unit.size;
  }
  return std::string_view::npos;
}

std::string to_valid_utf8(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size());
  while (!bytes.empty()) {
    const Utf8Unit unit = first_utf8_unit(bytes);
    text += unit.status == Utf8Status::complete ? bytes.substr(0, unit.size) : kReplacementCharacter;
    bytes.remove_prefix(unit.size);
  }
  return text;
}

char32_t next_character(std::string_view text, std::size_t& position) {
  const auto byte = [&](std::size_t offset) {
    return static_cast<char32_t>(static_cast<std::uint8_t>(text[position + offset]));
  };
  const char32_t lead = byte(0);
  if (lead < 0x80) {
    position += 1;
    return lead;
  }
  if (lead < 0xE0) {
    const char32_t character = (lead & 0x1F) << 6 | (byte(1) & 0x3F);
    position += 2;
    return character;
  }
  if (lead < 0xF0) {
    const char32_t character = (lead & 0x0F) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    position += 3;
    return character;
  }
  const char32_t character = (lead & 0x07) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
  position += 4;
  return character;
}

std::size_t last_character_offset(std::string_view text) {
  std::size_t offset = text.size() - 1;
  while (offset > 0 && (static_cast<std::uint8_t>(text[offset]) & 0xC0) == 0x80) --offset;
  return offset;
}

void append_utf8(std::string& text, char32_t character) {
  const auto put = [&](char32_t byte) { text.push_back(static_cast<char>(static_cast<std::uint8_t>(byte))); };
  if (character < 0x80) {
    put(character);
  } else if (character < 0x800) {
    put(0xC0 | character >> 6);
    put(0x80 | (character & 0x3F));
  } else if (character < 0x10000) {
    put(0xE0 | character >> 12);
    put(0x80 | (character >> 6 & 0x3F));
    put(0x80 | (character & 0x3F));
  } else {
    put(0xF0 | character >> 18);
    put(0x80 | (character >> 12 & 0x3F));
    put(0x80 | (character >> 6 & 0x3F));
    put(0x80 | (character & 0x3F));
  }
}

bool is_white_space(char32_t c) {
  return (c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000;
}

bool is_numeric(char32_t character) {
  if (character < 0x80) return character >= '0' && character <= '9';
  const utf8proc_category_t c = category(character);
  return c == UTF8PROC_CATEGORY_ND || c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_NO;
}

bool is_punctuation(char32_t character) {
  if (character < 0x80) {
    return (character >= 0x21 && character <= 0x2F) || (character >= 0x3A && character <= 0x40) ||
           (character >= 0x5B && character <= 0x60) || (character >= 0x7B && character <= 0x7E);
  }
  const utf8proc_category_t c = category(character);
  return c >= UTF8PROC_CATEGORY_PC && c <= UTF8PROC_CATEGORY_PO;
}

bool is_word(char32_t character) {
  if (character == 0x200C || character == 0x200D) return true;
  // Other_Alphabetic symbols: circled and squared Latin letters.
  if ((character >= 0x24B6 && character <= 0x24E9) || (character >= 0x1F130 && character <= 0x1F149) ||
      (character >= 0x1F150 && character <= 0x1F169) || (character >= 0x1F170 && character <= 0x1F189)) {
    return true;
  }
  const utf8proc_category_t c = category(character);
  return (c >= UTF8PROC_CATEGORY_LU && c <= UTF8PROC_CATEGORY_ME) || c == UTF8PROC_CATEGORY_ND ||
         c == UTF8PROC_CATEGORY_NL || c == UTF8PROC_CATEGORY_PC;
}

std::string_view byte_level_character(std::uint8_t byte) {
  const ByteLevelAlphabet& alphabet = byte_level_alphabet();
  return {alphabet.characters[byte].data(), alphabet.sizes[byte]};
}

int byte_level_byte(char32_t character) {
  const ByteLevelAlphabet& alphabet = byte_level_alphabet();
  return character < alphabet.bytes.size() ? alphabet.bytes[character] : -1;
}

}  // namespace pagoda::text
