#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>
#include <optional>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "kernels/result.hpp"

namespace pagoda::io {

/// Positions that a config may claim, far above any model there is.
inline constexpr std::int64_t kMaxPositions = 1LL << 28;

/// Reads typed keys from one JSON object. The first thing that is wrong is kept in status(); after it every read gives
/// a default, so that a caller reads all it needs and checks once. A key that is null counts as absent.
class ConfigReader {
 public:
  /// `object` must outlive the reader.
  ConfigReader(const nlohmann::json& object, std::string file_name) : object_(object), file_(std::move(file_name)) {}

  /// A reader of the object under `key`; without one there it is empty. adopt() its status when done.
  ConfigReader child(const char* key);
  /// Takes over what went wrong in a child, as an error of its key.
  void adopt(const ConfigReader& child);

  bool has(const char* key) const;
  /// Whether the key is written there, be it as null: for keys whose default is not what null means.
  bool mentions(const char* key) const;
  /// The raw value, or null when absent.
  const nlohmann::json* find(const char* key) const;

  /// A whole number within [min, max]. Without a default the key must be there.
  std::int64_t integer(const char* key, std::int64_t min, std::int64_t max,
                       std::optional<std::int64_t> default_value = std::nullopt);
  /// A finite number above `above`.
  double number(const char* key, double above, std::optional<double> default_value = std::nullopt);
  bool boolean(const char* key, bool default_value);
  std::string string(const char* key, std::optional<std::string> default_value = std::nullopt);

  /// Records `reason` about `key` unless something was wrong before.
  void reject(std::string_view key, std::string_view reason, ErrorCode code = ErrorCode::bad_config);
  const Status& status() const { return status_; }

 private:
  const nlohmann::json& object_;
  std::string file_;
  std::string key_;  // of the parent, for a child
  Status status_;
};

/// `value` as it is written in JSON, shortened for a message.
std::string shown(const nlohmann::json& value);

}  // namespace pagoda::io
