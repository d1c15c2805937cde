#include "io/jinja/parser.hpp"

#include <algorithm>
#include <array>

#include "engine/text/unicode.hpp"
#include "io/jinja/expression_parser.hpp"

namespace pagoda::jinja {
namespace {

// Parses statements, {% ... %}, and the text between them.
class Parser : ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  void run(Body& body) {
    parse_body(body, {});
    if (!current().is(TokenKind::end, "")) fail("unexpected end of the template");
  }

 private:
  // Reads up to a block that starts with one of `ends`, consumes its name and returns it. Without `ends`, reads up to
  // the template's end.
  std::string parse_body(Body& body, const std::vector<std::string_view>& ends) {
    const Nesting nesting(*this);
    while (current().kind != TokenKind::end) {
      if (current().kind == TokenKind::data) {
        Stmt& data = add(body, StmtKind::data);
        data.text = constant_text(next().text);
      } else if (current().kind == TokenKind::variable_begin) {
        next();
        Stmt& print = add(body, StmtKind::print);
        print.expression = parse_tuple({});
        expect(TokenKind::variable_end);
      } else {
        next();  // block_begin
        if (current().kind != TokenKind::name) fail("a tag's name is expected");
        if (std::find(ends.begin(), ends.end(), current().text) != ends.end()) return next().text;
        parse_statement(body);
        expect(TokenKind::block_end);
      }
    }
    if (!ends.empty()) fail("the template ends where '" + std::string(ends.back()) + "' is expected");
    return {};
  }

  // Reads the body of a statement whose opening block is still open.
  std::string parse_block(Body& body, const std::vector<std::string_view>& ends) {
    skip_if(TokenKind::op, ":");
    expect(TokenKind::block_end);
    return parse_body(body, ends);
  }

  Stmt& add(Body& body, StmtKind kind) const {
    Stmt& statement = body.emplace_back();
    statement.kind = kind;
    statement.line = current().line;
    return statement;
  }

  void parse_statement(Body& body) {
    using Parse = void (Parser::*)(Stmt&);
    struct Tag {
      std::string_view name;
      StmtKind kind;
      Parse parse;
    };
    static constexpr std::array<Tag, 13> kTags = {{{"for", StmtKind::loop, &Parser::parse_for},
                                                   {"if", StmtKind::branch, &Parser::parse_if},
                                                   {"set", StmtKind::set, &Parser::parse_set},
                                                   {"macro", StmtKind::macro, &Parser::parse_macro},
                                                   {"call", StmtKind::call_block, &Parser::parse_call_block},
                                                   {"filter", StmtKind::filter_block, &Parser::parse_filter_block},
                                                   {"with", StmtKind::with, &Parser::parse_with},
                                                   {"generation", StmtKind::scope, &Parser::parse_generation},
                                                   {"break", StmtKind::loop_break, &Parser::parse_loop_control},
                                                   {"continue", StmtKind::loop_continue, &Parser::parse_loop_control},
                                                   {"print", StmtKind::print, &Parser::parse_print},
                                                   {"autoescape", StmtKind::scope, &Parser::refuse},
                                                   {"block", StmtKind::scope, &Parser::refuse}}};
    static constexpr std::array<std::string_view, 4> kOtherFiles = {"include", "import", "extends", "from"};
    const std::string& name = current().text;
    if (std::find(kOtherFiles.begin(), kOtherFiles.end(), name) != kOtherFiles.end()) {
      fail("'" + name + "' needs another template; a chat template cannot use other templates");
    }
    for (const Tag& tag : kTags) {
      if (tag.name != name) continue;
      Stmt statement;
      statement.kind = tag.kind;
      statement.line = current().line;
      if (tag.parse != &Parser::refuse) next();
      (this->*tag.parse)(statement);
      body.push_back(std::move(statement));
      return;
    }
    fail("unknown tag '" + name + "'");
  }

  void refuse(Stmt&) { fail("'" + current().text + "' is not supported in a chat template"); }

  void parse_for(Stmt& loop) {
    loop.target = parse_target(false);
    expect(TokenKind::name, "in");
    loop.expression = parse_tuple({.with_conditional = false, .end_name = "recursive"});
    if (skip_if(TokenKind::name, "if")) loop.condition = parse_expression();
    loop.is_recursive = skip_if(TokenKind::name, "recursive");
    ++num_loops_;
    const std::string end = parse_block(loop.body, {"else", "endfor"});
    --num_loops_;
    if (end == "else") parse_block(loop.otherwise, {"endfor"});
  }

