#pragma once

#include <string>
#include <string_view>

namespace pagoda::jinja {

/// What the escapes of a string literal of a template stand for. Throws Failure, at `line`.
std::string unescape(std::string_view literal, int line);

}  // namespace pagoda::jinja
