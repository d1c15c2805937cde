#include "io/jinja/template.hpp"

#include <algorithm>

#include "io/jinja/interpreter.hpp"
#include "io/jinja/json_values.hpp"
#include "io/jinja/parser.hpp"

namespace pagoda::jinja {
namespace {

constexpr const char* kRefusedParam = "messages";
constexpr const char* kFailedParam = "chat_template";

tl::unexpected<Error> fail_template(const Failure& failure, int line) {
  if (failure.refused_by_template) return fail(ErrorCode::invalid_request, failure.message, kRefusedParam);
  const int at = failure.line > 0 ? failure.line : line;
  const std::string where = at > 0 ? "chat template, line " + std::to_string(at) + ": " : "chat template: ";
  return fail(ErrorCode::invalid_request, where + failure.message, kFailedParam);
}

}  // namespace

Template::Template(std::shared_ptr<const Ast> ast, const Limits& limits) : ast_(std::move(ast)), limits_(limits) {}

Result<Template> Template::parse(std::string_view source, const Limits& limits) {
  try {
    return Template(jinja::parse(source, limits), limits);
  } catch (const Failure& failure) {
    return fail_template(failure, 0);
  }
}

Result<Rendered> Template::render(const std::vector<Variable>& variables, const std::tm& now) const {
  Heap heap(limits_);
  int line = 0;
  try {
    Interpreter interpreter(*ast_, heap, now);
    for (const Variable& variable : variables) {
      const auto symbol = std::find(ast_->symbols.begin(), ast_->symbols.end(), variable.name);
      if (symbol == ast_->symbols.end()) continue;  // the template does not use it
      interpreter.define(static_cast<Symbol>(symbol - ast_->symbols.begin()),
                         to_value(heap, *variable.value, variable.from_input));
    }
    try {
      const Text text = interpreter.run();
      return Rendered{std::string(text.view()),
                      text.buffer == nullptr ? std::vector<TextRange>() : text.buffer->inserted};
    } catch (const Failure&) {
      line = interpreter.line();
      throw;
    }
  } catch (const Failure& failure) {
    return fail_template(failure, line);
  }
}

bool refused_by_template(const Error& error) {
  return error.code == ErrorCode::invalid_request && error.param == kRefusedParam;
}

}  // namespace pagoda::jinja
