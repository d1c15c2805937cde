#include "engine/grammar/lark_rules.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "engine/grammar/json_rules.hpp"
#include "engine/grammar/lark_reader.hpp"
#include "engine/grammar/lark_syntax.hpp"
#include "engine/grammar/limits.hpp"
#include "engine/grammar/regex_rules.hpp"
#include "engine/grammar/schema_document.hpp"
#include "engine/grammar/schema_rules.hpp"
#include "engine/grammar/text_language.hpp"

namespace pagoda::grammar {
namespace {

#define PAGODA_LARK_INT "[0-9]+"
#define PAGODA_LARK_DECIMAL "([0-9]+\\.[0-9]*|\\.[0-9]+)"
#define PAGODA_LARK_EXPONENT "[eE][+-]?[0-9]+"
#define PAGODA_LARK_FLOAT "([0-9]+" PAGODA_LARK_EXPONENT "|" PAGODA_LARK_DECIMAL "(" PAGODA_LARK_EXPONENT ")?)"
#define PAGODA_LARK_NUMBER "(" PAGODA_LARK_FLOAT "|" PAGODA_LARK_INT ")"

/// The terminals of Lark's library `common`, as regexes.
constexpr std::array<std::pair<std::string_view, std::string_view>, 26> kCommon{{
    {"DIGIT", "[0-9]"},
    {"HEXDIGIT", "[0-9a-fA-F]"},
    {"INT", PAGODA_LARK_INT},
    {"SIGNED_INT", "[+-]?" PAGODA_LARK_INT},
    {"DECIMAL", PAGODA_LARK_DECIMAL},
    {"_EXP", PAGODA_LARK_EXPONENT},
    {"FLOAT", PAGODA_LARK_FLOAT},
    {"SIGNED_FLOAT", "[+-]?" PAGODA_LARK_FLOAT},
    {"NUMBER", PAGODA_LARK_NUMBER},
    {"SIGNED_NUMBER", "[+-]?" PAGODA_LARK_NUMBER},
    {"UNESCAPED_STRING", "\"[^\"]*\""},
    {"ESCAPED_STRING", "\"([^\"\\\\\\n]|\\\\[^\\n])*\""},
    {"LCASE_LETTER", "[a-z]"},
    {"UCASE_LETTER", "[A-Z]"},
    {"LETTER", "[A-Za-z]"},
    {"WORD", "[A-Za-z]+"},
    {"CNAME", "[A-Za-z_][A-Za-z_0-9]*"},
    {"WS_INLINE", "[ \\t]+"},
    {"WS", "[ \\t\\f\\r\\n]+"},
    {"CR", "\\r"},
    {"LF", "\\n"},
    {"NEWLINE", "(\\r?\\n)+"},
    {"SH_COMMENT", "#[^\\n]*"},
    {"CPP_COMMENT", "//[^\\n]*"},
    {"C_COMMENT", "/\\*([^*]|\\*+[^*/])*\\*+/"},
    {"SQL_COMMENT", "--[^\\n]*"},
}};

/// Returns how guidance writes the JSON of a schema, as the schema itself says under x-guidance.
JsonSpacing spacing_of(const Schema& schema) {
  JsonSpacing spacing;
  const auto own = schema.is_object() ? schema.find("x-guidance") : schema.end();
  if (!schema.is_object() || own == schema.end() || !own->is_object()) return spacing;
  spacing.is_free = own->value("whitespace_flexible", Schema(true)) != false;
  const auto text = [&](const char* name, std::string& separator) {
    const auto found = own->find(name);
    if (found != own->end() && found->is_string()) separator = found->get<std::string>();
  };
  text("item_separator", spacing.item_separator);
  text("key_separator", spacing.key_separator);
  return spacing;
}

/// Turns the definitions that `start` needs into rules. The first problem ends the conversion.
class LarkConverter {
 public:
  explicit LarkConverter(const LarkGrammar& grammar) : grammar_(grammar) {}

  Result<Rules> convert() {
    const RuleId root = rules_.add(nothing());
    ignored_ = ignored();
    Expr start = rule_named("start", 1);
    rules_.set(root, grammar_.ignores_first && ignored_ ? sequence({ignored_, std::move(start)}) : std::move(start));
    while (!pending_.empty() && !error_) {
      const auto [id, definition] = pending_.back();
      pending_.pop_back();
      rules_.set(id, body(*definition));
      if (rules_.are_too_many()) refuse(definition->line, "it is too large");
    }
    if (error_) return fail(std::move(*error_));
    return std::move(rules_);
  }

