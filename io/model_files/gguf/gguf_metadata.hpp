#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/model_files/gguf/gguf_file.hpp"

namespace pagoda::io {

/// Metadata for writing: keys in order, with the bytes of their values in a file. A key that is set again keeps its
/// place.
class GgufMetadata {
 public:
  /// Copies an entry of a GGUF file with its bytes.
  void copy(const GgufEntry& entry);
  void set(std::string_view key, std::string_view text);
  void set(std::string_view key, const char* text) { set(key, std::string_view(text)); }
  void set(std::string_view key, bool value);
  void set(std::string_view key, std::uint32_t value);
  void set(std::string_view key, std::int32_t value);
  void set(std::string_view key, float value);
  void set(std::string_view key, std::span<const std::string> texts);
  void set(std::string_view key, std::span<const std::int32_t> values);
  void set(std::string_view key, std::span<const float> values);
  void set(std::string_view key, std::span<const std::uint8_t> values);

  std::size_t size() const { return entries_.size(); }
  /// Returns all keys and values as the bytes of a file.
  std::string bytes() const;

 private:
  struct Entry {
    std::string key;
    GgufValueType type{};
    std::string value;
  };
  void put(std::string_view key, GgufValueType type, std::string value);

  std::vector<Entry> entries_;
};

}  // namespace pagoda::io
