#include "io/wire/field_reader.hpp"

#include <algorithm>
#include <charconv>

#include "io/nearest_name.hpp"
#include "io/wire/exact_json.hpp"

namespace pagoda::wire {
namespace {

constexpr const char* kInteger = "an integer that fits 64 bits";
constexpr const char* kTokenIds = "a list of integers";

bool to_integer(const Json& value, std::int64_t& out) {
  if (!value.is_number_integer()) return false;
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX)) return false;
  out = value.get<std::int64_t>();
  return true;
}

/// Parses decimal digits as JSON writes an integer: no sign except minus and no leading zero, so that two keys never
/// mean the same id. Returns whether the text is such an integer.
bool to_integer(const std::string& text, std::int64_t& out) {
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), out);
  return code == std::errc{} && end == text.data() + text.size() && std::to_string(out) == text;
}

std::string describe(const Json& value) {
  switch (value.type()) {
    case Json::value_t::null:
      return "null";
    case Json::value_t::boolean:
      return "a boolean";
    case Json::value_t::string:
      return "a string";
    case Json::value_t::array:
      return "a list";
    case Json::value_t::object:
      return "an object";
    case Json::value_t::number_float:
    case Json::value_t::number_integer:
    case Json::value_t::number_unsigned:
      return value.dump();
    default:
      return std::string(big_integer_digits(value));
  }
}

}  // namespace

const Json* FieldReader::find(const char* name) {
  known_.emplace_back(name);
  const auto it = object_.find(name);
  if (it == object_.end() || (nulls_ == Nulls::absent && it->is_null())) return nullptr;
  return &*it;
}

bool FieldReader::has(const char* name) const {
  const auto it = object_.find(name);
  return it != object_.end() && !(nulls_ == Nulls::absent && it->is_null());
}

const Json* FieldReader::read_object(const char* name) {
  const auto* value = find(name);
  if (value == nullptr || value->is_null()) return nullptr;
  if (value->is_object()) return value;
  expect(name, "an object", *value);
  return nullptr;
}

void FieldReader::refuse(const char* name, std::string message) {
  if (!error_) error_ = WireError{WireCode::invalid_request, within_ + std::move(message), within_ + name};
}

void FieldReader::refuse(WireError error) {
  if (!error_) error_ = std::move(error);
}

void FieldReader::expect(const char* name, const char* expected, const Json& got) {
  refuse(name, std::string(name) + " must be " + expected + ", not " + describe(got));
}

void FieldReader::read(const char* name, bool& out) {
  const auto* value = find(name);
  if (value == nullptr) return;
  if (!value->is_boolean()) return expect(name, "true or false", *value);
  out = value->get<bool>();
}

void FieldReader::read(const char* name, std::int64_t& out) {
  const auto* value = find(name);
  if (value != nullptr && !to_integer(*value, out)) expect(name, kInteger, *value);
}

void FieldReader::read(const char* name, double& out) {
  const auto* value = find(name);
  if (value == nullptr) return;
  const auto number = to_double(*value);
  if (!number) return expect(name, "a number", *value);
  out = *number;
}

void FieldReader::read(const char* name, std::string& out) {
  const auto* value = find(name);
  if (value == nullptr) return;
  if (!value->is_string()) return expect(name, "a string", *value);
  out = value->get_ref<const std::string&>();
}

void FieldReader::read_required(const char* name, std::string& out) {
  if (!has(name)) refuse(name, std::string(name) + " is required");
  read(name, out);
}

void FieldReader::read(const char* name, std::vector<std::int64_t>& out) {
  const auto* value = find(name);
  if (value == nullptr) return;
  if (!value->is_array()) return expect(name, kTokenIds, *value);
  std::vector<std::int64_t> ids;
  ids.reserve(value->size());
  for (const auto& item : *value) {
    std::int64_t id = 0;
    if (!to_integer(item, id)) {
      return refuse(name, std::string(name) + "[" + std::to_string(ids.size()) + "] must be " + kInteger + ", not " +
                              describe(item));
    }
    ids.push_back(id);
  }
  out = std::move(ids);
}

void FieldReader::read(const char* name, std::optional<std::int64_t>& out) {
  const auto* value = find(name);
  if (value == nullptr || value->is_null()) return;
  std::int64_t integer = 0;
  if (!to_integer(*value, integer)) return expect(name, kInteger, *value);
  out = integer;
}

