#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "engine/request/sampling_params.hpp"
#include "io/json_lines/wire_error.hpp"

namespace pagoda::json_lines {

/// Takes the fields of one JSON object by name and remembers the first thing that is wrong (invalid_request, param =
/// the field). A field that was never asked for is unknown. A field that is absent leaves its target as it is; null
/// does so too where the target can be absent.
class FieldReader {
 public:
  explicit FieldReader(const nlohmann::json& object) : object_(object) {}

  void read(const char* name, bool& out);
  void read(const char* name, std::int64_t& out);
  void read(const char* name, double& out);
  void read(const char* name, std::string& out);
  void read(const char* name, std::vector<std::int64_t>& out);
  void read(const char* name, std::optional<std::int64_t>& out);
  void read(const char* name, std::optional<std::uint64_t>& out);
  void read(const char* name, std::optional<std::string>& out);
  void read(const char* name, std::optional<std::vector<std::int64_t>>& out);
  /// A string or a list of strings.
  void read_strings(const char* name, std::vector<std::string>& out);
  /// An object from token ids, written as decimal strings, to numbers.
  void read_bias(const char* name, std::vector<std::pair<std::int64_t, double>>& out);
  /// false, true or "never".
  void read(const char* name, EarlyStopping& out);

  /// Whether the object has the field.
  bool has(const char* name) const { return object_.contains(name); }
  /// A field that was read already elsewhere.
  void skip(const char* name) { known_.insert(name); }

  void refuse(const char* name, std::string message);

  /// The first problem of the fields read so far, else the first unknown field.
  tl::expected<void, WireError> finish();

 private:
  const nlohmann::json* find(const char* name);
  void expect(const char* name, const char* expected, const nlohmann::json& got);

  const nlohmann::json& object_;
  std::set<std::string, std::less<>> known_;
  std::optional<WireError> error_;
};

}  // namespace pagoda::json_lines
