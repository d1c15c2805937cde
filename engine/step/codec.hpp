#pragma once

/// Bytes of plain values, for what leaves the process: messages to other processes and the journal. A value is a
/// number, an enum with last_value(), a string, a container of values, or a struct whose visit_fields names its fields.
///
/// Integers are variable in length (LEB128; signed ones zigzag first), floating-point numbers their bits,
/// little-endian. There are no tags: both sides must be of the same version, which whoever connects them checks. A
/// value that decodes has the right types, no more: whether ranges lie in their lists and pointers are set is for its
/// receiver to check.

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace pagoda {

template <class T>
concept HasFields = requires(T& value) {
  T::visit_fields(value, [](auto&...) {});
};

/// Holds any number of values.
template <class T>
concept SequenceContainer = std::same_as<T, std::vector<typename T::value_type>> ||
    std::same_as<T, std::deque<typename T::value_type>> || std::same_as<T, std::set<typename T::value_type>>;

/// Appends values to a buffer.
class Encoder {
 public:
  explicit Encoder(std::vector<std::byte>& out) : out_(out) {}

  void put(bool value) { byte(value ? 1 : 0); }
  void put(const std::string& text) {
    varint(text.size());
    for (const char c : text) byte(static_cast<unsigned char>(c));
  }
  void put(std::monostate) {}

  template <std::integral T>
  void put(T value) {
    if constexpr (std::signed_integral<T>) {
      const auto wide = static_cast<std::int64_t>(value);
      varint((static_cast<std::uint64_t>(wide) << 1U) ^ static_cast<std::uint64_t>(wide >> 63));
    } else {
      varint(value);
    }
  }
  template <class T>
  requires std::is_enum_v<T>
  void put(T value) { byte(static_cast<unsigned char>(value)); }
  void put(float value) { bits(std::bit_cast<std::uint32_t>(value)); }
  void put(double value) { bits(std::bit_cast<std::uint64_t>(value)); }

  template <SequenceContainer T>
  void put(const T& values) {
    varint(values.size());
    for (const auto& value : values) put(value);
  }
  template <class A, class B>
  void put(const std::pair<A, B>& pair) {
    put(pair.first);
    put(pair.second);
  }
  template <class T, std::size_t N>
  void put(const std::array<T, N>& values) {
    for (const T& value : values) put(value);
  }
  template <class T>
  void put(const std::optional<T>& value) {
    put(value.has_value());
    if (value) put(*value);
  }
  template <class T>
  void put(const std::shared_ptr<const T>& value) {
    put(value != nullptr);
    if (value) put(*value);
  }
  template <class... Ts>
  void put(const std::variant<Ts...>& value) {
    varint(value.index());
    std::visit([this](const auto& held) { put(held); }, value);
  }
  template <HasFields T>
  void put(const T& value) {
    T::visit_fields(value, [this](const auto&... fields) { (put(fields), ...); });
  }

 private:
  void byte(unsigned char value) { out_.push_back(std::byte{value}); }
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7U) byte(static_cast<unsigned char>(value | 0x80U));
    byte(static_cast<unsigned char>(value));
  }
  template <class U>
  void bits(U value) {
    for (std::size_t i = 0; i < sizeof(U); ++i) byte(static_cast<unsigned char>(value >> (8 * i)));
  }

  std::vector<std::byte>& out_;
};

/// Reads values from bytes that may be anything: every get() is false once something was not as an Encoder writes it,
/// and memory grows only with what was read. The value is unspecified then.
class Decoder {
 public:
  explicit Decoder(std::span<const std::byte> bytes) : bytes_(bytes) {}

  std::size_t num_left() const { return bytes_.size(); }
  std::span<const std::byte> rest() const { return bytes_; }

  bool get(bool& value) {
    unsigned char read = 0;
    if (!byte(read) || read > 1) return false;
    value = read == 1;
    return true;
  }
  bool get(std::string& text) {
    std::uint64_t size = 0;
    if (!varint(size) || size > bytes_.size()) return false;
    text.resize(size);
    std::memcpy(text.data(), bytes_.data(), size);
    bytes_ = bytes_.subspan(size);
    return true;
  }
  bool get(std::monostate&) { return true; }

