#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "io/wire/json_text.hpp"

namespace pagoda::wire {

/// Appends JSON to a text and adds the commas. The caller must balance open and close calls and write a key before each
/// value in an object. Keys are names from the code and are not escaped.
class JsonWriter {
 public:
  explicit JsonWriter(std::string& out) : out_(out), start_(out.size()) {}

  JsonWriter& open_object() { return open('{'); }
  JsonWriter& close_object() { return close('}'); }
  JsonWriter& open_array() { return open('['); }
  JsonWriter& close_array() { return close(']'); }

  JsonWriter& key(std::string_view name) {
    separate();
    out_ += '"';
    out_ += name;
    out_ += "\":";
    return *this;
  }

  /// Writes a key that is not a name from the code, and escapes it.
  JsonWriter& text_key(std::string_view text) {
    separate();
    append_string(out_, text);
    out_ += ':';
    return *this;
  }

  JsonWriter& value(std::string_view text) {
    separate();
    append_string(out_, text);
    return *this;
  }
  JsonWriter& value(const char* text) { return value(std::string_view(text)); }
  JsonWriter& value(const std::string& text) { return value(std::string_view(text)); }
  JsonWriter& value(double number) {
    separate();
    append_number(out_, number);
    return *this;
  }
  template <class T>
  requires std::is_integral_v<T> JsonWriter& value(T number) {
    if constexpr (std::is_same_v<T, bool>) return raw(number ? "true" : "false");
    separate();
    append_integer(out_, static_cast<std::int64_t>(number));
    return *this;
  }
  JsonWriter& null() { return raw("null"); }

  /// Writes a value that is already JSON.
  JsonWriter& raw(std::string_view json) {
    separate();
    out_ += json;
    return *this;
  }

  JsonWriter& logprob(float number) {
    separate();
    append_logprob(out_, number);
    return *this;
  }

  /// Writes the text, or null if it is empty.
  JsonWriter& value_or_null(std::string_view text) { return text.empty() ? null() : value(text); }

  template <class T>
  JsonWriter& field(std::string_view name, const T& content) {
    return key(name).value(content);
  }

  /// Writes an array. `write(writer, item)` writes the element for each of `items`.
  template <class Items, class Write>
  JsonWriter& array(const Items& items, Write write) {
    open_array();
    for (const auto& item : items) write(*this, item);
    return close_array();
  }

 private:
  void separate() {
    if (out_.size() == start_) return;
    const char last = out_.back();
    if (last != '{' && last != '[' && last != ':') out_ += ',';
  }
  JsonWriter& open(char bracket) {
    separate();
    out_ += bracket;
    return *this;
  }
  JsonWriter& close(char bracket) {
    out_ += bracket;
    return *this;
  }

  std::string& out_;
  std::size_t start_;
};

}  // namespace pagoda::wire
