#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "io/jinja/heap.hpp"
#include "io/jinja/numbers.hpp"
#include "io/jinja/value.hpp"

/// A parsed template: expressions and statements. Nothing here changes after parsing.
namespace pagoda::jinja {

class Interpreter;
struct Arguments;
struct Expr;
struct Stmt;
using ExprPtr = std::unique_ptr<Expr>;
using Body = std::vector<Stmt>;
/// Index of a variable's name in Ast::symbols.
using Symbol = std::uint32_t;
/// Names that every template has.
inline constexpr Symbol kLoop = 0;
inline constexpr Symbol kVarargs = 1;
inline constexpr Symbol kKwargs = 2;
inline constexpr Symbol kCaller = 3;

using Filter = Value (*)(Interpreter&, const Value& input, const Arguments&);
using Test = bool (*)(Interpreter&, const Value& input, const Arguments&);

enum class ExprKind : std::uint8_t {
  constant,     // value
  name,         // symbol; value: its text
  list,         // children
  tuple,        // children
  dict,         // children: key, value, key, value ...
  attribute,    // children: object; value: name
  subscript,    // children: object, key
  slice,        // children: object, start, stop, step; each of the last three may be null
  call,         // children: callee; arguments
  filter,       // children: input (null: the text captured by the surrounding block); arguments; value: name; filter
  test,         // children: input; arguments; value: name; test
  logical_not,  // children: operand
  negative,     // children: operand
  positive,     // children: operand
  arithmetic,   // children: left, right; op
  compare,      // children: first, second, third ...; comparisons: those between them
  concatenate,  // children
  logical_and,  // children: left, right
  logical_or,   // children: left, right
  conditional,  // children: condition, then, otherwise (may be null)
};

enum class Comparison : std::uint8_t { equal, not_equal, less, less_or_equal, greater, greater_or_equal, in, not_in };

struct CallArguments {
  std::vector<ExprPtr> positional;
  std::vector<std::pair<Text, ExprPtr>> named;
  ExprPtr more_positional;  ///< *args
  ExprPtr more_named;       ///< **kwargs
};

struct Expr {
  ExprKind kind = ExprKind::constant;
  Operator op = Operator::add;
  int line = 0;
  int height = 1;  ///< height of this tree
  Symbol symbol = 0;
  Value value = {};
  std::vector<ExprPtr> children = {};
  std::vector<Comparison> comparisons = {};
  std::unique_ptr<CallArguments> arguments = {};
  Filter filter = nullptr;  ///< null for an unknown name, which fails when it is evaluated
  Test test = nullptr;
};

/// Target of an assignment.
struct Target {
  enum class Kind : std::uint8_t { name, attribute, tuple };
  Kind kind = Kind::name;
  int line = 0;
  Symbol symbol = 0;               ///< symbol of the name, or of the namespace
  Text name = kEmptyText;          ///< the name, or the attribute's name
  std::vector<Target> parts = {};  ///< targets of a tuple
};

/// Parameters of a macro or a call block; the last ones have defaults.
struct Signature {
  std::vector<Symbol> symbols;
  std::vector<Text> names;
  std::vector<ExprPtr> defaults;
};

enum class StmtKind : std::uint8_t {
  data,          // text
  print,         // expression
  branch,        // an if: expression, body, otherwise (an elif is an if in there)
  loop,          // target, expression: the items, condition (may be null), body, otherwise, is_recursive
  set,           // target, expression
  set_block,     // target, body, expression: filters of the captured text (may be null)
  macro,         // symbol, text: name, signature, body
  call_block,    // expression: the call, signature, body
  filter_block,  // expression: the filters, body
  with,          // assignments, body
  scope,         // body with its own variables
  loop_break,
  loop_continue,
};

struct Stmt {
  StmtKind kind = StmtKind::data;
  int line = 0;
  bool is_recursive = false;
  bool uses_varargs = false;  ///< for a macro: whether its body uses this name
  bool uses_kwargs = false;
  bool uses_caller = false;
  Symbol symbol = 0;
  Text text = kEmptyText;
  ExprPtr expression = {};
  ExprPtr condition = {};
  Target target = {};
  Signature signature = {};
  std::vector<std::pair<Target, ExprPtr>> assignments = {};
  Body body = {};
  Body otherwise = {};
};

struct Ast {
  explicit Ast(const Limits& limits) : heap(limits) {}

  Heap heap;  ///< owns the constants
  std::vector<std::string> symbols;
  std::vector<Text> symbol_texts;
  Body body;
};

}  // namespace pagoda::jinja
