#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "engine/grammar/limits.hpp"
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
/// Is it a keyword of a flattened schema that is supported, or an annotation?
bool is_known(std::string_view keyword);
/// An object without its annotations, or what else it is.
Schema without_annotations(const Schema& schema);

/// JSON that is neither nested too deep nor has too many members in one object. Error: what is wrong with it.
tl::expected<Schema, std::string> parse_bounded(std::string_view text);

/// How much of schemas may still be read and copied. Once it is spent it stays so: the schema is too large.
class SchemaBudget {
 public:
  bool is_spent() const { return num_schemas_ < 0 || num_nodes_ < 0; }
  /// One more schema. False: it is spent.
  bool take_schema() {
    --num_schemas_;
    return !is_spent();
  }
  /// A copy, and what is done with each part of it.
  bool take(const Schema& copied) {
    take_nodes(copied, 0);
    return !is_spent();
  }
  /// So many comparisons.
  bool take_comparisons(std::size_t num);

 private:
  void take_nodes(const Schema& copied, int depth);

  std::int64_t num_schemas_ = kMaxSchemas;
  std::int64_t num_nodes_ = kMaxCopiedNodes;
};

/// A whole schema as text: parsed, and its parts found and joined. Immutable.
class SchemaDocument {
 public:
  /// Error: invalid_request for what is no JSON, or too large, or has a $ref and a $id below its root.
  static Result<SchemaDocument> parse(std::string_view text);

  const Schema& root() const { return root_; }
  /// What a $ref points at: "#", or "#/..." in this document. Without its annotations.
  Result<SchemaAt> resolve(const Schema& reference, const std::string& path) const;
  /// Without $ref and allOf: what they and the keywords beside them ask for, in one schema.
  Result<SchemaAt> flattened(SchemaAt schema, SchemaBudget& budget, int depth = 0) const;
  /// What accepts a value that both accept. `a` and `b` are flattened, and `a` has only known keywords.
  Result<SchemaAt> merged(SchemaAt a, const SchemaAt& b, SchemaBudget& budget) const;
  /// Is there certainly no value that both accept?
  bool disjoint(const Schema& a, const Schema& b, SchemaBudget& budget, int depth = 0) const;

 private:
  Schema root_;
};

/// The types that a flattened schema names or, without `type`, that its keywords are about; nothing where it says
/// nothing of types. Error: an unknown type.
Result<std::optional<JsonTypes>> types_of(const SchemaAt& schema);
/// Is the value of one of the types?
bool has_type(const Schema& value, const JsonTypes& types);

}  // namespace pagoda::grammar