  template <std::integral T>
  bool get(T& value) {
    std::uint64_t read = 0;
    if (!varint(read)) return false;
    if constexpr (std::signed_integral<T>) {
      const auto wide = static_cast<std::int64_t>((read >> 1U) ^ (0 - (read & 1U)));
      value = static_cast<T>(wide);
      return wide == value;
    } else {
      value = static_cast<T>(read);
      return read == value;
    }
  }
  template <class T>
  requires std::is_enum_v<T>
  bool get(T& value) {
    unsigned char read = 0;
    if (!byte(read) || read > static_cast<unsigned char>(last_value(T{}))) return false;
    value = static_cast<T>(read);
    return true;
  }
  bool get(float& value) {
    std::uint32_t read = 0;
    if (!bits(read)) return false;
    value = std::bit_cast<float>(read);
    return true;
  }
  bool get(double& value) {
    std::uint64_t read = 0;
    if (!bits(read)) return false;
    value = std::bit_cast<double>(read);
    return true;
  }

  template <SequenceContainer T>
  bool get(T& values) {
    std::uint64_t size = 0;
    // Each value takes a byte at least.
    if (!varint(size) || size > bytes_.size()) return false;
    values.clear();
    for (; size > 0; --size) {
      typename T::value_type value{};
      if (!get(value)) return false;
      values.insert(values.end(), std::move(value));
    }
    return true;
  }
  template <class A, class B>
  bool get(std::pair<A, B>& pair) {
    return get(pair.first) && get(pair.second);
  }
  template <class T, std::size_t N>
  bool get(std::array<T, N>& values) {
    for (T& value : values) {
      if (!get(value)) return false;
    }
    return true;
  }
  template <class T>
  bool get(std::optional<T>& value) {
    bool is_there = false;
    value.reset();
    return get(is_there) && (!is_there || get(value.emplace()));
  }
  template <class T>
  bool get(std::shared_ptr<const T>& value) {
    bool is_there = false;
    value.reset();
    if (!get(is_there)) return false;
    if (!is_there) return true;
    auto read = std::make_shared<T>();
    if (!get(*read)) return false;
    value = std::move(read);
    return true;
  }
  template <class... Ts>
  bool get(std::variant<Ts...>& value) {
    std::uint64_t index = 0;
    return varint(index) && get_alternative<0>(index, value);
  }
  template <HasFields T>
  bool get(T& value) {
    return T::visit_fields(value, [this](auto&... fields) { return (get(fields) && ...); });
  }

 private:
  bool byte(unsigned char& value) {
    if (bytes_.empty()) return false;
    value = static_cast<unsigned char>(bytes_.front());
    bytes_ = bytes_.subspan(1);
    return true;
  }
  bool varint(std::uint64_t& value) {
    value = 0;
    for (unsigned shift = 0; shift < 64; shift += 7) {
      unsigned char read = 0;
      if (!byte(read)) return false;
      value |= static_cast<std::uint64_t>(read & 0x7fU) << shift;
      if (read < 0x80) return shift < 63 || read <= 1;
    }
    return false;
  }
  template <class U>
  bool bits(U& value) {
    value = 0;
    for (std::size_t i = 0; i < sizeof(U); ++i) {
      unsigned char read = 0;
      if (!byte(read)) return false;
      value |= static_cast<U>(read) << (8 * i);
    }
    return true;
  }
  template <std::size_t I, class Variant>
  bool get_alternative(std::uint64_t index, Variant& value) {
    if constexpr (I == std::variant_size_v<Variant>) {
      return false;
    } else {
      if (index != I) return get_alternative<I + 1>(index, value);
      return get(value.template emplace<I>());
    }
  }

  std::span<const std::byte> bytes_;
};

template <class T>
std::vector<std::byte> encode(const T& value) {
  std::vector<std::byte> bytes;
  Encoder(bytes).put(value);
  return bytes;
}

/// False when the bytes are not exactly one value.
template <class T>
bool decode(std::span<const std::byte> bytes, T& value) {
  Decoder decoder(bytes);
  return decoder.get(value) && decoder.num_left() == 0;
}

}  // namespace pagoda
