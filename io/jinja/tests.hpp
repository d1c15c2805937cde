#pragma once

#include <string_view>

#include "io/jinja/ast.hpp"

namespace pagoda::jinja {

/// Finds the test after `is`; null when there is no test of this name.
Test find_test(std::string_view name);

}  // namespace pagoda::jinja
