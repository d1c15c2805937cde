#include "engine/grammar/grammar_rules.hpp"

#include <utility>
#include <vector>

#include "engine/grammar/ebnf_rules.hpp"
#include "engine/grammar/json_rules.hpp"
#include "engine/grammar/lark_rules.hpp"
#include "engine/grammar/lark_syntax.hpp"
#include "engine/grammar/limits.hpp"
#include "engine/grammar/regex_rules.hpp"
#include "engine/grammar/rules.hpp"
#include "engine/grammar/schema_rules.hpp"
#include "engine/grammar/structural_tag_rules.hpp"
#include "engine/text/unicode.hpp"

namespace pagoda::grammar {
namespace {

tl::unexpected<Error> refuse(std::string problem) {
  return fail(ErrorCode::invalid_request, std::move(problem));
}

Rules any_object() {
  Rules rules;
  const RuleId root = rules.add();
  JsonRules json(rules);
  rules.set(root, json.object());
  return rules;
}

Result<Rules> choice_rules(const std::vector<std::string>& choices) {
  if (choices.empty()) return refuse("choice has no texts");
  if (choices.size() > kMaxChoices) {
    return refuse("choice has " + std::to_string(choices.size()) + " texts; at most " + std::to_string(kMaxChoices) +
                  " are supported");
  }
  std::vector<Expr> parts;
  for (const std::string& text : choices) {
    if (text.find('\0') != std::string::npos || text::find_invalid_utf8(text) != std::string::npos) {
      return refuse("choice has a text that is not UTF-8, or has a NUL");
    }
    parts.push_back(literal(text));
  }
  Rules rules;
  rules.add(choice(std::move(parts)));
  return rules;
}

Result<Rules> rules_of(const StructuredOutput& constraint) {
  switch (constraint.kind) {
    case GrammarKind::json_schema:
      return schema_rules(constraint.text);
    case GrammarKind::json_object:
      return any_object();
    case GrammarKind::choice:
      return choice_rules(constraint.choices);
    case GrammarKind::grammar:
      return is_lark(constraint.text) ? lark_rules(constraint.text) : ebnf_rules(constraint.text);
    case GrammarKind::structural_tag:
      return structural_tag_rules(constraint.text);
    case GrammarKind::regex:
      break;
  }
  auto expression = regex_expression(constraint.text);
  if (!expression) return fail(std::move(expression.error()));
  Rules rules;
  rules.add(std::move(*expression));
  return rules;
}

Result<Rules> checked_rules_of(const StructuredOutput& constraint) {
  if (constraint.num_bytes() > kMaxStructuredOutputBytes) {
    return refuse("the grammar has " + std::to_string(constraint.num_bytes()) + " bytes; at most " +
                  std::to_string(kMaxStructuredOutputBytes) + " are supported");
  }
  auto rules = rules_of(constraint);
  if (!rules) return rules;
  if (rules->are_too_many()) return refuse("the grammar is too large");
  if (!rules_that_end(*rules).front()) return refuse("no text satisfies the constraint");
  return rules;
}

}  // namespace

Result<Rules> grammar_rules(const StructuredOutput& constraint) {
  auto rules = checked_rules_of(constraint);
  if (!rules) rules.error().param = "structured_outputs";
  return rules;
}

}  // namespace pagoda::grammar
