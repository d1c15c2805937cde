#pragma once

#include <array>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "io/jinja/ast.hpp"
#include "io/jinja/lexer.hpp"

namespace pagoda::jinja {

/// Parses expressions and assignment targets from tokens. Throws Failure.
class ExpressionParser {
 public:
  ExpressionParser(std::vector<Token> tokens, Ast& ast, const Limits& limits);

 protected:
  /// Counts the nesting of brackets and blocks during its lifetime.
  class Nesting {
   public:
    explicit Nesting(ExpressionParser& parser);
    ~Nesting() { --parser_.nesting_; }
    Nesting(const Nesting&) = delete;
    Nesting& operator=(const Nesting&) = delete;

   private:
    ExpressionParser& parser_;
  };

  struct TupleRules {
    bool with_conditional = true;
    std::string_view end_name = {};  ///< a name that ends the tuple, besides the ends of tags and brackets
    bool may_be_empty = false;
  };

  const Token& current() const { return tokens_[at_]; }
  const Token& look_ahead() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  const Token& next();
  bool skip_if(TokenKind kind, std::string_view text);
  void expect(TokenKind kind, std::string_view text = {});
  [[noreturn]] void fail(const std::string& message) const;
  const Limits& limits() const { return limits_; }

  ExprPtr parse_expression(bool with_conditional = true);
  /// Parses an expression, or several separated by commas.
  ExprPtr parse_tuple(const TupleRules& rules);
  /// Parses filters "| name(...) | name(...)" on `input`, which may be null. Returns `input` when there is no filter.
  ExprPtr parse_filters(ExprPtr input);
  /// Parses the filters of a filter block, whose first filter has no `|`.
  ExprPtr parse_first_filter();
  Target parse_target(bool with_namespace);
  Target parse_name_target();

  Text constant_text(std::string_view text);
  /// Returns how often varargs, kwargs and caller were used so far.
  const std::array<int, 3>& special_uses() const { return special_uses_; }

 private:
  ExprPtr make(ExprKind kind, int line);
  ExprPtr add_child(ExprPtr parent, ExprPtr child);
  ExprPtr finish(ExprPtr expression);
  Symbol symbol(std::string_view name);

  ExprPtr parse_conditional();
  ExprPtr parse_or();
  ExprPtr parse_and();
  ExprPtr parse_not();
  ExprPtr parse_compare();
  bool parse_comparison(Comparison& comparison);
  ExprPtr parse_sum();
  ExprPtr parse_concatenation();
  ExprPtr parse_product();
  ExprPtr parse_power();
  ExprPtr parse_unary(bool with_filters = true);
  ExprPtr parse_primary();
  ExprPtr parse_name();
  ExprPtr parse_list();
  ExprPtr parse_dict();
  ExprPtr parse_postfix(ExprPtr expression);
  ExprPtr parse_filters_and_tests(ExprPtr expression);
  ExprPtr parse_subscript(ExprPtr object);
  ExprPtr parse_key(ExprPtr object);
  ExprPtr parse_call(ExprPtr callee);
  ExprPtr parse_filter(ExprPtr input);
  ExprPtr parse_test(ExprPtr input);
  std::unique_ptr<CallArguments> parse_arguments();
  Target parse_single_target(bool with_namespace);

  std::vector<Token> tokens_;
  std::size_t at_ = 0;
  Ast& ast_;
  const Limits& limits_;
  int nesting_ = 0;
  std::unordered_map<std::string, Symbol> symbols_;
  std::array<int, 3> special_uses_{};
};

}  // namespace pagoda::jinja
