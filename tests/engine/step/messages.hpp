#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <type_traits>

#include "engine/request/request_spec.hpp"
#include "engine/step/codec.hpp"

namespace pagoda::test {

/// Draws values of messages: every field, and lists of up to a few elements.
class RandomValue {
 public:
  explicit RandomValue(std::uint64_t seed) : random_(seed) {}

  template <class T>
  T draw() {
    T value{};
    fill(value);
    return value;
  }

 private:
  std::size_t few() { return random_() % 4; }

  void fill(bool& value) { value = random_() % 2 == 1; }
  void fill(std::string& text) {
    text.clear();
    for (std::size_t left = few(); left > 0; --left) text.push_back(static_cast<char>(random_()));
  }
  template <std::integral T>
  void fill(T& value) {
    // Small and large values, and both limits.
    switch (random_() % 4) {
      case 0:
        value = std::numeric_limits<T>::min();
        break;
      case 1:
        value = std::numeric_limits<T>::max();
        break;
      case 2:
        value = static_cast<T>(random_() % 100);
        break;
      default:
        value = static_cast<T>(random_());
    }
  }
  template <class T>
  requires std::is_enum_v<T>
  void fill(T& value) { value = static_cast<T>(random_() % (static_cast<std::uint64_t>(last_value(T{})) + 1)); }
  void fill(float& value) { value = std::bit_cast<float>(static_cast<std::uint32_t>(random_())); }
  void fill(double& value) { value = std::bit_cast<double>(random_()); }
  template <class T>
  void fill(std::vector<T>& values) {
    values.resize(few());
    for (T& value : values) fill(value);
  }
  template <class A, class B>
  void fill(std::pair<A, B>& pair) {
    fill(pair.first);
    fill(pair.second);
  }
  template <class T>
  void fill(std::optional<T>& value) {
    value.reset();
    if (random_() % 2 == 1) fill(value.emplace());
  }
  template <class T>
  void fill(std::shared_ptr<const T>& value) {
    value.reset();
    if (random_() % 4 > 0) value = std::make_shared<const T>(draw<T>());
  }
  void fill(Status& status) {
    status = {};
    if (random_() % 2 == 1) status = fail(draw<Error>());
  }
  template <class T>
  void fill(Result<T>& value) {
    if (random_() % 2 == 1) {
      value = fail(draw<Error>());
    } else {
      value = draw<T>();
    }
  }
  void fill(std::monostate&) {}
  template <class... T>
  void fill(std::variant<T...>& value) {
    const auto chosen = random_() % sizeof...(T);
    std::size_t index = 0;
    ((index++ == chosen ? fill(value.template emplace<T>()) : void()), ...);
  }
  template <HasFields T>
  void fill(T& value) {
    T::visit_fields(value, [this](auto&... fields) { (fill(fields), ...); });
  }

  std::mt19937_64 random_;
};

/// Converts to any field, to count the fields of a struct by braced initialisers.
struct Anything {
  template <class T>
  operator T() const;  // NOLINT(google-explicit-constructor)
};
template <class T, class... Inits>
constexpr std::size_t count_fields() {
  if constexpr (requires { T{Inits{}..., Anything{}}; }) {
    return count_fields<T, Inits..., Anything>();
  } else {
    return sizeof...(Inits);
  }
}
template <class T>
constexpr std::size_t count_visited() {
  T value{};
  std::size_t count = 0;
  T::visit_fields(value, [&](auto&... fields) { count = sizeof...(fields); });
  return count;
}

}  // namespace pagoda::test
