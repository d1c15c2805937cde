#include "io/model_files/config_reader.hpp"

#include <cmath>

#include "io/model_files/file_text.hpp"

namespace pagoda::io {

std::string shown(const nlohmann::json& value) {
  if (value.is_string()) return quote(value.get_ref<const std::string&>());
  if (value.is_structured()) return value.is_array() ? "an array" : "an object";
  return value.dump();
}

ConfigReader ConfigReader::child(const char* key) {
  static const nlohmann::json kNothing = nlohmann::json::object();
  const auto* object = find(key);
  if (object != nullptr && !object->is_object()) reject(key, "must be an object, not " + shown(*object));
  ConfigReader reader(object != nullptr && object->is_object() ? *object : kNothing, file_ + ": " + key);
  reader.key_ = key;
  return reader;
}

void ConfigReader::adopt(const ConfigReader& child) {
  if (!status_ || child.status_) return;
  status_ = child.status_;
  status_.error().param = child.key_;
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

void ConfigReader::reject(std::string_view key, std::string_view reason, ErrorCode code) {
  if (!status_) return;
  status_ = fail(code, file_ + ": " + std::string(key) + ": " + std::string(reason), std::string(key));
}

std::int64_t ConfigReader::integer(const char* key, std::int64_t min, std::int64_t max,
                                   std::optional<std::int64_t> default_value) {
  const auto* value = find(key);
  if (value == nullptr) {
    if (!default_value) reject(key, "is missing");
    return default_value.value_or(min);
  }
  if (!value->is_number_integer()) {
    reject(key, "must be a whole number, not " + shown(*value));
    return min;
  }
  constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  const bool too_large = value->is_number_unsigned() && value->get<std::uint64_t>() > kMax;
  if (too_large || value->get<std::int64_t>() < min || value->get<std::int64_t>() > max) {
    reject(key, "must be " + std::to_string(min) + " to " + std::to_string(max) + ", not " + shown(*value));
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
    reject(key, "must be a number, not " + shown(*value));
    return 1.0;
  }
  const auto result = value->get<double>();
  if (!std::isfinite(result) || !(result > above)) {
    reject(key, "must be more than " + nlohmann::json(above).dump() + ", not " + shown(*value));
    return 1.0;
  }
  return result;
}

bool ConfigReader::boolean(const char* key, bool default_value) {
  const auto* value = find(key);
  if (value == nullptr) return default_value;
  if (!value->is_boolean()) {
    reject(key, "must be true or false, not " + shown(*value));
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
    reject(key, "must be a string, not " + shown(*value));
    return {};
  }
  return value->get<std::string>();
}

}  // namespace pagoda::io
