#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/grammar/json_rules.hpp"
#include "engine/grammar/rules.hpp"
#include "engine/grammar/schema_document.hpp"
#include "engine/grammar/text_language.hpp"

namespace pagoda::grammar {

/// What the parts of a schema are converted with.
class SchemaRules {
 public:
  /// Values that a schema accepts.
  virtual Expr value(const Schema& schema, const std::string& path) = 0;
  /// Without $ref, allOf and what else is joined. Nothing after a refusal.
  virtual std::optional<SchemaAt> flattened(SchemaAt schema) = 0;
  /// The whole schema is refused; the first problem is told. Nothing comes of what it returns.
  virtual Expr refuse(const std::string& path, const std::string& problem) = 0;
  /// What the schema says cannot be: refused, but where it is one of several that a keyword was turned into.
  virtual Expr contradiction(const SchemaAt& schema, const char* keyword, const std::string& problem) = 0;
  /// Does a schema accept the value? Nothing where that is not certain.
  virtual std::optional<bool> accepts(const Schema& schema, const Schema& value) = 0;
  /// The count that a keyword asks for at least; `absent` where it is absent, or refused.
  virtual std::int32_t least(const SchemaAt& schema, const char* keyword, std::int32_t absent = 0) = 0;
  /// The count that it allows at most; kUnbounded where it is absent, refused, or more than any text has.
  virtual std::int32_t most(const SchemaAt& schema, const char* keyword) = 0;
  virtual LanguageBudget& languages() = 0;
  virtual JsonRules& json() = 0;
  virtual Rules& rules() = 0;

 protected:
  ~SchemaRules() = default;
};

/// Objects and arrays that a flattened schema accepts.
Expr object_expression(const SchemaAt& schema, SchemaRules& converter);
Expr array_expression(const SchemaAt& schema, SchemaRules& converter);

}  // namespace pagoda::grammar
