#include "io/model_files/tokenizer_json_fields.hpp"

#include <fstream>
#include <limits>
#include <system_error>
#include <utility>

#include "engine/text/unicode.hpp"

namespace pagoda::io::tokenizer_file {
namespace {

constexpr std::size_t kMaxMessageBytes = 400;

}  // namespace

JsonFields::JsonFields(const nlohmann::json& object, std::string path) : object_(object), path_(std::move(path)) {
  if (!object_.is_object()) reject("", "is not an object");
}

const nlohmann::json* JsonFields::find(const std::string& key) {
  read_.insert(key);
  if (!object_.is_object()) return nullptr;
  const auto field = object_.find(key);
  return field == object_.end() || field->is_null() ? nullptr : &*field;
}

const nlohmann::json* JsonFields::require(const std::string& key) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) reject(key, "is missing");
  return value;
}

bool JsonFields::is_string(const std::string& key, const nlohmann::json& value) {
  if (!value.is_string()) reject(key, "is not a string");
  return value.is_string();
}

bool JsonFields::is_boolean(const std::string& key, const nlohmann::json& value) {
  if (!value.is_boolean()) reject(key, "is not true or false");
  return value.is_boolean();
}

std::string JsonFields::string(const std::string& key) {
  const nlohmann::json* value = require(key);
  return value != nullptr && is_string(key, *value) ? value->get<std::string>() : std::string();
}

std::optional<std::string> JsonFields::optional_string(const std::string& key) {
  const nlohmann::json* value = find(key);
  if (value == nullptr || !is_string(key, *value)) return std::nullopt;
  return value->get<std::string>();
}

bool JsonFields::boolean(const std::string& key) {
  const nlohmann::json* value = require(key);
  return value != nullptr && is_boolean(key, *value) && value->get<bool>();
}

bool JsonFields::boolean(const std::string& key, bool otherwise) {
  const nlohmann::json* value = find(key);
  return value != nullptr && is_boolean(key, *value) ? value->get<bool>() : otherwise;
}

std::int32_t JsonFields::natural(const std::string& key) {
  const nlohmann::json* value = require(key);
  if (value == nullptr) return 0;
  if (!value->is_number_unsigned() || value->get<std::uint64_t>() > std::numeric_limits<std::int32_t>::max()) {
    reject(key, "is not an integer in 0..2147483647");
    return 0;
  }
  return value->get<std::int32_t>();
}

std::int32_t JsonFields::natural(const std::string& key, std::int32_t otherwise) {
  return find(key) == nullptr ? otherwise : natural(key);
}

std::string JsonFields::character(const std::string& key) {
  std::string value = string(key);
  std::size_t position = 0;
  if (!value.empty()) text::next_character(value, position);
  if (value.empty() || position != value.size()) reject(key, "is not one character");
  return value;
}

void JsonFields::reject(const std::string& key, const std::string& reason, ErrorCode code) {
  if (error_) return;
  std::string param = key.empty() ? path_ : path_of(key);
  std::string message = param.empty() ? reason : param + ": " + reason;
  error_ = Error{code, std::move(message), std::move(param)};
}

Status JsonFields::finish() {
  if (!error_) {
    for (const auto& field : object_.items()) {
      if (!read_.contains(field.key())) reject(field.key(), "is not a known key");
    }
  }
  if (error_) return fail(*error_);
  return {};
}

std::string one_line(std::string_view message) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string line;
  for (const char c : text::to_valid_utf8(message)) {
    const auto byte = static_cast<std::uint8_t>(c);
    if (byte < 0x20 || byte == 0x7F) {
      line += "\\x";
      line += kDigits[byte >> 4];
      line += kDigits[byte & 15];
    } else {
      line += c;
    }
  }
  if (line.size() > kMaxMessageBytes) {
    line.resize(text::last_character_offset(std::string_view(line).substr(0, kMaxMessageBytes + 1)));
    line += "...";
  }
  return line;
}

Result<std::string> read_file(const std::filesystem::path& path, std::size_t max_bytes) {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (error) return fail(ErrorCode::bad_config, "cannot read " + path.string() + ": " + error.message());
  if (size > max_bytes) {
    return fail(ErrorCode::bad_config, path.string() + ": is larger than " + std::to_string(max_bytes) + " bytes");
  }
  std::string bytes(static_cast<std::size_t>(size), '\0');
  std::ifstream file(path, std::ios::binary);
  if (!file.read(bytes.data(), static_cast<std::streamsize>(bytes.size()))) {
    return fail(ErrorCode::bad_config, "cannot read " + path.string());
  }
  return bytes;
}

}  // namespace pagoda::io::tokenizer_file
