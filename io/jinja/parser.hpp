#pragma once

#include <memory>
#include <string_view>

#include "io/jinja/ast.hpp"

namespace pagoda::jinja {

/// Parses a template. Throws Failure, with the line, for an invalid template or one beyond the limits.
std::unique_ptr<Ast> parse(std::string_view source, const Limits& limits);

}  // namespace pagoda::jinja
