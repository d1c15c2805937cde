#pragma once

#include <ctime>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

#include "io/jinja/limits.hpp"
#include "io/jinja/text_range.hpp"
#include "kernels/result.hpp"

namespace pagoda::jinja {

struct Ast;

/// A value that a template sees as a variable.
struct Variable {
  std::string name;
  const nlohmann::ordered_json* value = nullptr;  ///< must live until the end of the render
  /// Whether the value comes from a client: its strings count as inserted, wherever they appear in the output.
  bool from_input = true;
};

struct Rendered {
  std::string text;
  /// Ranges of the text that come from variables of the input and not from the template; ascending and not adjacent.
  std::vector<TextRange> inserted;
};

/// A parsed template of the Jinja language as Hugging Face configures it for chats: sandboxed, without autoescape and
/// other templates, with trim_blocks, lstrip_blocks and loop controls.
///
/// Immutable: any number of threads may render at the same time.
class Template {
 public:
  /// Errors: invalid_request, param chat_template; the message names the line.
  static Result<Template> parse(std::string_view source, const Limits& limits = {});

  /// `now` is the time for strftime_now. Errors: invalid_request, param messages, with the template's message, when the
  /// template calls raise_exception (see refused_by_template); else param chat_template, with the line in the message.
  Result<Rendered> render(const std::vector<Variable>& variables, const std::tm& now) const;

 private:
  explicit Template(std::shared_ptr<const Ast> ast, const Limits& limits);

  std::shared_ptr<const Ast> ast_;
  Limits limits_;
};

/// Returns whether the template itself refused its input (raise_exception), so that the error's message is its own.
bool refused_by_template(const Error& error);

}  // namespace pagoda::jinja
