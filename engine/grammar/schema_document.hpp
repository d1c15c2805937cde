#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "kernels/result.hpp"

namespace pagoda::grammar {

/// A schema with the order of its properties.
using Schema = nlohmann::ordered_json;

/// A schema, and where it stands in the document: a JSON pointer, "" for the whole.
struct SchemaAt {
  Schema schema;
  std::string path;
};

/// The types of JSON; an integer is a number.
enum class JsonType : std::uint8_t { object, array, string, integer, number, boolean, null };
using JsonTypes = std::set<JsonType>;

/// "keyword x at /a/b: ..." as an invalid_request.
Error schema_error(const std::string& path, const std::string& problem);
/// The path of a part, whose name is escaped.
std::string at(const std::string& path, std::string_view part);

/// Does the keyword say nothing of which values are valid?
bool is_annotation(std::string_view keyword);

/// A whole schema as text: parsed, and its parts found and joined. Immutable.
class SchemaDocument {
 public:
  /// Error: invalid_request for what is no JSON, or too large.
  static Result<SchemaDocument> parse(std::string_view text);

  const Schema& root() const { return root_; }
  /// What a $ref points at: "#", or "#/..." in this document.
  Result<SchemaAt> resolve(const Schema& reference, const std::string& path) const;
  /// Without $ref and allOf: what they and the keywords beside them ask for, in one schema. `budget` counts schemas
  /// down.
  Result<SchemaAt> flattened(SchemaAt schema, std::int64_t& budget, int depth = 0) const;
  /// What accepts a value that both accept. `a` and `b` are flattened.
  Result<SchemaAt> merged(SchemaAt a, const SchemaAt& b) const;
  /// Is there certainly no value that both accept?
  bool disjoint(const SchemaAt& a, const SchemaAt& b, std::int64_t& budget, int depth = 0) const;

 private:
  Schema root_;
};

/// The types that a flattened schema names or, without `type`, that its keywords are about; nothing where it says
/// nothing of types. Error: an unknown type.
Result<std::optional<JsonTypes>> types_of(const SchemaAt& schema);
/// Is the value of one of the types?
bool has_type(const Schema& value, const JsonTypes& types);

}  // namespace pagoda::grammar
