#pragma once

#include <map>
#include <optional>
#include <string>

#include "engine/grammar/schema_document.hpp"
#include "engine/grammar/text_language.hpp"

namespace pagoda::grammar {

/// Tells whether a schema accepts a value: the values of an enum are held to the keywords beside it when the schema is
/// compiled.
class ValueChecker {
 public:
  ValueChecker(const SchemaDocument& document, SchemaBudget& budget, LanguageBudget& languages)
      : document_(document), budget_(budget), languages_(languages) {}

  /// Nothing where that is not certain: readers may differ, a keyword is not known, or the budget is spent.
  std::optional<bool> accepts(const Schema& schema, const Schema& value, int depth = 0);

 private:
  using Verdict = std::optional<bool>;
  /// What a regex certainly matches, and what it may; absent: it is not supported.
  struct Matches {
    std::optional<TextLanguage> certain;
    std::optional<TextLanguage> possible;
  };

  Verdict keyword(const std::string& name, const Schema& of, const Schema& schema, const Schema& value, int depth);
  Verdict of_object(const std::string& name, const Schema& of, const Schema& schema, const Schema& value, int depth);
  Verdict of_array(const std::string& name, const Schema& of, const Schema& schema, const Schema& value, int depth);
  Verdict of_string(const std::string& name, const Schema& of, const std::string& text);
  Verdict matches(const Schema& regex, const std::string& text);
  Verdict any_of(const Schema& schemas, const Schema& value, int depth);
  Verdict all_of(const Schema& schemas, const Schema& value, int depth);
  Verdict one_of(const Schema& schemas, const Schema& value, int depth);

  const SchemaDocument& document_;
  SchemaBudget& budget_;
  LanguageBudget& languages_;
  std::map<std::string, Matches> matches_;  ///< by regex
};

}  // namespace pagoda::grammar
