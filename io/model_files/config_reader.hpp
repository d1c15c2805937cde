#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "engine/models/config_source.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// Reads typed keys from one JSON object.
class ConfigReader final : public models::ConfigSource {
 public:
  /// Maps a key to the name that messages give it, for the keys where the two differ.
  using Names = std::map<std::string, std::string, std::less<>>;

  /// `object` and `names`, unless null, must outlive the reader.
  ConfigReader(const nlohmann::json& object, std::string file_name, const Names* names = nullptr)
      : object_(object), file_(std::move(file_name)), names_(names) {}

  bool has(const char* key) const override;
  bool mentions(const char* key) const override;
  bool is_empty_list(const char* key) const override;
  std::int64_t integer(const char* key, std::int64_t min, std::int64_t max,
                       std::optional<std::int64_t> default_value = std::nullopt) override;
  double number(const char* key, double above, std::optional<double> default_value = std::nullopt) override;
  bool boolean(const char* key, bool default_value) override;
  std::string string(const char* key, std::optional<std::string> default_value = std::nullopt) override;
  std::optional<std::vector<std::string>> strings(const char* key, std::int64_t count,
                                                  std::initializer_list<std::string_view> allowed) override;
  std::vector<double> numbers(const char* key, std::int64_t count, double above, bool may_be_longer) override;
  void object(const char* key, const std::function<void(models::ConfigSource&)>& read) override;
  std::string shown(const char* key) const override;
  void reject(std::string_view key, std::string_view reason, ErrorCode code = ErrorCode::bad_config) override;
  const Status& status() const override { return status_; }

  /// Does what object() does, with the whole interface of a ConfigReader.
  void nested(const char* key, const std::function<void(ConfigReader&)>& read);
  /// Returns the raw value, or null when it is absent or null.
  const nlohmann::json* find(const char* key) const;

 private:
  const nlohmann::json& object_;
  std::string file_;
  const Names* names_;
  Status status_;
};

/// Returns `value` as JSON for a message: strings are shortened, and arrays and objects are only named.
std::string shown_value(const nlohmann::json& value);

}  // namespace pagoda::io
