#pragma once

#include <ctime>
#include <utility>
#include <vector>

#include "io/jinja/ast.hpp"
#include "io/jinja/callable.hpp"

namespace pagoda::jinja {

/// Variables of a block. `parent` is the scope of the block around it; the template's own variables are in the
/// Interpreter.
struct Scope : Object {
  Scope* parent = nullptr;
  std::vector<std::pair<Symbol, Value>> variables;
  bool is_captured = false;  ///< whether a macro, which may run after the block, has captured the scope

  void set(Symbol symbol, const Value& value);
};

/// A macro, or the `caller` of a call block.
struct Macro : Callable {
  Macro(const Stmt& s, Scope* c) : definition(s), closure(c) {}
  Value call(Interpreter& interpreter, const Arguments& arguments) override;
  std::string describe() const override { return "<Macro '" + std::string(definition.text.view()) + "'>"; }
  const Value* attribute(std::string_view name) override;

  const Stmt& definition;
  Scope* closure;
  Value name;
};

/// One render of one template. Not thread-safe.
class Interpreter {
 public:
  Interpreter(const Ast& ast, Heap& heap, const std::tm& now);

  /// Sets a variable of the template's outermost scope.
  void define(Symbol symbol, const Value& value) { root_[symbol] = value; }
  Text run();
  /// Returns the line that runs, or that failed.
  int line() const { return line_; }

  Heap& heap() { return heap_; }
  const std::tm& now() const { return now_; }
  Value call(const Value& callee, const Arguments& arguments);
  Value call_macro(const Macro& macro, const Arguments& arguments);
  /// Runs the body of a recursive loop on other items.
  Text run_recursive_loop(const Stmt& loop, const Value& items, Scope* around, int depth);

 private:
  enum class Flow : std::uint8_t { next, leave_loop, next_item };

  /// Counts nested evaluation during its lifetime, and stops it before the stack overflows.
  class Depth;
  /// Changes the current scope during its lifetime.
  class ScopeChange;

  // Expressions, in interpreter.cpp.
  Value evaluate(const Expr& expression);
  Value evaluate_name(const Expr& expression) const;
  Value evaluate_dict(const Expr& expression);
  Value evaluate_call(const Expr& expression, const Value* caller = nullptr);
  Value evaluate_filter(const Expr& expression);
  Value evaluate_test(const Expr& expression);
  Value evaluate_compare(const Expr& expression);
  Value evaluate_concatenation(const Expr& expression);
  Value evaluate_slice(const Expr& expression);
  Value evaluate_conditional(const Expr& expression);
  std::vector<Value> evaluate_children(const Expr& expression);
  Arguments evaluate_arguments(const CallArguments* arguments);

  // Statements, in statements.cpp.
  Flow execute(const Body& body);
  Flow execute(const Stmt& statement);
  Flow execute_loop(const Stmt& statement, const Value& items, Scope* around, int depth);
  Flow execute_with(const Stmt& statement);
  Flow execute_set_block(const Stmt& statement);
  Flow execute_filter_block(const Stmt& statement);
  void execute_call_block(const Stmt& statement);
  Value make_macro(const Stmt& statement);
  void print(const Value& value);
  void assign(const Target& target, const Value& value);
  void assign_name(Symbol symbol, const Value& value);
  Value lookup(Symbol symbol) const;
  Scope* make_scope(Scope* parent);
  /// Executes the body and captures its output.
  Flow capture(const Body& body, Text& captured);

  const Ast& ast_;
  Heap& heap_;
  std::tm now_;
  std::vector<Value> root_;
  Scope* scope_ = nullptr;  // null for the outermost scope
  TextBuilder* out_ = nullptr;
  Value captured_;  // input of a block's filters
  int depth_ = 0;
  int line_ = 1;
};

class Interpreter::Depth {
 public:
  explicit Depth(Interpreter& interpreter) : interpreter_(interpreter) {
    if (interpreter_.depth_ >= interpreter_.heap_.limits().max_depth) throw Failure("the template nests too deeply");
    ++interpreter_.depth_;
  }
  ~Depth() { --interpreter_.depth_; }
  Depth(const Depth&) = delete;
  Depth& operator=(const Depth&) = delete;

 private:
  Interpreter& interpreter_;
};

class Interpreter::ScopeChange {
 public:
  ScopeChange(Interpreter& interpreter, Scope* scope)
      : interpreter_(interpreter), before_(std::exchange(interpreter.scope_, scope)) {}
  ~ScopeChange() { interpreter_.scope_ = before_; }
  ScopeChange(const ScopeChange&) = delete;
  ScopeChange& operator=(const ScopeChange&) = delete;

 private:
  Interpreter& interpreter_;
  Scope* before_;
};

}  // namespace pagoda::jinja
