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

/// Keywords of our own, in schemas that were joined. No schema of a user's has any.
inline constexpr const char* kMorePatterns = "pagoda:patterns";          ///< patterns beside `pattern`
inline constexpr const char* kMoreFormats = "pagoda:formats";            ///< formats beside `format`
inline constexpr const char* kMoreMultiples = "pagoda:multiples";        ///< numbers beside that of `multipleOf`
inline constexpr const char* kFraction = "pagoda:fraction";              ///< a number is no integer
inline constexpr const char* kExcludedPatterns = "pagoda:not-patterns";  ///< a string matches none
inline constexpr const char* kExcludedValues = "pagoda:not-values";      ///< it is none
/// The schema is one of several that another keyword was turned into: it may contradict itself, and what it names is
/// not evaluated in the sense of unevaluatedProperties.
inline constexpr const char* kRewritten = "pagoda:rewritten";
inline constexpr std::string_view kOwnPrefix = "pagoda:";

/// The types of JSON; an integer is a number.
enum class JsonType : std::uint8_t { object, array, string, integer, number, boolean, null };
using JsonTypes = std::set<JsonType>;

/// "keyword x at /a/b: ..." as an invalid_request.
Error schema_error(const std::string& path, const std::string& problem);
/// The path of a part, whose name is escaped.
std::string at(const std::string& path, std::string_view part);

/// Whether the keyword restricts no value. A keyword that JSON Schema does not have is such an annotation (core 6.5).
bool is_annotation(std::string_view keyword);
/// Does flattening turn it into other keywords?
bool is_joined(std::string_view keyword);
/// Whether the keyword restricts values and is not supported.
bool is_refused(std::string_view keyword);
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
  /// What accepts a value that both accept. `a` and `b` are flattened, and `a` has no refused keyword.
  Result<SchemaAt> merged(SchemaAt a, const SchemaAt& b, SchemaBudget& budget) const;
  /// Is there certainly no value that both accept?
  bool disjoint(const Schema& a, const Schema& b, SchemaBudget& budget, int depth = 0) const;

 private:
  Schema root_;
};

/// unevaluatedProperties and unevaluatedItems, which are about what no keyword beside them or in schemas joined with
/// theirs names: they are taken out of a schema while others are joined with it.
class Unevaluated {
 public:
  static Unevaluated taken_from(Schema& schema);
  bool empty() const { return keywords_.empty(); }
  /// Error: it is not known what was evaluated.
  Result<SchemaAt> put_back(SchemaAt joined) const;

 private:
  Schema keywords_ = Schema::object();
};

Schema names_of(const JsonTypes& types);
/// The types that a flattened schema names or, without `type`, that its keywords are about; nothing where it says
/// nothing of types. Error: an unknown type.
Result<std::optional<JsonTypes>> types_of(const SchemaAt& schema);
/// Is the value of one of the types?
bool has_type(const Schema& value, const JsonTypes& types);

}  // namespace pagoda::grammar
