#pragma once

#include <string_view>

namespace pagoda {

/// This build's version, major.minor.patch.
std::string_view version();

}  // namespace pagoda
