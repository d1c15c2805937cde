#include "io/model_files/config_reader.hpp"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "io/model_files/file_text.hpp"

namespace pagoda::io {

std::string shown_value(const nlohmann::json& value) {
  if (value.is_string()) return quote(value.get_ref<const std::string&>());
  if (value.is_structured()) return value.is_array() ? "an array" : "an object";
  return value.dump();
}

const nlohmann::json* ConfigReader::find(const char* key) const {
  const auto it = object_.find(key);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

bool ConfigReader::has(const char* key) const {
  return find(key) != nullptr;
}

bool ConfigReader::mentions(const char* key) const {
  return object_.contains(key);
}

bool ConfigReader::is_empty_list(const char* key) const {
  const auto* value = find(key);
  return value != nullptr && value->is_array() && value->empty();
}

void ConfigReader::reject(std::string_view key, std::string_view reason, ErrorCode code) {
  if (!status_) return;
  std::string name(key);
  if (names_ != nullptr && names_->contains(name)) name = names_->find(name)->second;
  status_ = fail(code, file_ + ": " + name + ": " + std::string(reason), name);
}

std::int64_t ConfigReader::integer(const char* key, std::int64_t min, std::int64_t max,
                                   std::optional<std::int64_t> default_value) {
  const auto* value = find(key);
  if (value == nullptr) {
    if (!default_value) reject(key, "is missing");
    return default_value.value_or(min);
  }
  if (!value->is_number_integer()) {
    reject(key, "must be a whole number, not " + shown_value(*value));
    return min;
  }
  constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  const bool too_large = value->is_number_unsigned() && value->get<std::uint64_t>() > kMax;
  if (too_large || value->get<std::int64_t>() < min || value->get<std::int64_t>() > max) {
    reject(key, "must be " + std::to_string(min) + " to " + std::to_string(max) + ", not " + shown_value(*value));
    return min;
  }
  return value->get<std::int64_t>();
}

double ConfigReader::number(const char* key, double above, std::optional<double> default_value) {
  const auto* value = find(key);
  if (value == nullptr) {
    if (!default_value) reject(key, "is missing");
    return default_value.value_or(1.0);
  }
  if (!value->is_number()) {
    reject(key, "must be a number, not " + shown_value(*value));
    return 1.0;
  }
  const auto result = value->get<double>();
  if (!std::isfinite(result) || !(result > above)) {
    reject(key, "must be more than " + nlohmann::json(above).dump() + ", not " + shown_value(*value));
    return 1.0;
  }
  return result;
}

bool ConfigReader::boolean(const char* key, bool default_value) {
  const auto* value = find(key);
  if (value == nullptr) return default_value;
  if (!value->is_boolean()) {
    reject(key, "must be true or false, not " + shown_value(*value));
    return default_value;
  }
  return value->get<bool>();
}

std::string ConfigReader::string(const char* key, std::optional<std::string> default_value) {
  const auto* value = find(key);
  if (value == nullptr) {
    if (!default_value) reject(key, "is missing");
    return default_value.value_or("");
  }
  if (!value->is_string()) {
    reject(key, "must be a string, not " + shown_value(*value));
    return {};
  }
  return value->get<std::string>();
}

std::optional<std::vector<std::string>> ConfigReader::strings(const char* key, std::int64_t count,
                                                              std::initializer_list<std::string_view> allowed) {
  const auto* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_array() || std::cmp_not_equal(value->size(), count)) {
    reject(key, "must be an array of " + std::to_string(count) + " strings");
    return std::nullopt;
  }
  std::vector<std::string> strings;
  for (const auto& entry : *value) {
    const auto* text = entry.get_ptr<const std::string*>();  // null when it is no string
    if (text == nullptr || std::ranges::find(allowed, *text) == allowed.end()) {
      std::string list;
      for (const auto choice : allowed) list.append(list.empty() ? "" : ", ").append(choice);
      reject(key, shown_value(entry) + " is not supported (" + list + ")", ErrorCode::unsupported);
      return std::nullopt;
    }
    strings.push_back(*text);
  }
  return strings;
}

std::vector<double> ConfigReader::numbers(const char* key, std::int64_t count, double above, bool may_be_longer) {
  const auto* value = find(key);
  const auto fits = [&](const nlohmann::json& entry) {
    return entry.is_number() && std::isfinite(entry.get<double>()) && entry.get<double>() > above;
  };
  const bool has_length =
      value != nullptr && value->is_array() &&
      (may_be_longer ? std::cmp_greater_equal(value->size(), count) : std::cmp_equal(value->size(), count));
  if (!has_length || !std::ranges::all_of(*value, fits)) {
    reject(key, "must be an array of " + std::string(may_be_longer ? "at least " : "") + std::to_string(count) +
                    " numbers above " + nlohmann::json(above).dump());
    return {};
  }
  auto numbers = value->get<std::vector<double>>();
  numbers.resize(static_cast<std::size_t>(count));
  return numbers;
}

void ConfigReader::object(const char* key, const std::function<void(models::ConfigSource&)>& read) {
  nested(key, read);
}

void ConfigReader::nested(const char* key, const std::function<void(ConfigReader&)>& read) {
  static const nlohmann::json kNothing = nlohmann::json::object();
  const auto* object = find(key);
  const bool is_object = object != nullptr && object->is_object();
  if (object != nullptr && !is_object) reject(key, "must be an object, not " + shown_value(*object));
  const bool is_renamed = names_ != nullptr && names_->contains(key);
  ConfigReader reader(is_object ? *object : kNothing, file_ + ": " + (is_renamed ? names_->find(key)->second : key));
  read(reader);
  if (!status_ || reader.status_) return;
  status_ = reader.status_;
  status_.error().param = key;
}

std::string ConfigReader::shown(const char* key) const {
  const auto* value = find(key);
  return value == nullptr ? "nothing" : shown_value(*value);
}

}  // namespace pagoda::io
