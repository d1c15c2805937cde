#pragma once

#include <string>
#include <utility>

namespace pagoda::jinja {

/// Base of all objects on a Heap.
struct Object {
  Object() = default;
  Object(const Object&) = delete;
  Object& operator=(const Object&) = delete;
  virtual ~Object() = default;
};

/// Exception of lexer, parser and interpreter. Only this folder sees it: Template turns it into an Error, with the
/// line.
struct Failure {
  explicit Failure(std::string text, bool by_template = false, int at_line = 0)
      : message(std::move(text)), refused_by_template(by_template), line(at_line) {}

  std::string message;
  bool refused_by_template;  ///< whether the template called raise_exception
  int line;                  ///< 0: the current line
};

}  // namespace pagoda::jinja
