#include "io/model_files/gguf/gguf_metadata.hpp"

#include <algorithm>
#include <utility>

#include "io/model_files/gguf/gguf_bytes.hpp"

namespace pagoda::io {
namespace {

template <class T>
std::string scalar_bytes(T value) {
  std::string bytes;
  gguf_bytes::add_number(bytes, value);
  return bytes;
}

std::string array_start(GgufValueType type, std::size_t count) {
  std::string bytes;
  gguf_bytes::add_number(bytes, type);
  gguf_bytes::add_number(bytes, std::uint64_t{count});
  return bytes;
}

template <class T>
std::string array_bytes(GgufValueType type, std::span<const T> values) {
  std::string bytes = array_start(type, values.size());
  for (const T value : values) gguf_bytes::add_number(bytes, value);
  return bytes;
}

}  // namespace

void GgufMetadata::copy(const GgufEntry& entry) {
  put(entry.key, entry.type, {reinterpret_cast<const char*>(entry.bytes.data()), entry.bytes.size()});
}

void GgufMetadata::set(std::string_view key, std::string_view text) {
  std::string bytes;
  gguf_bytes::add_text(bytes, text);
  put(key, GgufValueType::string, std::move(bytes));
}

void GgufMetadata::set(std::string_view key, bool value) {
  put(key, GgufValueType::boolean, scalar_bytes<std::uint8_t>(value ? 1 : 0));
}

void GgufMetadata::set(std::string_view key, std::uint32_t value) {
  put(key, GgufValueType::u32, scalar_bytes(value));
}

void GgufMetadata::set(std::string_view key, std::int32_t value) {
  put(key, GgufValueType::i32, scalar_bytes(value));
}

void GgufMetadata::set(std::string_view key, float value) {
  put(key, GgufValueType::f32, scalar_bytes(value));
}

void GgufMetadata::set(std::string_view key, std::span<const std::string> texts) {
  std::string bytes = array_start(GgufValueType::string, texts.size());
  for (const std::string& text : texts) gguf_bytes::add_text(bytes, text);
  put(key, GgufValueType::array, std::move(bytes));
}

void GgufMetadata::set(std::string_view key, std::span<const std::int32_t> values) {
  put(key, GgufValueType::array, array_bytes(GgufValueType::i32, values));
}

void GgufMetadata::set(std::string_view key, std::span<const float> values) {
  put(key, GgufValueType::array, array_bytes(GgufValueType::f32, values));
}

void GgufMetadata::set(std::string_view key, std::span<const std::uint8_t> values) {
  put(key, GgufValueType::array, array_bytes(GgufValueType::u8, values));
}

std::string GgufMetadata::bytes() const {
  std::string bytes;
  for (const Entry& entry : entries_) {
    gguf_bytes::add_text(bytes, entry.key);
    gguf_bytes::add_number(bytes, entry.type);
    bytes += entry.value;
  }
  return bytes;
}

void GgufMetadata::put(std::string_view key, GgufValueType type, std::string value) {
  const auto found = std::ranges::find(entries_, key, &Entry::key);
  if (found == entries_.end()) {
    entries_.push_back({std::string(key), type, std::move(value)});
  } else {
    found->type = type;
    found->value = std::move(value);
  }
}

}  // namespace pagoda::io