  void parse_if(Stmt& branch) {
    // Each elif becomes an if in the `otherwise` of the one before. This is a loop, so that many elifs need no deep
    // recursion.
    Stmt* innermost = &branch;
    int num_elifs = 0;
    while (true) {
      innermost->expression = parse_tuple({.with_conditional = false});
      const std::string end = parse_block(innermost->body, {"elif", "else", "endif"});
      if (end == "else") parse_block(innermost->otherwise, {"endif"});
      if (end != "elif") return;
      if (++num_elifs > limits().max_nesting) fail("an if has too many elif");
      Stmt& next_if = add(innermost->otherwise, StmtKind::branch);
      innermost = &next_if;
    }
  }

  void parse_set(Stmt& set) {
    set.target = parse_target(true);
    if (skip_if(TokenKind::op, "=")) {
      set.expression = parse_tuple({});
      return;
    }
    set.kind = StmtKind::set_block;
    set.expression = parse_filters(nullptr);
    parse_block(set.body, {"endset"});
  }

  void parse_macro(Stmt& macro) {
    const Target name = parse_name_target();
    macro.symbol = name.symbol;
    macro.text = name.name;
    macro.signature = parse_signature();
    parse_callable_body(macro, "endmacro");
  }

  void parse_call_block(Stmt& block) {
    if (current().is(TokenKind::op, "(")) block.signature = parse_signature();
    block.expression = parse_expression();
    if (block.expression->kind != ExprKind::call) fail("a call is expected");
    block.text = constant_text("caller");
    parse_callable_body(block, "endcall");
  }

  void parse_callable_body(Stmt& callable, std::string_view end) {
    const std::array<int, 3> before = special_uses();
    const int loops = std::exchange(num_loops_, 0);
    parse_block(callable.body, {end});
    num_loops_ = loops;
    const std::array<int, 3> after = special_uses();
    callable.uses_varargs = after[0] > before[0];
    callable.uses_kwargs = after[1] > before[1];
    callable.uses_caller = after[2] > before[2];
  }

  Signature parse_signature() {
    Signature signature;
    expect(TokenKind::op, "(");
    while (!current().is(TokenKind::op, ")")) {
      if (!signature.symbols.empty()) expect(TokenKind::op, ",");
      const Target name = parse_name_target();
      signature.symbols.push_back(name.symbol);
      signature.names.push_back(name.name);
      if (skip_if(TokenKind::op, "=")) {
        signature.defaults.push_back(parse_expression());
      } else if (!signature.defaults.empty()) {
        fail("non-default argument follows default argument");
      }
    }
    next();
    return signature;
  }

  void parse_filter_block(Stmt& block) {
    block.expression = parse_first_filter();
    parse_block(block.body, {"endfilter"});
  }

  void parse_with(Stmt& with) {
    while (current().kind != TokenKind::block_end && !current().is(TokenKind::op, ":")) {
      if (!with.assignments.empty()) expect(TokenKind::op, ",");
      Target target = parse_target(false);
      expect(TokenKind::op, "=");
      with.assignments.emplace_back(std::move(target), parse_expression());
    }
    parse_block(with.body, {"endwith"});
  }

  void parse_generation(Stmt& block) { parse_block(block.body, {"endgeneration"}); }

  void parse_loop_control(Stmt&) {
    if (num_loops_ == 0) fail("break and continue are allowed only in a loop");
  }

  void parse_print(Stmt& print) { print.expression = parse_tuple({}); }

  int num_loops_ = 0;  // number of loops around the current statement
};

}  // namespace

std::unique_ptr<Ast> parse(std::string_view source, const Limits& limits) {
  if (source.size() > limits.max_source_bytes) throw Failure("the template is too long");
  if (text::find_invalid_utf8(source) != std::string_view::npos) throw Failure("the template is not UTF-8");
  auto ast = std::make_unique<Ast>(limits);
  Parser(tokenize(source), *ast, limits).run(ast->body);
  return ast;
}

}  // namespace pagoda::jinja
