#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "kernels/result.hpp"

namespace pagoda::io::tokenizer_file {

/// Reads the fields of one JSON object and keeps the first error, so that a reader can read all its fields and check
/// once, with finish(). The object must outlive the reader.
class JsonFields {
 public:
  /// `path` names the object in messages: "model" or "pre_tokenizer.pretokenizers[0]"; empty for the whole file.
  JsonFields(const nlohmann::json& object, std::string path);

  /// Returns the value under `key`; null when it is missing or null.
  const nlohmann::json* find(const std::string& key);
  /// Like find, but a missing value is an error.
  const nlohmann::json* require(const std::string& key);

  std::string string(const std::string& key);
  std::optional<std::string> optional_string(const std::string& key);
  bool boolean(const std::string& key);
  bool boolean(const std::string& key, bool otherwise);
  /// Reads an integer in 0..2^31 - 1.
  std::int32_t natural(const std::string& key);
  std::int32_t natural(const std::string& key, std::int32_t otherwise);
  /// Reads a string of exactly one character.
  std::string character(const std::string& key);

  /// Records an error for `key`; only the first error is kept.
  void reject(const std::string& key, const std::string& reason, ErrorCode code = ErrorCode::bad_config);
  /// Returns the first error. A field that was not read is an error too.
  Status finish();

  const std::string& path() const { return path_; }
  std::string path_of(const std::string& key) const { return path_.empty() ? key : path_ + "." + key; }

 private:
  bool is_string(const std::string& key, const nlohmann::json& value);
  bool is_boolean(const std::string& key, const nlohmann::json& value);

  const nlohmann::json& object_;
  std::string path_;
  std::set<std::string> read_;
  std::optional<Error> error_;
};

/// Returns the message on one line: control characters become \xNN, invalid UTF-8 becomes U+FFFD, and a very long
/// message is cut.
std::string one_line(std::string_view message);

/// Reads a whole file. Errors: bad_config, with the file's name, when it cannot be read or is larger than `max_bytes`.
Result<std::string> read_file(const std::filesystem::path& path, std::size_t max_bytes);

}  // namespace pagoda::io::tokenizer_file
