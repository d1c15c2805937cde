// Parses the parts of expressions that bind tightest: names and literals, and the operators after them.

#include <algorithm>

#include "io/jinja/expression_parser.hpp"
#include "io/jinja/filters.hpp"
#include "io/jinja/tests.hpp"

namespace pagoda::jinja {

ExprPtr ExpressionParser::parse_primary() {
  const Token& token = current();
  ExprPtr constant = make(ExprKind::constant, token.line);
  switch (token.kind) {
    case TokenKind::name:
      return parse_name();
    case TokenKind::string: {
      std::string text;
      while (current().kind == TokenKind::string) text += next().text;
      constant->value = constant_text(text);
      return constant;
    }
    case TokenKind::integer:
      constant->value = Value::of(next().integer);
      return constant;
    case TokenKind::real:
      constant->value = Value::of(next().real);
      return constant;
    default:
      break;
  }
  if (skip_if(TokenKind::op, "(")) {
    ExprPtr inner = parse_tuple({.may_be_empty = true});
    expect(TokenKind::op, ")");
    return inner;
  }
  if (token.is(TokenKind::op, "[")) return parse_list();
  if (token.is(TokenKind::op, "{")) return parse_dict();
  if (token.text.empty()) fail("an expression is expected");
  fail("unexpected '" + token.text + "'");
}

ExprPtr ExpressionParser::parse_name() {
  const Token& token = next();
  ExprPtr constant = make(ExprKind::constant, token.line);
  if (token.text == "true" || token.text == "True") {
    constant->value = Value::of(true);
  } else if (token.text == "false" || token.text == "False") {
    constant->value = Value::of(false);
  } else if (token.text != "none" && token.text != "None") {
    constant->kind = ExprKind::name;
    constant->symbol = symbol(token.text);
    constant->value = ast_.symbol_texts[constant->symbol];
  }
  return constant;
}

ExprPtr ExpressionParser::parse_list() {
  ExprPtr list = make(ExprKind::list, next().line);
  while (!current().is(TokenKind::op, "]")) {
    if (!list->children.empty()) expect(TokenKind::op, ",");
    if (current().is(TokenKind::op, "]")) break;
    list = add_child(std::move(list), parse_expression());
  }
  expect(TokenKind::op, "]");
  return list;
}

ExprPtr ExpressionParser::parse_dict() {
  ExprPtr dict = make(ExprKind::dict, next().line);
  while (!current().is(TokenKind::op, "}")) {
    if (!dict->children.empty()) expect(TokenKind::op, ",");
    if (current().is(TokenKind::op, "}")) break;
    dict = add_child(std::move(dict), parse_expression());
    expect(TokenKind::op, ":");
    dict = add_child(std::move(dict), parse_expression());
  }
  expect(TokenKind::op, "}");
  return dict;
}

ExprPtr ExpressionParser::parse_postfix(ExprPtr expression) {
  while (current().kind == TokenKind::op) {
    if (current().text == "." || current().text == "[") {
      expression = parse_subscript(std::move(expression));
    } else if (current().text == "(") {
      expression = parse_call(std::move(expression));
    } else {
      break;
    }
  }
  return expression;
}

ExprPtr ExpressionParser::parse_filters_and_tests(ExprPtr expression) {
  while (true) {
    if (current().is(TokenKind::op, "|")) {
      next();
      expression = parse_filter(std::move(expression));
    } else if (current().is(TokenKind::name, "is")) {
      expression = parse_test(std::move(expression));
    } else if (current().is(TokenKind::op, "(")) {
      expression = parse_call(std::move(expression));
    } else {
      return expression;
    }
  }
}

ExprPtr ExpressionParser::parse_subscript(ExprPtr object) {
  const int line = current().line;
  if (next().text == "[") {
    ExprPtr key = parse_key(std::move(object));
    expect(TokenKind::op, "]");
    return key;
  }
  const Token& name = next();
  if (name.kind == TokenKind::name) {
    ExprPtr attribute = add_child(make(ExprKind::attribute, line), std::move(object));
    attribute->value = constant_text(name.text);
    return attribute;
  }
  if (name.kind != TokenKind::integer) fail("expected name or number");
  ExprPtr key = make(ExprKind::constant, line);
  key->value = Value::of(name.integer);
  return add_child(add_child(make(ExprKind::subscript, line), std::move(object)), std::move(key));
}

// Parses the content of brackets: a key, or start:stop:step.
ExprPtr ExpressionParser::parse_key(ExprPtr object) {
  const int line = current().line;
  ExprPtr start;
  if (current().is(TokenKind::op, "]")) {  // for Jinja this is an empty tuple
    return add_child(add_child(make(ExprKind::subscript, line), std::move(object)), make(ExprKind::tuple, line));
  }
  if (!current().is(TokenKind::op, ":")) start = parse_expression();
  if (current().is(TokenKind::op, ",")) {
    ExprPtr keys = add_child(make(ExprKind::tuple, line), std::move(start));
    while (skip_if(TokenKind::op, ",")) keys = add_child(std::move(keys), parse_expression());
    return add_child(add_child(make(ExprKind::subscript, line), std::move(object)), std::move(keys));
  }
  if (!skip_if(TokenKind::op, ":")) {
    return add_child(add_child(make(ExprKind::subscript, line), std::move(object)), std::move(start));
  }
  ExprPtr slice = add_child(add_child(make(ExprKind::slice, line), std::move(object)), std::move(start));
  const auto parse_part = [&]() -> ExprPtr {
    const bool is_there = !current().is(TokenKind::op, ":") && !current().is(TokenKind::op, "]");
    return is_there ? parse_expression() : nullptr;
  };
  slice = add_child(std::move(slice), parse_part());
  return add_child(std::move(slice), skip_if(TokenKind::op, ":") ? parse_part() : nullptr);
}

std::unique_ptr<CallArguments> ExpressionParser::parse_arguments() {
  auto arguments = std::make_unique<CallArguments>();
  expect(TokenKind::op, "(");
  bool needs_comma = false;
  while (!current().is(TokenKind::op, ")")) {
    if (needs_comma) {
      expect(TokenKind::op, ",");
      if (current().is(TokenKind::op, ")")) break;
    }
    needs_comma = true;
    const bool is_plain = !arguments->more_positional && !arguments->more_named;
    if (current().is(TokenKind::op, "*")) {
      if (!is_plain) fail("invalid syntax for function call expression");
      next();
      arguments->more_positional = parse_expression();
    } else if (current().is(TokenKind::op, "**")) {
      if (arguments->more_named) fail("invalid syntax for function call expression");
      next();
      arguments->more_named = parse_expression();
    } else if (current().kind == TokenKind::name && look_ahead().is(TokenKind::op, "=")) {
      if (arguments->more_named) fail("invalid syntax for function call expression");
      const Text name = constant_text(next().text);
      next();
      arguments->named.emplace_back(name, parse_expression());
    } else {
      if (!is_plain || !arguments->named.empty()) fail("invalid syntax for function call expression");
      arguments->positional.push_back(parse_expression());
    }
  }
  next();
  return arguments;
}

ExprPtr ExpressionParser::parse_call(ExprPtr callee) {
  ExprPtr call = make(ExprKind::call, current().line);
  call->arguments = parse_arguments();
  return add_child(std::move(call), std::move(callee));
}

ExprPtr ExpressionParser::parse_filter(ExprPtr input) {
  ExprPtr filter = make(ExprKind::filter, current().line);
  std::string name = current().text;
  expect(TokenKind::name);
  while (skip_if(TokenKind::op, ".")) {
    name += "." + current().text;
    expect(TokenKind::name);
  }
  filter->value = constant_text(name);
  filter->filter = find_filter(name);
  if (current().is(TokenKind::op, "(")) filter->arguments = parse_arguments();
  return add_child(std::move(filter), std::move(input));
}

ExprPtr ExpressionParser::parse_filters(ExprPtr input) {
  while (skip_if(TokenKind::op, "|")) input = parse_filter(std::move(input));
  return input;
}

ExprPtr ExpressionParser::parse_first_filter() {
  return parse_filters(parse_filter(nullptr));
}

ExprPtr ExpressionParser::parse_test(ExprPtr input) {
  ExprPtr test = make(ExprKind::test, next().line);
  const bool is_negated = skip_if(TokenKind::name, "not");
  std::string name = current().text;
  expect(TokenKind::name);
  while (skip_if(TokenKind::op, ".")) {
    name += "." + current().text;
    expect(TokenKind::name);
  }
  test->value = constant_text(name);
  test->test = find_test(name);
  const Token& token = current();
  const bool is_operand = token.kind == TokenKind::name || token.kind == TokenKind::string ||
                          token.kind == TokenKind::integer || token.kind == TokenKind::real ||
                          token.is(TokenKind::op, "[") || token.is(TokenKind::op, "{");
  if (token.is(TokenKind::op, "(")) {
    test->arguments = parse_arguments();
  } else if (is_operand && token.text != "else" && token.text != "or" && token.text != "and") {
    if (token.is(TokenKind::name, "is")) fail("You cannot chain multiple tests with is");
    test->arguments = std::make_unique<CallArguments>();
    test->arguments->positional.push_back(parse_postfix(parse_primary()));
  }
  test = add_child(std::move(test), std::move(input));
  if (!is_negated) return test;
  const int line = test->line;
  return add_child(make(ExprKind::logical_not, line), std::move(test));
}

}  // namespace pagoda::jinja
