#pragma once

#include <map>
#include <optional>
#include <string>

#include "engine/grammar/schema_document.hpp"
#include "engine/grammar/text_language.hpp"

namespace pagoda::grammar {

/// Checks whether a schema accepts a value. Compiling a schema checks the values of an enum against the keywords beside
/// it.
class ValueChecker {
 public:
  ValueChecker(const SchemaDocument& document, SchemaBudget& budget, LanguageBudget& languages)
      : document_(document), budget_(budget), languages_(languages) {}

  /// Returns nothing if the answer is not certain: readers may differ, a keyword is not known, or the budget is spent.
  std::optional<bool> accepts(const Schema& schema, const Schema& value, int depth = 0);

 private:
  using Verdict = std::optional<bool>;
  /// The texts that a regex certainly matches, and those that it may match; absent if the regex is not supported.
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
