#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/grammar/object_rules.hpp"
#include "engine/grammar/schema_document.hpp"
#include "engine/grammar/text_language.hpp"

namespace pagoda::grammar {

/// The effect of patternProperties and propertyNames on an object's names: which names there may be, and which schemas
/// their values have. A name that a pattern matches only for some readers of regexes is not written unless it is
/// declared.
class PropertyNames {
 public:
  PropertyNames(const SchemaAt& schema, SchemaRules& converter) : s_(schema), converter_(converter) {}

  /// Reads the keywords. Returns false after a refusal.
  bool read();
  /// Returns whether a property may have this name; nothing if that is not certain.
  std::optional<bool> may_be(const std::string& name) const;
  /// Adds the schemas of the patterns that a name may match. Returns whether it certainly matches one of them.
  bool add_schemas(const std::string& name, Schema& schemas) const;
  /// Returns members whose names are not in `declared`; nothing if there are none. `other`: the schema of those that no
  /// pattern names.
  std::optional<Expr> other_members(const std::vector<std::string>& declared, const Schema& other);

 private:
  struct Pattern {
    std::string path;
    Schema schema;
    TextLanguage part;      ///< texts that it certainly matches
    TextLanguage possible;  ///< texts that it may match
  };
  /// Names that match the same patterns.
  struct NameClass {
    TextLanguage names;
    Schema schemas;
  };

  bool has_names() const { return s_.schema.contains("propertyNames") && s_.schema["propertyNames"] != true; }
  std::optional<Expr> member_of_one_pattern();
  std::optional<Expr> member_of_names(const Schema& other);
  std::optional<Schema> name_schema() const;
  std::optional<TextLanguage> allowed(const std::vector<std::string>& declared);
  bool split(std::vector<NameClass>& classes, const Pattern& pattern);

  const SchemaAt& s_;
  SchemaRules& converter_;
  std::vector<Pattern> patterns_;
  bool is_one_pattern_ = false;  ///< whether there is one pattern, and nothing else that names properties
};

}  // namespace pagoda::grammar