 private:
  using Kind = LarkNode::Kind;

  Expr refuse(std::int64_t line, const std::string& problem) {
    if (!error_) error_ = lark_error(line, problem);
    return nothing();
  }

  /// Returns the text that may follow a terminal; null if there is none.
  Expr ignored() {
    if (grammar_.ignored.empty()) return nullptr;
    std::vector<Expr> all;
    for (const LarkNode& one : grammar_.ignored) all.push_back(terminal(one));
    return rule(rules_.add(repeat(choice(std::move(all)), 0, kUnbounded)));
  }
  Expr with_ignored(Expr terminal) const { return ignored_ ? sequence({std::move(terminal), ignored_}) : terminal; }

  Expr rule_named(const std::string& name, std::int64_t line) {
    const auto found = grammar_.definitions.find(name);
    if (found == grammar_.definitions.end()) return refuse(line, "the grammar has no rule " + name.substr(0, 100));
    const auto [known, is_new] = rule_ids_.try_emplace(name, 0);
    if (is_new) {
      known->second = rules_.add(nothing());
      pending_.emplace_back(known->second, &found->second);
    }
    return rule(known->second);
  }

  Expr body(const LarkDefinition& definition) {
    if (!definition.ends_by_itself()) return expression(definition.body);
    // A rule of llguidance that ends by itself consists of one terminal.
    Expr all = terminal(definition.body);
    std::optional<TextLanguage> with_stop;
    if (!definition.stop.empty() && !error_) {
      // The text goes as far as the first stop.
      const Expr stop = terminal(definition.stop.front());
      all = sequence({all, stop});
      if (!error_) with_stop = TextLanguage::from_expression(stop, Matching::anywhere, budget_);
    }
    if (error_) return nothing();
    auto language = TextLanguage::from_expression(all, Matching::whole, budget_);
    if (!definition.stop.empty()) {
      language = language && with_stop ? language->intersection(with_stop->shortest(), budget_) : std::nullopt;
    }
    if (!language) {
      return refuse(definition.line, "the terminal of a rule with lazy, stop or max_tokens is too large");
    }
    if (definition.is_lazy) language = language->shortest();
    return with_ignored(language->expression(nullptr, definition.max_tokens));
  }

  /// Returns the expression of a node in a rule.
  Expr expression(const LarkNode& node) {
    if (error_) return nothing();
    switch (node.kind) {
      case Kind::text:
      case Kind::regex:
      case Kind::range:
        return with_ignored(terminal(node));
      case Kind::name:
        return is_lark_terminal(node.text) ? with_ignored(rule(terminal_rule(node))) : rule_named(node.text, node.line);
      case Kind::json:
        return with_ignored(json(node));
      case Kind::both:
        return refuse(node.line, "& is supported for terminals only, whose names are in capitals");
      case Kind::sequence:
        return node.parts.empty() ? empty() : sequence(parts_of(node, &LarkConverter::expression));
      case Kind::choice:
        return choice(parts_of(node, &LarkConverter::expression));
      case Kind::repeat:
        return repeat(expression(node.parts.front()), node.min, node.max);
    }
    return nothing();
  }

  /// Returns the expression of a node in a terminal: characters alone.
  Expr terminal(const LarkNode& node) {
    if (error_) return nothing();
    switch (node.kind) {
      case Kind::text:
        return text(node);
      case Kind::regex:
        return regex(node);
      case Kind::range:
        return characters({node.range});
      case Kind::name:
        if (is_lark_terminal(node.text)) return terminal_named(node);
        return refuse(node.line, "a terminal cannot name the rule " + node.text.substr(0, 100));
      case Kind::json:
        return refuse(node.line, "%json is not supported in a terminal");
      case Kind::both:
        return both(node);
      case Kind::sequence:
        return node.parts.empty() ? empty() : sequence(parts_of(node, &LarkConverter::terminal));
      case Kind::choice:
        return choice(parts_of(node, &LarkConverter::terminal));
      case Kind::repeat:
        return repeat(terminal(node.parts.front()), node.min, node.max);
    }
    return nothing();
  }

  std::vector<Expr> parts_of(const LarkNode& node, Expr (LarkConverter::*to)(const LarkNode&)) {
    std::vector<Expr> parts;
    for (const LarkNode& part : node.parts) parts.push_back((this->*to)(part));
    return parts;
  }

  RuleId terminal_rule(const LarkNode& name) {
    const auto [known, is_new] = terminal_rules_.try_emplace(name.text, 0);
    if (is_new) known->second = rules_.add(terminal_named(name));
    return known->second;
  }

