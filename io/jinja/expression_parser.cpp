#include "io/jinja/expression_parser.hpp"

#include <algorithm>

namespace pagoda::jinja {

ExpressionParser::ExpressionParser(std::vector<Token> tokens, Ast& ast, const Limits& limits)
    : tokens_(std::move(tokens)), ast_(ast), limits_(limits) {
  for (const std::string_view name : {"loop", "varargs", "kwargs", "caller"}) symbol(name);
}

ExpressionParser::Nesting::Nesting(ExpressionParser& parser) : parser_(parser) {
  if (++parser_.nesting_ > parser_.limits_.max_nesting) {
    --parser_.nesting_;
    parser_.fail("brackets or blocks are nested too deeply");
  }
}

const Token& ExpressionParser::next() {
  const Token& token = tokens_[at_];
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool ExpressionParser::skip_if(TokenKind kind, std::string_view text) {
  if (!current().is(kind, text)) return false;
  next();
  return true;
}

void ExpressionParser::expect(TokenKind kind, std::string_view text) {
  const bool is_there = current().kind == kind && (text.empty() || current().text == text);
  if (!is_there) {
    std::string wanted = "'" + std::string(text) + "'";
    if (text.empty()) {
      wanted = kind == TokenKind::block_end ? "'%}'" : (kind == TokenKind::variable_end ? "'}}'" : "a name");
    }
    fail("expected " + wanted + (current().text.empty() ? std::string() : ", got '" + current().text + "'"));
  }
  next();
}

void ExpressionParser::fail(const std::string& message) const {
  throw Failure(message, false, current().line);
}

Text ExpressionParser::constant_text(std::string_view text) {
  const Text made = make_text(ast_.heap, text);
  if (made.buffer != nullptr) made.buffer->frozen = true;
  return made;
}

Symbol ExpressionParser::symbol(std::string_view name) {
  const auto [entry, is_new] = symbols_.try_emplace(std::string(name), static_cast<Symbol>(ast_.symbols.size()));
  if (is_new) {
    ast_.symbols.emplace_back(name);
    ast_.symbol_texts.push_back(constant_text(name));
  }
  static constexpr std::array<std::string_view, 3> kSpecial = {"varargs", "kwargs", "caller"};
  for (std::size_t i = 0; i < kSpecial.size(); ++i) special_uses_[i] += name == kSpecial[i] ? 1 : 0;
  return entry->second;
}

ExprPtr ExpressionParser::make(ExprKind kind, int line) {
  auto expression = std::make_unique<Expr>();
  expression->kind = kind;
  expression->line = line;
  return expression;
}

ExprPtr ExpressionParser::add_child(ExprPtr parent, ExprPtr child) {
  parent->children.push_back(std::move(child));
  return finish(std::move(parent));
}

// Sets the tree's height, after its children or arguments are set.
ExprPtr ExpressionParser::finish(ExprPtr expression) {
  const auto cover = [&](const ExprPtr& child) {
    if (child) expression->height = std::max(expression->height, child->height + 1);
  };
  if (!expression->children.empty()) {
    cover(expression->children.front());
    cover(expression->children.back());
  }
  if (expression->arguments) {
    for (const ExprPtr& argument : expression->arguments->positional) cover(argument);
    for (const auto& [name, argument] : expression->arguments->named) cover(argument);
    cover(expression->arguments->more_positional);
    cover(expression->arguments->more_named);
  }
  if (expression->height > limits_.max_tree_height) fail("an expression is nested too deeply");
  return expression;
}

ExprPtr ExpressionParser::parse_expression(bool with_conditional) {
  const Nesting nesting(*this);
  return with_conditional ? parse_conditional() : parse_or();
}

ExprPtr ExpressionParser::parse_conditional() {
  int line = current().line;
  ExprPtr expression = parse_or();
  while (skip_if(TokenKind::name, "if")) {
    ExprPtr choice = add_child(make(ExprKind::conditional, line), parse_or());
    choice = add_child(std::move(choice), std::move(expression));
    if (skip_if(TokenKind::name, "else")) {
      const Nesting nesting(*this);
      choice = add_child(std::move(choice), parse_conditional());
    } else {
      choice->children.push_back(nullptr);
    }
    expression = std::move(choice);
    line = current().line;
  }
  return expression;
}

ExprPtr ExpressionParser::parse_or() {
  ExprPtr left = parse_and();
  for (int line = current().line; skip_if(TokenKind::name, "or"); line = current().line) {
    left = add_child(add_child(make(ExprKind::logical_or, line), std::move(left)), parse_and());
  }
  return left;
}

ExprPtr ExpressionParser::parse_and() {
  ExprPtr left = parse_not();
  for (int line = current().line; skip_if(TokenKind::name, "and"); line = current().line) {
    left = add_child(add_child(make(ExprKind::logical_and, line), std::move(left)), parse_not());
  }
  return left;
}

ExprPtr ExpressionParser::parse_not() {
  const int line = current().line;
  if (!skip_if(TokenKind::name, "not")) return parse_compare();
  const Nesting nesting(*this);
  return add_child(make(ExprKind::logical_not, line), parse_not());
}

ExprPtr ExpressionParser::parse_compare() {
  const int line = current().line;
  ExprPtr first = parse_sum();
  ExprPtr chain;
  Comparison comparison{};
  while (parse_comparison(comparison)) {
    if (!chain) chain = add_child(make(ExprKind::compare, line), std::move(first));
    chain->comparisons.push_back(comparison);
    chain = add_child(std::move(chain), parse_sum());
  }
  return chain ? std::move(chain) : std::move(first);
}

bool ExpressionParser::parse_comparison(Comparison& comparison) {
  static constexpr std::array<std::pair<std::string_view, Comparison>, 6> kSigns = {
      {{"==", Comparison::equal},
       {"!=", Comparison::not_equal},
       {"<", Comparison::less},
       {"<=", Comparison::less_or_equal},
       {">", Comparison::greater},
       {">=", Comparison::greater_or_equal}}};
  if (current().kind == TokenKind::op) {
    for (const auto& [sign, meaning] : kSigns) {
      if (current().text != sign) continue;
      comparison = meaning;
      next();
      return true;
    }
    return false;
  }
  if (skip_if(TokenKind::name, "in")) {
    comparison = Comparison::in;
    return true;
  }
  if (!current().is(TokenKind::name, "not") || !look_ahead().is(TokenKind::name, "in")) return false;
  next();
  next();
  comparison = Comparison::not_in;
  return true;
}

ExprPtr ExpressionParser::parse_sum() {
  ExprPtr left = parse_concatenation();
  while (current().is(TokenKind::op, "+") || current().is(TokenKind::op, "-")) {
    ExprPtr sum = make(ExprKind::arithmetic, current().line);
    sum->op = next().text == "+" ? Operator::add : Operator::subtract;
    left = add_child(add_child(std::move(sum), std::move(left)), parse_concatenation());
  }
  return left;
}

ExprPtr ExpressionParser::parse_concatenation() {
  const int line = current().line;
  ExprPtr first = parse_product();
  if (!current().is(TokenKind::op, "~")) return first;
  ExprPtr all = add_child(make(ExprKind::concatenate, line), std::move(first));
  while (skip_if(TokenKind::op, "~")) all = add_child(std::move(all), parse_product());
  return all;
}

ExprPtr ExpressionParser::parse_product() {
  static constexpr std::array<std::pair<std::string_view, Operator>, 4> kSigns = {
      {{"*", Operator::multiply}, {"/", Operator::divide}, {"//", Operator::floor_divide}, {"%", Operator::remainder}}};
  ExprPtr left = parse_power();
  while (current().kind == TokenKind::op) {
    const auto* const sign =
        std::find_if(kSigns.begin(), kSigns.end(), [&](const auto& entry) { return entry.first == current().text; });
    if (sign == kSigns.end()) break;
    ExprPtr product = make(ExprKind::arithmetic, current().line);
    product->op = sign->second;
    next();
    left = add_child(add_child(std::move(product), std::move(left)), parse_power());
  }
  return left;
}

ExprPtr ExpressionParser::parse_power() {
  ExprPtr left = parse_unary();
  while (current().is(TokenKind::op, "**")) {
    ExprPtr power = make(ExprKind::arithmetic, next().line);
    power->op = Operator::power;
    left = add_child(add_child(std::move(power), std::move(left)), parse_unary());
  }
  return left;
}

ExprPtr ExpressionParser::parse_unary(bool with_filters) {
  ExprPtr expression;
  const int line = current().line;
  const bool is_negative = current().is(TokenKind::op, "-");
  if (is_negative || current().is(TokenKind::op, "+")) {
    const Nesting nesting(*this);
    next();
    expression = add_child(make(is_negative ? ExprKind::negative : ExprKind::positive, line), parse_unary(false));
  } else {
    expression = parse_primary();
  }
  expression = parse_postfix(std::move(expression));
  return with_filters ? parse_filters_and_tests(std::move(expression)) : std::move(expression);
}

ExprPtr ExpressionParser::parse_tuple(const TupleRules& rules) {
  const int line = current().line;
  const auto is_end = [&] {
    return current().kind == TokenKind::variable_end || current().kind == TokenKind::block_end ||
           current().is(TokenKind::op, ")") ||
           (!rules.end_name.empty() && current().is(TokenKind::name, rules.end_name));
  };
  ExprPtr tuple = make(ExprKind::tuple, line);
  bool has_comma = false;
  while (!is_end()) {
    tuple = add_child(std::move(tuple), parse_expression(rules.with_conditional));
    if (!skip_if(TokenKind::op, ",")) break;
    has_comma = true;
  }
  if (has_comma) return tuple;
  if (!tuple->children.empty()) return std::move(tuple->children.front());
  if (!rules.may_be_empty) fail("an expression is expected");
  return tuple;
}

Target ExpressionParser::parse_name_target() {
  const Token& token = current();
  expect(TokenKind::name);
  static constexpr std::array<std::string_view, 6> kConstants = {"true", "false", "none", "True", "False", "None"};
  if (std::find(kConstants.begin(), kConstants.end(), token.text) != kConstants.end()) {
    fail("can't assign to '" + token.text + "'");
  }
  Target target;
  target.line = token.line;
  target.symbol = symbol(token.text);
  target.name = ast_.symbol_texts[target.symbol];
  return target;
}

Target ExpressionParser::parse_single_target(bool with_namespace) {
  if (skip_if(TokenKind::op, "(")) {
    const Nesting nesting(*this);
    Target inner = parse_target(false);
    expect(TokenKind::op, ")");
    return inner;
  }
  Target target = parse_name_target();
  if (!with_namespace || !skip_if(TokenKind::op, ".")) return target;
  target.kind = Target::Kind::attribute;
  target.name = constant_text(current().text);
  expect(TokenKind::name);
  return target;
}

Target ExpressionParser::parse_target(bool with_namespace) {
  const int line = current().line;
  Target first = parse_single_target(with_namespace);
  if (!current().is(TokenKind::op, ",")) return first;
  Target tuple;
  tuple.kind = Target::Kind::tuple;
  tuple.line = line;
  tuple.parts.push_back(std::move(first));
  while (skip_if(TokenKind::op, ",")) {
    if (current().kind != TokenKind::name && !current().is(TokenKind::op, "(")) break;
    if (current().is(TokenKind::name, "in")) break;
    tuple.parts.push_back(parse_single_target(with_namespace));
  }
  return tuple;
}

}  // namespace pagoda::jinja
