#pragma once

/// Converts values to bytes and back, for messages to other processes and for the journal. A value is a number, an enum
/// with last_value(), a string, a container of values, a result, or a struct whose visit_fields names its fields.
///
/// Integers have variable length (LEB128; signed integers use zigzag first). Floating-point numbers are stored as their
/// bits, little-endian. There are no tags: both sides must have the same version, and the code that connects them
/// checks this. A decoded value has the right types and nothing more: the receiver checks whether ranges lie in their
/// lists and whether pointers are set.

#include <array>
#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include <tl/expected.hpp>

namespace pagoda {

template <class T>
concept HasFields = requires(T& value) {
  T::visit_fields(value, [](auto&...) {});
};

/// A container of any number of values.
template <class T>
concept SequenceContainer = std::same_as<T, std::vector<typename T::value_type>> ||
    std::same_as<T, std::deque<typename T::value_type>> || std::same_as<T, std::set<typename T::value_type>>;

/// Returns the maximum number of bytes of an encoded T, or 0 when there is no maximum. Scalars, and structs of scalars,
/// have a maximum.
template <class T>
consteval std::size_t max_bytes() {
  if constexpr (std::same_as<T, bool> || std::is_enum_v<T>) {
    return 1;
  } else if constexpr (std::integral<T>) {
    return (8 * sizeof(T) + 6) / 7;
  } else if constexpr (std::floating_point<T>) {
    return sizeof(T);
  } else if constexpr (HasFields<T>) {
    using Sizes = decltype(T::visit_fields(std::declval<T&>(), [](auto&... fields) {
      constexpr std::size_t kSum = (max_bytes<std::remove_cvref_t<decltype(fields)>>() + ... + 0);
      constexpr bool kAll = ((max_bytes<std::remove_cvref_t<decltype(fields)>>() > 0) && ...);
      return std::integral_constant < std::size_t, kAll ? kSum : 0 > {};
    }));
    return Sizes::value;
  } else {
    return 0;
  }
}

/// Appends values to a buffer.
class Encoder {
 public:
  explicit Encoder(std::vector<std::byte>& out) : out_(out) {}

  void put(const std::string& text) {
    put(text.size());
    const auto* const begin = reinterpret_cast<const unsigned char*>(text.data());
    append(begin, begin + text.size());
  }
  void put(std::monostate) {}

  /// Writes the value in one piece: most values are small, and a message has thousands of them.
  template <class T>
  requires(max_bytes<T>() > 0) void put(const T& value) {
    std::array<unsigned char, max_bytes<T>()> piece;
    append(piece.data(), write(piece.data(), value));
  }
  template <HasFields T>
  requires(max_bytes<T>() == 0) void put(const T& value) {
    T::visit_fields(value, [this](const auto&... fields) { (put(fields), ...); });
  }

  template <SequenceContainer T>
  void put(const T& values) {
    put(values.size());
    for (const auto& value : values) put(static_cast<const typename T::value_type&>(value));
  }
  template <class A, class B>
  void put(const std::pair<A, B>& pair) {
    put(pair.first);
    put(pair.second);
  }
  template <class Key, class Value>
  void put(const std::map<Key, Value>& entries) {
    put(entries.size());
    for (const auto& entry : entries) put(entry);
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
  template <class T, class E>
  void put(const tl::expected<T, E>& value) {
    put(value.has_value());
    if (!value) return put(value.error());
    if constexpr (!std::is_void_v<T>) put(*value);
  }
  template <class... Ts>
  void put(const std::variant<Ts...>& value) {
    put(value.index());
    std::visit([this](const auto& held) { put(held); }, value);
  }

 private:
  void append(const unsigned char* begin, const unsigned char* end);

  // Each function writes a value that has a max_bytes() at `to`, and returns the end of the written bytes.
  static unsigned char* write(unsigned char* to, bool value) { return write_byte(to, value ? 1 : 0); }
  template <std::integral T>
  static unsigned char* write(unsigned char* to, T value) {
    if constexpr (std::signed_integral<T>) {
      const auto wide = static_cast<std::int64_t>(value);
      return write_varint(to, (static_cast<std::uint64_t>(wide) << 1U) ^ static_cast<std::uint64_t>(wide >> 63));
    } else {
      return write_varint(to, value);
    }
  }
  template <class T>
  requires std::is_enum_v<T>
  static unsigned char* write(unsigned char* to, T value) { return write_byte(to, static_cast<unsigned char>(value)); }
  static unsigned char* write(unsigned char* to, float value) {
    return write_bits(to, std::bit_cast<std::uint32_t>(value));
  }
  static unsigned char* write(unsigned char* to, double value) {
    return write_bits(to, std::bit_cast<std::uint64_t>(value));
  }
  template <HasFields T>
  static unsigned char* write(unsigned char* to, const T& value) {
    T::visit_fields(value, [&to](const auto&... fields) { ((to = write(to, fields)), ...); });
    return to;
  }

  static unsigned char* write_byte(unsigned char* to, unsigned char value) {
    *to = value;
    return to + 1;
  }
  static unsigned char* write_varint(unsigned char* to, std::uint64_t value) {
    for (; value >= 0x80; value >>= 7U) to = write_byte(to, static_cast<unsigned char>(value | 0x80U));
    return write_byte(to, static_cast<unsigned char>(value));
  }
  template <class U>
  static unsigned char* write_bits(unsigned char* to, U value) {
    for (std::size_t i = 0; i < sizeof(U); ++i) to = write_byte(to, static_cast<unsigned char>(value >> (8 * i)));
    return to;
  }

  std::vector<std::byte>& out_;
};

/// Reads values from untrusted bytes. Every get() returns false when the bytes are not as an Encoder writes them; the
/// value is unspecified then. Memory grows only with the bytes that were read.
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
    // Each value takes at least one byte.
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
  template <class Key, class Value>
  bool get(std::map<Key, Value>& entries) {
    std::uint64_t size = 0;
    if (!varint(size) || size > bytes_.size()) return false;
    entries.clear();
    for (; size > 0; --size) {
      std::pair<Key, Value> entry{};
      if (!get(entry) || (!entries.empty() && !(entries.rbegin()->first < entry.first))) return false;
      entries.insert(entries.end(), std::move(entry));
    }
    return true;
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
  template <class T, class E>
  bool get(tl::expected<T, E>& value) {
    bool is_there = false;
    if (!get(is_there)) return false;
    if (is_there) {
      value = {};
      if constexpr (!std::is_void_v<T>) return get(*value);
      return true;
    }
    E error{};
    if (!get(error)) return false;
    value = tl::unexpected<E>(std::move(error));
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

/// Returns false when the bytes are not exactly one value.
template <class T>
bool decode(std::span<const std::byte> bytes, T& value) {
  Decoder decoder(bytes);
  return decoder.get(value) && decoder.num_left() == 0;
}

}  // namespace pagoda