  Expr terminal_named(const LarkNode& name) {
    const auto known = terminals_.find(name.text);
    if (known != terminals_.end()) return known->second;
    const auto found = grammar_.definitions.find(name.text);
    if (found == grammar_.definitions.end()) return terminals_[name.text] = common(name);
    if (!open_.insert(name.text).second) return refuse(name.line, "the terminal " + name.text + " names itself");
    if (open_.size() > kMaxDepth) return refuse(name.line, "terminals that name each other are nested too deep");
    const LarkDefinition& definition = found->second;
    if (definition.ends_by_itself())
      return refuse(definition.line, "attributes are supported for rules only, not for terminals");
    Expr all = terminal(definition.body);
    if (all->size > kMaxExpressions) return refuse(definition.line, "the terminal is too large");
    open_.erase(name.text);
    return terminals_[name.text] = std::move(all);
  }

  Expr common(const LarkNode& name) {
    const auto imported = grammar_.imports.find(name.text);
    const std::string known = imported == grammar_.imports.end() ? "" : imported->second;
    const auto found = std::ranges::find(kCommon, known, [](const auto& one) { return one.first; });
    if (found != kCommon.end()) return regex_expression(found->second).value_or(nothing());
    if (!known.empty()) return refuse(name.line, "common." + known.substr(0, 100) + " is not known");
    return refuse(name.line, "the grammar has no terminal " + name.text.substr(0, 100));
  }

  Expr text(const LarkNode& node) {
    if (node.flags.empty()) return literal(node.text);
    std::vector<Expr> parts;
    for (const char c : node.text) {
      const bool is_letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
      constexpr char kCase = 'a' - 'A';
      parts.push_back(is_letter ? one_of(std::string{c, static_cast<char>(c ^ kCase)}) : literal(std::string(1, c)));
    }
    return parts.empty() ? empty() : sequence(std::move(parts));
  }

  Expr regex(const LarkNode& node) {
    RegexFlags flags;
    for (const char flag : node.flags) {
      flags.ignores_case |= flag == 'i';
      flags.dot_is_any |= flag == 's';
      if (flag == 'm' || flag == 'x' || flag == 'l') {
        return refuse(node.line, std::string("the flag ") + flag + " of a regex is not supported");
      }
    }
    const auto parsed = parse_regex(node.text, CharacterClasses::certain, flags);
    if (!parsed) return refuse(node.line, parsed.error().message);
    const auto alternatives = without_anchors(*parsed);
    if (!alternatives) {
      return refuse(node.line, "a regex that looks ahead beyond the end of its terminal is not supported");
    }
    std::vector<Expr> all;
    for (const Unanchored& one : *alternatives) all.push_back(one.expression);
    return choice(std::move(all));
  }

  Expr both(const LarkNode& node) {
    std::optional<TextLanguage> all = TextLanguage::of_any_text();
    for (const LarkNode& part : node.parts) {
      const auto one = TextLanguage::from_expression(terminal(part), Matching::whole, budget_);
      all = all && one ? all->intersection(*one, budget_) : std::nullopt;
    }
    return all ? all->expression(nullptr) : refuse(node.line, "the terminals that & joins are too large");
  }

  Expr json(const LarkNode& node) {
    const auto document = parse_bounded(node.text);
    if (!document) return refuse(node.line, "%json: " + document.error());
    JsonRules json(rules_, JsonStyle::json, spacing_of(*document));
    auto made = schema_expression(node.text, rules_, json);
    return made ? std::move(*made) : refuse(node.line, "%json: " + made.error().message);
  }

  const LarkGrammar& grammar_;
  Rules rules_;
  Expr ignored_;
  std::map<std::string, RuleId> rule_ids_;
  std::vector<std::pair<RuleId, const LarkDefinition*>> pending_;
  std::map<std::string, Expr> terminals_;
  std::map<std::string, RuleId> terminal_rules_;
  std::set<std::string> open_;  ///< terminals that are being converted
  LanguageBudget budget_;
  std::optional<Error> error_;
};

#undef PAGODA_LARK_INT
#undef PAGODA_LARK_DECIMAL
#undef PAGODA_LARK_EXPONENT
#undef PAGODA_LARK_FLOAT
#undef PAGODA_LARK_NUMBER

}  // namespace

Result<Rules> lark_rules(std::string_view grammar) {
  const auto parsed = parse_lark(grammar);
  if (!parsed) return fail(parsed.error());
  return LarkConverter(*parsed).convert();
}

}  // namespace pagoda::grammar
