#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/request/sampling_params.hpp"
#include "io/wire/ignored_fields.hpp"
#include "io/wire/json_reader.hpp"
#include "io/wire/wire_error.hpp"

namespace pagoda::wire {

/// Reads the fields of one JSON object by name and keeps the first error (invalid_request, param = the field). A field
/// that is absent leaves its target unchanged. A field that is null does too if the target is optional, or always with
/// Nulls::absent. Names must outlive the reader.
///
/// A field that is never read is unknown. Unknown fields are refused, and the error suggests a known name that looks
/// similar.
/// Within an IgnoredFields::Scope, an unknown field that is null counts as absent with Nulls::absent; and if the
/// Scope's rule is `ignored`, an unknown field that is not a misspelling is added to the Scope's names and is not
/// refused.
class FieldReader {
 public:
  enum class Nulls : std::uint8_t { values, absent };
  /// `within` is the prefix of names in messages and params, for an object inside another object: "options.".
  explicit FieldReader(const Json& object, Nulls nulls = Nulls::values, std::string within = {})
      : object_(object), nulls_(nulls), within_(std::move(within)) {}

  void read(const char* name, bool& out);
  void read(const char* name, std::int64_t& out);
  void read(const char* name, double& out);
  void read(const char* name, std::string& out);
  void read(const char* name, std::vector<std::int64_t>& out);
  void read(const char* name, std::optional<std::int64_t>& out);
  void read(const char* name, std::optional<std::uint64_t>& out);
  void read(const char* name, std::optional<std::string>& out);
  void read(const char* name, std::optional<std::vector<std::int64_t>>& out);
  /// Reads a required string.
  void read_required(const char* name, std::string& out);
  /// Reads a string or a list of strings.
  void read_strings(const char* name, std::vector<std::string>& out);
  /// Reads an object that maps token ids, written as decimal strings, to numbers.
  void read_bias(const char* name, std::vector<std::pair<std::int64_t, double>>& out);
  /// Reads false, true or "never".
  void read(const char* name, EarlyStopping& out);

  /// Returns the field's value as it is, or null if the field is absent.
  const Json* find(const char* name);
  /// Returns the field's value if it is an object, or null if the field is absent. Refuses any other value and returns
  /// null.
  const Json* read_object(const char* name);
  /// Returns whether the object has the field.
  bool has(const char* name) const;
  /// Marks a field as known without reading it.
  void skip(const char* name) { known_.emplace_back(name); }
  /// Treats a known field that has no effect on the answer like an unknown field: it is ignored by name or, where
  /// unknown fields are refused, refused with its name and `why`.
  void ignore(const char* name, std::string_view why = "is not supported");
  /// Treats a value of a known field that has no effect on the answer like an unknown field: it is ignored as
  /// "NAME=VALUE" or, where unknown fields are refused, refused with `message`.
  void ignore_value(const char* name, std::string_view value, std::string message);

  void refuse(const char* name, std::string message);
  void refuse(WireError error);
  /// Returns whether no error has been found yet.
  bool has_no_error() const { return !error_; }

  /// Returns the first error of the fields that were read, or else the first unknown field that is refused.
  tl::expected<void, WireError> finish();

 private:
  void expect(const char* name, const char* expected, const Json& got);
  bool is_known(std::string_view name) const;
  bool ignores_unknown() const;
  WireError unknown_field(const std::string& key) const;

  const Json& object_;
  Nulls nulls_;
  std::string within_;
  IgnoredFields* ignored_ = IgnoredFields::current();
  std::vector<std::string_view> known_;
  std::vector<std::string_view> without_effect_;  ///< known fields that are never suggested for a misspelling
  std::optional<WireError> error_;
};

}  // namespace pagoda::wire
