#pragma once

#include <string_view>

#include "io/jinja/ast.hpp"

namespace pagoda::jinja {

/// What stands behind `is`; null when there is no test of that name.
Test find_test(std::string_view name);

}  // namespace pagoda::jinja
