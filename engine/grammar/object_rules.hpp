#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/grammar/json_rules.hpp"
#include "engine/grammar/rules.hpp"
#include "engine/grammar/schema_document.hpp"
#include "engine/grammar/text_language.hpp"

namespace pagoda::grammar {

/// The operations with which the parts of a schema are converted.
class SchemaRules {
 public:
  /// Returns the values that a schema accepts.
  virtual Expr value(const Schema& schema, const std::string& path) = 0;
  /// Returns the schema without $ref, allOf and the other keywords that are joined. Nothing after a refusal.
  virtual std::optional<SchemaAt> flattened(SchemaAt schema) = 0;
  /// Refuses the whole schema; only the first problem is reported. The returned expression is never used.
  virtual Expr refuse(const std::string& path, const std::string& problem) = 0;
  /// Returns whether the schema is refused, so that no more of it needs to be read.
  virtual bool has_error() const = 0;
  /// Handles a schema that contradicts itself: refuses it, unless it is one of several that a keyword was rewritten
  /// into.
  virtual Expr contradiction(const SchemaAt& schema, const char* keyword, const std::string& problem) = 0;
  /// Returns whether a schema accepts the value; nothing if that is not certain.
  virtual std::optional<bool> accepts(const Schema& schema, const Schema& value) = 0;
  /// Returns the minimum that a keyword sets; `absent` if the keyword is absent or refused.
  virtual std::int32_t min_of(const SchemaAt& schema, const char* keyword, std::int32_t absent = 0) = 0;
  /// Returns the maximum that a keyword sets; kUnbounded if it is absent, refused, or more than any text has.
  virtual std::int32_t max_of(const SchemaAt& schema, const char* keyword) = 0;
  virtual LanguageBudget& languages() = 0;
  virtual JsonRules& json() = 0;
  virtual Rules& rules() = 0;

 protected:
  ~SchemaRules() = default;
};

/// Return the objects, and the arrays, that a flattened schema accepts.
Expr object_expression(const SchemaAt& schema, SchemaRules& converter);
Expr array_expression(const SchemaAt& schema, SchemaRules& converter);

}  // namespace pagoda::grammar
