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

/// A value that a template sees under a name.
struct Variable {
  std::string name;
  const nlohmann::ordered_json* value = nullptr;  ///< lives until the render's end
  /// From a client: its strings count as inserted, wherever they end up.
  bool from_input = true;
};

struct Rendered {
  std::string text;
  /// Which bytes of the text came from variables of the input, as opposed to the template's own; ascending, apart
  /// from each other.
  std::vector<TextRange> inserted;
};

/// A parsed template of the Jinja language as Hugging Face sets it up for chats: sandboxed, without autoescape and
/// other templates, with trim_blocks, lstrip_blocks and loop controls.
///
/// Immutable: may be rendered by any number of threads at a time.
class Template {
 public:
  /// Fails with invalid_request, for param chat_template; the message names the line.
  static Result<Template> parse(std::string_view source, const Limits& limits = {});

  /// `now` is what strftime_now tells. Fails with invalid_request: when the template calls raise_exception, with its
  /// message, for param messages (see refused_by_template); else for param chat_template, the message naming the line.
  Result<Rendered> render(const std::vector<Variable>& variables, const std::tm& now) const;

 private:
  explicit Template(std::shared_ptr<const Ast> ast, const Limits& limits);

  std::shared_ptr<const Ast> ast_;
  Limits limits_;
};

/// The template itself refused what it was given (raise_exception), and the error's message is its own.
bool refused_by_template(const Error& error);

}  // namespace pagoda::jinja
