#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/grammar/json_rules.hpp"
#include "engine/grammar/rules.hpp"
#include "engine/grammar/schema_document.hpp"

namespace pagoda::grammar {

/// What the parts of a schema are converted with.
class SchemaRules {
 public:
  /// Values that a schema accepts.
  virtual Expr value(const Schema& schema, const std::string& path) = 0;
  /// The whole schema is refused; the first problem is told. Nothing comes of what it returns.
  virtual Expr refuse(const std::string& path, const std::string& problem) = 0;
  /// A keyword that counts something; absent, or refused.
  virtual std::optional<std::int64_t> count(const SchemaAt& schema, const char* keyword) = 0;
  virtual JsonRules& json() = 0;
  virtual Rules& rules() = 0;

 protected:
  ~SchemaRules() = default;
};

/// Objects and arrays that a flattened schema accepts.
Expr object_expression(const SchemaAt& schema, SchemaRules& converter);
Expr array_expression(const SchemaAt& schema, SchemaRules& converter);

}  // namespace pagoda::grammar
