#pragma once

#include "io/jinja/text.hpp"

namespace pagoda::jinja {

bool is_lower_text(const Text& text);  ///< islower()
bool is_upper_text(const Text& text);  ///< isupper()

}  // namespace pagoda::jinja
