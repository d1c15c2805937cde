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

/// Takes the fields of one JSON object by name and remembers the first thing that is wrong (invalid_request, param =
/// the field). A field that is absent leaves its target as it is; null does so too where the target can be absent, and
/// everywhere with Nulls::absent. Names must outlive the reader.
///
/// A field that was never asked for is unknown: it is refused, with the name that it may be a misspelling of. Within an
/// IgnoredFields::Scope an unknown field that is null is absent, and where the Scope's rule says so an unknown field
/// that is no misspelling is added to the Scope's names and not refused.
class FieldReader {
 public:
  enum class Nulls : std::uint8_t { values, absent };
  /// `within` stands before the names in messages and params, for an object inside another: "options.".
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
  /// A string that must be there.
  void read_required(const char* name, std::string& out);
  /// A string or a list of strings.
  void read_strings(const char* name, std::vector<std::string>& out);
  /// An object from token ids, written as decimal strings, to numbers.
  void read_bias(const char* name, std::vector<std::pair<std::int64_t, double>>& out);
  /// false, true or "never".
  void read(const char* name, EarlyStopping& out);

  /// The field as it is; null when it is absent.
  const Json* find(const char* name);
  /// An object, or null when it is absent or something else, which is refused.
  const Json* read_object(const char* name);
  /// Whether the object has the field.
  bool has(const char* name) const;
  /// A field that was read already elsewhere.
  void skip(const char* name) { known_.emplace_back(name); }
  /// A field that is known and does not act on the answer. It is treated as an unknown field: ignored by name, or
  /// refused, with `why` behind its name, where unknown fields are.
  void ignore(const char* name, std::string_view why = "is not supported");
  /// A value of a known field that does not act on the answer: ignored as "NAME=VALUE", or refused with `message` where
  /// unknown fields are.
  void ignore_value(const char* name, std::string_view value, std::string message);

  void refuse(const char* name, std::string message);
  void refuse(WireError error);
  /// Nothing was wrong so far.
  bool is_fine() const { return !error_; }

  /// Returns the first problem of the fields read so far, else the first unknown field that is refused.
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
  std::vector<std::string_view> without_effect_;  ///< known, and no name that a misspelling is corrected to
  std::optional<WireError> error_;
};

}  // namespace pagoda::wire
