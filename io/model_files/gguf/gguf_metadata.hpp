#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "io/model_files/gguf/gguf_file.hpp"

namespace pagoda::io {

/// Metadata that is to be written: keys in their order, values in the bytes that a file has. A key that is set again
/// keeps its place.
class GgufMetadata {
 public:
  /// As in the file that the entry lies in.
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
  /// All keys and values as they lie in a file.
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
