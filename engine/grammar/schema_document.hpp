#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "engine/grammar/limits.hpp"
#include "kernels/result.hpp"

namespace pagoda::grammar {

/// A schema. It keeps the order of its properties.
using Schema = nlohmann::ordered_json;

/// A schema and its place in the document: a JSON pointer, "" for the whole.
struct SchemaAt {
  Schema schema;
  std::string path;
};

/// Our own keywords, in schemas that were joined. A user's schema must not have them.
inline constexpr const char* kMorePatterns = "pagoda:patterns";          ///< patterns besides that of `pattern`
inline constexpr const char* kMoreFormats = "pagoda:formats";            ///< formats besides that of `format`
inline constexpr const char* kMoreMultiples = "pagoda:multiples";        ///< numbers besides that of `multipleOf`
inline constexpr const char* kFraction = "pagoda:fraction";              ///< the number is no integer
inline constexpr const char* kExcludedPatterns = "pagoda:not-patterns";  ///< the string matches none of them
inline constexpr const char* kExcludedValues = "pagoda:not-values";      ///< the value is none of them
/// The schema is one of several that another keyword was rewritten into. It may contradict itself, and the properties
/// that it names are not evaluated in the sense of unevaluatedProperties.
inline constexpr const char* kRewritten = "pagoda:rewritten";
inline constexpr std::string_view kOwnPrefix = "pagoda:";

/// The types of JSON; an integer is a number.
enum class JsonType : std::uint8_t { object, array, string, integer, number, boolean, null };
using JsonTypes = std::set<JsonType>;

/// Returns an invalid_request with the message "the schema at /a/b: ...".
Error schema_error(const std::string& path, const std::string& problem);
/// Returns the path of a part. The part's name is escaped.
std::string at(const std::string& path, std::string_view part);

/// Returns whether the keyword restricts no value. A keyword that JSON Schema does not have is such an annotation (core
/// 6.5).
bool is_annotation(std::string_view keyword);
/// Returns whether flattening turns the keyword into other keywords.
bool is_joined(std::string_view keyword);
/// Returns whether the keyword restricts values and is not supported.
bool is_refused(std::string_view keyword);
/// Returns an object without its annotations; any other value as it is.
Schema without_annotations(const Schema& schema);

/// Parses JSON that is neither nested too deep nor has too many members in one object. Error: the problem.
tl::expected<Schema, std::string> parse_bounded(std::string_view text);

/// The reading and copying of schemas that is still allowed. Once it is spent it stays so: the schema is too large.
class SchemaBudget {
 public:
  bool is_spent() const { return num_schemas_ < 0 || num_nodes_ < 0; }
  /// Takes one more schema. Returns false if the budget is spent.
  bool take_schema() {
    --num_schemas_;
    return !is_spent();
  }
  /// Takes a copy, and the work on each part of it. Returns false if the budget is spent.
  bool take(const Schema& copied) {
    take_nodes(copied, 0);
    return !is_spent();
  }
  /// Takes `num` comparisons. Returns false if the budget is spent.
  bool take_comparisons(std::size_t num);

 private:
  void take_nodes(const Schema& copied, int depth);

  std::int64_t num_schemas_ = kMaxSchemas;
  std::int64_t num_nodes_ = kMaxCopiedNodes;
};

/// A whole schema: parses its text, and finds and joins its parts. Immutable.
class SchemaDocument {
 public:
  /// Error: invalid_request for a text that is no JSON, or too large, or has a $ref and a $id below its root.
  static Result<SchemaDocument> parse(std::string_view text);

  const Schema& root() const { return *root_; }
  /// Returns the part of this document that a $ref points at: "#", "#/..." or "#anchor". A part other than the root has
  /// no annotations.
  Result<SchemaAt> resolve(const Schema& reference, const std::string& path) const;
  /// Returns the schema without $ref and allOf: one schema that asks for all that they and the keywords beside them ask
  /// for.
  Result<SchemaAt> flattened(SchemaAt schema, SchemaBudget& budget, int depth = 0) const;
  /// Returns a schema that accepts the values that both accept. `a` and `b` must be flattened, and `a` must have no
  /// refused keyword.
  Result<SchemaAt> merged(SchemaAt a, const SchemaAt& b, SchemaBudget& budget) const;
  /// Returns whether there certainly is no value that both accept.
  bool disjoint(const Schema& a, const Schema& b, SchemaBudget& budget, int depth = 0) const;

 private:
  std::shared_ptr<const Schema> root_;
  /// Parts with an anchor and their paths, by anchor; null if several parts have it. Empty without $ref.
  std::map<std::string, std::pair<const Schema*, std::string>> anchors_;
};

/// unevaluatedProperties and unevaluatedItems. They apply to what no keyword beside them, or in schemas joined with
/// theirs, names. So they are taken out of a schema while other schemas are joined with it.
class Unevaluated {
 public:
  static Unevaluated taken_from(Schema& schema);
  bool empty() const { return keywords_.empty(); }
  /// Adds the keywords to the joined schema. Error: it is not known what was evaluated.
  Result<SchemaAt> put_back(SchemaAt joined) const;

 private:
  Schema keywords_ = Schema::object();
};

Schema names_of(const JsonTypes& types);
/// Returns the types that a flattened schema names or, without `type`, those that its keywords apply to; nothing if no
/// keyword applies to a type. Error: an unknown type.
Result<std::optional<JsonTypes>> types_of(const SchemaAt& schema);
/// Returns whether the value is of one of the types.
bool has_type(const Schema& value, const JsonTypes& types);

}  // namespace pagoda::grammar
