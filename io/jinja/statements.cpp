// The statements of Interpreter.

#include "io/jinja/globals.hpp"
#include "io/jinja/interpreter.hpp"
#include "io/jinja/iterate.hpp"
#include "io/jinja/loop.hpp"
#include "io/jinja/print.hpp"

namespace pagoda::jinja {

void Scope::set(Symbol symbol, const Value& value) {
  for (auto& [name, there] : variables) {
    if (name != symbol) continue;
    there = value;
    return;
  }
  variables.emplace_back(symbol, value);
}

Value Macro::call(Interpreter& interpreter, const Arguments& arguments) {
  return interpreter.call_macro(*this, arguments);
}

const Value* Macro::attribute(std::string_view wanted) {
  if (wanted != "name") return nullptr;
  name = definition.text;
  return &name;
}

Value Interpreter::lookup(Symbol symbol) const {
  for (const Scope* scope = scope_; scope != nullptr; scope = scope->parent) {
    for (const auto& [name, value] : scope->variables) {
      if (name == symbol) return value;
    }
  }
  return root_[symbol];
}

void Interpreter::assign_name(Symbol symbol, const Value& value) {
  if (scope_ == nullptr) {
    root_[symbol] = value;
  } else {
    heap_.take(sizeof(Value));
    scope_->set(symbol, value);
  }
}

void Interpreter::assign(const Target& target, const Value& value) {
  line_ = target.line;
  switch (target.kind) {
    case Target::Kind::name:
      assign_name(target.symbol, value);
      break;
    case Target::Kind::attribute:
      set_namespace_attribute(heap_, lookup(target.symbol), target.name, value);
      break;
    case Target::Kind::tuple: {
      std::size_t count = 0;
      for_each(value, heap_, [&](const Value& item) {
        if (count < target.parts.size()) assign(target.parts[count], item);
        return ++count <= target.parts.size();
      });
      if (count < target.parts.size()) throw Failure("not enough values to unpack");
      if (count > target.parts.size()) throw Failure("too many values to unpack");
      break;
    }
  }
}

Scope* Interpreter::make_scope(Scope* parent) {
  auto* scope = heap_.make<Scope>();
  scope->parent = parent;
  return scope;
}

void Interpreter::print(const Value& value) {
  append_text(*out_, value, heap_);
  if (out_->size() > heap_.limits().max_output_bytes)
    throw Failure("the output of the template exceeds the size limit");
}

Interpreter::Flow Interpreter::capture(const Body& body, Text& captured) {
  TextBuilder out(heap_);
  TextBuilder* const before = std::exchange(out_, &out);
  const Flow flow = execute(body);
  out_ = before;
  captured = out.finish();
  return flow;
}

Interpreter::Flow Interpreter::execute(const Body& body) {
  for (const Stmt& statement : body) {
    if (const Flow flow = execute(statement); flow != Flow::next) return flow;
  }
  return Flow::next;
}

Interpreter::Flow Interpreter::execute(const Stmt& statement) {
  heap_.step();
  line_ = statement.line;
  switch (statement.kind) {
    case StmtKind::data:
      print(statement.text);
      return Flow::next;
    case StmtKind::print:
      print(evaluate(*statement.expression));
      return Flow::next;
    case StmtKind::set:
      assign(statement.target, evaluate(*statement.expression));
      return Flow::next;
    case StmtKind::macro:
      assign_name(statement.symbol, make_macro(statement));
      return Flow::next;
    case StmtKind::loop_break:
      return Flow::leave_loop;
    case StmtKind::loop_continue:
      return Flow::next_item;
    default:
      break;
  }
  const Depth depth(*this);
  switch (statement.kind) {
    case StmtKind::branch:
      return execute(is_true(evaluate(*statement.expression)) ? statement.body : statement.otherwise);
    case StmtKind::loop:
      return execute_loop(statement, evaluate(*statement.expression), scope_, 0);
    case StmtKind::set_block:
      return execute_set_block(statement);
    case StmtKind::call_block:
      execute_call_block(statement);
      return Flow::next;
    case StmtKind::filter_block:
      return execute_filter_block(statement);
    case StmtKind::with:
      return execute_with(statement);
    case StmtKind::scope: {
      const ScopeChange inner(*this, make_scope(scope_));
      return execute(statement.body);
    }
    default:
      return Flow::next;
  }
}

Interpreter::Flow Interpreter::execute_loop(const Stmt& statement, const Value& items, Scope* around, int depth) {
  Scope* scope = make_scope(around);
  Iterator* source = &iterate(items, heap_);
  if (statement.condition) {
    // The condition is evaluated when the loop reaches an item, in a separate scope.
    source = &make_iterator(heap_, [this, &statement, around, unfiltered = source](Value& item) {
                const ScopeChange inner(*this, make_scope(around));
                while (unfiltered->next(item)) {
                  heap_.step();
                  assign(statement.target, item);
                  if (is_true(evaluate(*statement.condition))) return true;
                }
                return false;
              }).iterator();
  }
  auto* loop = heap_.make<Loop>(heap_, *source, statement.condition ? std::nullopt : length(items),
                                statement.is_recursive ? &statement : nullptr, around, depth);
  for (Value item; loop->advance(item);) {
    heap_.step();
    if (scope->is_captured) {
      scope = make_scope(around);
    } else {
      scope->variables.clear();
    }
    const ScopeChange inner(*this, scope);
    scope->variables.emplace_back(kLoop, Value(Kind::special_object, loop));
    assign(statement.target, item);
    if (execute(statement.body) == Flow::leave_loop) break;
  }
  if (!loop->is_before_first()) return Flow::next;
  const ScopeChange inner(*this, make_scope(around));
  return execute(statement.otherwise);
}

Text Interpreter::run_recursive_loop(const Stmt& loop, const Value& items, Scope* around, int depth) {
  const Depth nested(*this);
  TextBuilder out(heap_);
  TextBuilder* const before = std::exchange(out_, &out);
  execute_loop(loop, items, around, depth);
  out_ = before;
  return out.finish();
}

Interpreter::Flow Interpreter::execute_with(const Stmt& statement) {
  std::vector<Value> values;  // all are evaluated in the outer scope
  for (const auto& [target, expression] : statement.assignments) values.push_back(evaluate(*expression));
  const ScopeChange inner(*this, make_scope(scope_));
  for (std::size_t i = 0; i < values.size(); ++i) assign(statement.assignments[i].first, values[i]);
  return execute(statement.body);
}

Interpreter::Flow Interpreter::execute_set_block(const Stmt& statement) {
  Text captured = kEmptyText;
  Flow flow = Flow::next;
  {
    const ScopeChange inner(*this, make_scope(scope_));
    flow = capture(statement.body, captured);
  }
  if (flow != Flow::next) return flow;
  captured_ = captured;
  assign(statement.target, statement.expression ? evaluate(*statement.expression) : captured_);
  return Flow::next;
}

Interpreter::Flow Interpreter::execute_filter_block(const Stmt& statement) {
  const ScopeChange inner(*this, make_scope(scope_));
  Text captured = kEmptyText;
  const Flow flow = capture(statement.body, captured);
  if (flow != Flow::next) return flow;
  captured_ = captured;
  print(evaluate(*statement.expression));
  return Flow::next;
}

Value Interpreter::make_macro(const Stmt& statement) {
  for (Scope* scope = scope_; scope != nullptr; scope = scope->parent) scope->is_captured = true;
  return {Kind::callable, heap_.make<Macro>(statement, scope_)};
}

void Interpreter::execute_call_block(const Stmt& statement) {
  const Value caller = make_macro(statement);
  print(evaluate_call(*statement.expression, &caller));
}

Value Interpreter::call_macro(const Macro& macro, const Arguments& arguments) {
  const Stmt& definition = macro.definition;
  const Signature& signature = definition.signature;
  const std::string who = "macro '" + std::string(definition.text.view()) + "'";
  Scope* scope = make_scope(macro.closure);
  std::vector<bool> is_used(arguments.named.size());
  const auto take_named = [&](std::string_view name) -> const Value* {
    for (std::size_t i = 0; i < arguments.named.size(); ++i) {
      if (is_used[i] || arguments.named[i].first.view() != name) continue;
      is_used[i] = true;
      return &arguments.named[i].second;
    }
    return nullptr;
  };

  const std::size_t count = signature.symbols.size();
  std::vector<std::size_t> not_given;
  bool has_caller_parameter = false;
  for (std::size_t i = 0; i < count; ++i) {
    has_caller_parameter = has_caller_parameter || signature.symbols[i] == kCaller;
    if (i < arguments.positional.size()) {
      scope->set(signature.symbols[i], arguments.positional[i]);
    } else if (const Value* value = take_named(signature.names[i].view())) {
      scope->set(signature.symbols[i], *value);
    } else {
      not_given.push_back(i);
    }
  }
  if (definition.uses_caller && !has_caller_parameter && definition.kind == StmtKind::macro) {
    const Value* caller = take_named("caller");
    scope->set(kCaller, caller != nullptr && !caller->is_none()
                            ? *caller
                            : Value::undefined(Missing::described, make_text(heap_, "No caller defined")));
  }
  auto* more_named = heap_.make<Dict>();
  for (std::size_t i = 0; i < arguments.named.size(); ++i) {
    if (is_used[i]) continue;
    const auto& [name, value] = arguments.named[i];
    if (!definition.uses_kwargs) throw Failure(who + " takes no keyword argument '" + std::string(name.view()) + "'");
    more_named->set(heap_, name, value);
  }
  if (definition.uses_kwargs) scope->set(kKwargs, Value(Kind::dict, more_named));
  std::vector<Value> more;
  for (std::size_t i = count; i < arguments.positional.size(); ++i) more.push_back(arguments.positional[i]);
  if (!definition.uses_varargs && !more.empty()) {
    throw Failure(who + " takes not more than " + std::to_string(count) + " argument(s)");
  }
  if (definition.uses_varargs) scope->set(kVarargs, make_list(heap_, std::move(more), Kind::tuple));

  const Depth depth(*this);
  const int line = line_;
  const ScopeChange inner(*this, scope);
  const std::size_t first_default = count - signature.defaults.size();
  for (const std::size_t i : not_given) {
    scope->set(signature.symbols[i], i >= first_default ? evaluate(*signature.defaults[i - first_default])
                                                        : Value::undefined(Missing::variable, signature.names[i]));
  }
  Text written = kEmptyText;
  capture(definition.body, written);
  line_ = line;
  return written;
}

}  // namespace pagoda::jinja
