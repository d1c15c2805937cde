#pragma once

#include <memory>
#include <string_view>

#include "io/jinja/ast.hpp"

namespace pagoda::jinja {

/// Throws Failure, with the line, for what is no template or passes the limits.
std::unique_ptr<Ast> parse(std::string_view source, const Limits& limits);

}  // namespace pagoda::jinja
