#pragma once

#include <string>
#include <string_view>

namespace pagoda::jinja {

/// Returns a template's string literal with its escapes replaced. Throws Failure, at `line`.
std::string unescape(std::string_view literal, int line);

}  // namespace pagoda::jinja