void FieldReader::read(const char* name, std::optional<std::uint64_t>& out) {
  const auto* value = find(name);
  if (value == nullptr || value->is_null()) return;
  if (!value->is_number_unsigned()) return expect(name, "an integer from 0 to 2^64 - 1", *value);
  out = value->get<std::uint64_t>();
}

void FieldReader::read(const char* name, std::optional<std::string>& out) {
  const auto* value = find(name);
  if (value == nullptr || value->is_null()) return;
  std::string text;
  read(name, text);
  if (value->is_string()) out = std::move(text);
}

void FieldReader::read(const char* name, std::optional<std::vector<std::int64_t>>& out) {
  const auto* value = find(name);
  if (value == nullptr || value->is_null()) return;
  std::vector<std::int64_t> ids;
  read(name, ids);
  out = std::move(ids);
}

void FieldReader::read_strings(const char* name, std::vector<std::string>& out) {
  const auto* value = find(name);
  if (value == nullptr || value->is_null()) return;
  if (value->is_string()) {
    out = {value->get<std::string>()};
    return;
  }
  if (!value->is_array()) return expect(name, "a string or a list of strings", *value);
  std::vector<std::string> strings;
  for (const auto& item : *value) {
    if (!item.is_string()) {
      return refuse(
          name, std::string(name) + "[" + std::to_string(strings.size()) + "] must be a string, not " + describe(item));
    }
    strings.push_back(item.get<std::string>());
  }
  out = std::move(strings);
}

void FieldReader::read_bias(const char* name, std::vector<std::pair<std::int64_t, double>>& out) {
  const auto* value = find(name);
  if (value == nullptr || value->is_null()) return;
  if (!value->is_object()) return expect(name, "an object from token ids to numbers", *value);
  for (const auto& [key, bias] : value->items()) {
    std::int64_t id = 0;
    if (!to_integer(key, id))
      return refuse(name, std::string(name) + " has a key that is not a token id: \"" + key + "\"");
    const auto number = to_double(bias);
    if (!number) return expect(name, "an object from token ids to numbers", bias);
    out.emplace_back(id, *number);
  }
}

void FieldReader::read(const char* name, EarlyStopping& out) {
  const auto* value = find(name);
  if (value == nullptr) return;
  if (value->is_boolean()) {
    out = value->get<bool>() ? EarlyStopping::yes : EarlyStopping::no;
  } else if (*value == "never") {
    out = EarlyStopping::never;
  } else {
    expect(name, "true, false or \"never\"", *value);
  }
}

void FieldReader::ignore(const char* name, std::string_view why) {
  without_effect_.emplace_back(name);
  if (!has(name)) return;
  if (ignores_unknown()) {
    ignored_->add(IgnoredFields::listed_name(within_, name));
  } else {
    refuse(name, std::string(name) + " " + std::string(why));
  }
}

void FieldReader::ignore_value(const char* name, std::string_view value, std::string message) {
  if (!ignores_unknown()) return refuse(name, std::move(message));
  ignored_->add(IgnoredFields::listed_name(within_, std::string(name) + "=" + std::string(value)));
}

bool FieldReader::is_known(std::string_view name) const {
  return std::ranges::find(known_, name) != known_.end() ||
         std::ranges::find(without_effect_, name) != without_effect_.end();
}

bool FieldReader::ignores_unknown() const {
  return ignored_ != nullptr && ignored_->rule() == UnknownFields::ignored;
}

WireError FieldReader::unknown_field(const std::string& key) const {
  auto message = "unknown field \"" + within_ + key + "\"";
  const auto nearest = io::nearest_name(key, known_);
  if (!nearest.empty()) message += "; did you mean \"" + within_ + std::string(nearest) + "\"?";
  return {WireCode::invalid_request, std::move(message), within_ + key};
}

tl::expected<void, WireError> FieldReader::finish() {
  if (error_) return tl::unexpected(*error_);
  for (const auto& [key, value] : object_.items()) {
    if (is_known(key)) continue;
    const bool is_absent = ignored_ != nullptr && nulls_ == Nulls::absent && value.is_null();
    if (is_absent) continue;
    if (!ignores_unknown()) return tl::unexpected(unknown_field(key));
    // The number of names is limited and each name is compared once, so that many fields do not take more time than
    // few.
    auto listed = IgnoredFields::listed_name(within_, key);
    if (ignored_->is_full() || std::ranges::find(ignored_->names(), listed) != ignored_->names().end()) continue;
    if (!io::nearest_name(key, known_).empty()) return tl::unexpected(unknown_field(key));
    ignored_->add(std::move(listed));
  }
  return {};
}

}  // namespace pagoda::wire
