#pragma once

#include <string_view>

namespace pagoda {

/// Returns the version of this build, major.minor.patch.
std::string_view version();

}  // namespace pagoda
