#include "io/jinja/interpreter.hpp"

#include "io/jinja/compare.hpp"
#include "io/jinja/globals.hpp"
#include "io/jinja/iterate.hpp"
#include "io/jinja/lookup.hpp"
#include "io/jinja/methods.hpp"
#include "io/jinja/operators.hpp"
#include "io/jinja/print.hpp"

namespace pagoda::jinja {
namespace {

bool compare(Comparison comparison, const Value& left, const Value& right, Heap& heap) {
  switch (comparison) {
    case Comparison::equal:
      return equal(left, right, heap);
    case Comparison::not_equal:
      return !equal(left, right, heap);
    case Comparison::less:
      return less(left, right, heap);
    case Comparison::less_or_equal:
      return less_or_equal(left, right, heap);
    case Comparison::greater:
      return less(right, left, heap);
    case Comparison::greater_or_equal:
      return less_or_equal(right, left, heap);
    case Comparison::in:
      return contains(right, left, heap);
    case Comparison::not_in:
      return !contains(right, left, heap);
  }
  return false;
}

}  // namespace

Interpreter::Interpreter(const Ast& ast, Heap& heap, const std::tm& now) : ast_(ast), heap_(heap), now_(now) {
  root_.reserve(ast.symbols.size());
  for (std::size_t i = 0; i < ast.symbols.size(); ++i) {
    Value global;
    const bool is_known = find_global(heap, ast.symbols[i], global);
    root_.push_back(is_known ? global : Value::undefined(Missing::variable, ast.symbol_texts[i]));
  }
}

Text Interpreter::run() {
  TextBuilder out(heap_);
  out_ = &out;
  execute(ast_.body);
  return out.finish();
}

Value Interpreter::call(const Value& callee, const Arguments& arguments) {
  const Depth depth(*this);
  if (callee.is(Kind::callable)) return callee.callable().call(*this, arguments);
  if (callee.is(Kind::special_object)) {
    if (Callable* callable = callee.special().as_callable()) return callable->call(*this, arguments);
  }
  if (callee.is_undefined()) throw Failure(undefined_message(callee));
  throw Failure("'" + std::string(type_name(callee)) + "' object is not callable");
}

Value Interpreter::evaluate(const Expr& expression) {
  heap_.step();
  if (expression.kind == ExprKind::constant) return expression.value;
  if (expression.kind == ExprKind::name) return evaluate_name(expression);
  const Depth depth(*this);
  line_ = expression.line;
  const auto& children = expression.children;
  switch (expression.kind) {
    case ExprKind::list:
      return make_list(heap_, evaluate_children(expression));
    case ExprKind::tuple:
      return make_list(heap_, evaluate_children(expression), Kind::tuple);
    case ExprKind::dict:
      return evaluate_dict(expression);
    case ExprKind::attribute:
      return get_attribute(*this, evaluate(*children[0]), expression.value.text);
    case ExprKind::subscript: {
      const Value object = evaluate(*children[0]);
      return get_item(*this, object, evaluate(*children[1]));
    }
    case ExprKind::slice:
      return evaluate_slice(expression);
    case ExprKind::call:
      return evaluate_call(expression);
    case ExprKind::filter:
      return evaluate_filter(expression);
    case ExprKind::test:
      return evaluate_test(expression);
    case ExprKind::logical_not:
      return Value::of(!is_true(evaluate(*children[0])));
    case ExprKind::negative:
      return negate(evaluate(*children[0]));
    case ExprKind::positive:
      return plus(evaluate(*children[0]));
    case ExprKind::arithmetic: {
      const Value left = evaluate(*children[0]);
      return apply(heap_, expression.op, left, evaluate(*children[1]));
    }
    case ExprKind::compare:
      return evaluate_compare(expression);
    case ExprKind::concatenate:
      return evaluate_concatenation(expression);
    case ExprKind::logical_and: {
      const Value left = evaluate(*children[0]);
      return is_true(left) ? evaluate(*children[1]) : left;
    }
    case ExprKind::logical_or: {
      const Value left = evaluate(*children[0]);
      return is_true(left) ? left : evaluate(*children[1]);
    }
    case ExprKind::conditional:
      return evaluate_conditional(expression);
    default:
      return {};
  }
}

Value Interpreter::evaluate_name(const Expr& expression) const {
  return lookup(expression.symbol);
}

std::vector<Value> Interpreter::evaluate_children(const Expr& expression) {
  std::vector<Value> values;
  values.reserve(expression.children.size());
  for (const ExprPtr& child : expression.children) values.push_back(evaluate(*child));
  return values;
}

Value Interpreter::evaluate_dict(const Expr& expression) {
  auto* dict = heap_.make<Dict>();
  for (std::size_t i = 0; i < expression.children.size(); i += 2) {
    const Value key = evaluate(*expression.children[i]);
    dict->set(heap_, key, evaluate(*expression.children[i + 1]));
  }
  return {Kind::dict, dict};
}

Arguments Interpreter::evaluate_arguments(const CallArguments* arguments) {
  Arguments values;
  if (arguments == nullptr) return values;
  values.positional.reserve(arguments->positional.size());
  for (const ExprPtr& argument : arguments->positional) values.positional.push_back(evaluate(*argument));
  for (const auto& [name, argument] : arguments->named) {
    if (values.find(name.view()) != nullptr) throw Failure("keyword argument repeated: " + std::string(name.view()));
    values.named.emplace_back(name, evaluate(*argument));
  }
  if (arguments->more_positional) {
    for (const Value& value : to_vector(evaluate(*arguments->more_positional), heap_))
      values.positional.push_back(value);
  }
  if (arguments->more_named) {
    const Value more = evaluate(*arguments->more_named);
    if (!more.is(Kind::dict)) throw Failure("argument after ** must be a mapping, not " + std::string(type_name(more)));
    for (const auto& [name, value] : more.dict().entries) {
      if (!name.is_text()) throw Failure("keywords must be strings");
      if (values.find(name.text.view()) != nullptr) {
        throw Failure("got multiple values for keyword argument '" + std::string(name.text.view()) + "'");
      }
      values.named.emplace_back(name.text, value);
    }
  }
  return values;
}

Value Interpreter::evaluate_call(const Expr& expression, const Value* caller) {
  const Expr& callee = *expression.children[0];
  // A method that is called directly needs no callable value.
  if (callee.kind == ExprKind::attribute && caller == nullptr) {
    const Value object = evaluate(*callee.children[0]);
    const Method method = find_method(object.kind, callee.value.text.view());
    if (method != nullptr) return call_method(*this, method, object, evaluate_arguments(expression.arguments.get()));
    const Value function = get_attribute(*this, object, callee.value.text);
    return call(function, evaluate_arguments(expression.arguments.get()));
  }
  const Value function = evaluate(callee);
  Arguments arguments = evaluate_arguments(expression.arguments.get());
  if (caller != nullptr) arguments.named.emplace_back(ast_.symbol_texts[kCaller], *caller);
  return call(function, arguments);
}

Value Interpreter::evaluate_filter(const Expr& expression) {
  const Value input = expression.children[0] ? evaluate(*expression.children[0]) : captured_;
  if (expression.filter == nullptr)
    throw Failure("no filter named '" + std::string(expression.value.text.view()) + "'");
  return expression.filter(*this, input, evaluate_arguments(expression.arguments.get()));
}

Value Interpreter::evaluate_test(const Expr& expression) {
  const Value input = evaluate(*expression.children[0]);
  if (expression.test == nullptr) throw Failure("no test named '" + std::string(expression.value.text.view()) + "'");
  return Value::of(expression.test(*this, input, evaluate_arguments(expression.arguments.get())));
}

Value Interpreter::evaluate_compare(const Expr& expression) {
  Value left = evaluate(*expression.children[0]);
  for (std::size_t i = 0; i < expression.comparisons.size(); ++i) {
    const Value right = evaluate(*expression.children[i + 1]);
    if (!compare(expression.comparisons[i], left, right, heap_)) return Value::of(false);
    left = right;
  }
  return Value::of(true);
}

Value Interpreter::evaluate_concatenation(const Expr& expression) {
  const std::vector<Value> values = evaluate_children(expression);
  Text all = to_text(values.front(), heap_);
  for (std::size_t i = 1; i < values.size(); ++i) all = concatenate(heap_, all, to_text(values[i], heap_));
  return all;
}

Value Interpreter::evaluate_slice(const Expr& expression) {
  const Value object = evaluate(*expression.children[0]);
  Value parts[3];
  for (std::size_t i = 0; i < 3; ++i) {
    if (expression.children[i + 1]) parts[i] = evaluate(*expression.children[i + 1]);
  }
  return get_slice(heap_, object, parts[0], parts[1], parts[2]);
}

Value Interpreter::evaluate_conditional(const Expr& expression) {
  if (is_true(evaluate(*expression.children[0]))) return evaluate(*expression.children[1]);
  if (expression.children[2]) return evaluate(*expression.children[2]);
  return Value::undefined(Missing::described, make_text(heap_,
                                                        "the inline if-expression evaluated to false and no "
                                                        "else section was defined."));
}

}  // namespace pagoda::jinja
