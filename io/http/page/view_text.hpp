#pragma once

#include <string>

#include "engine/view/engine_view.hpp"

namespace pagoda::http::page {

/// Returns the view as one line of JSON (docs/page.md).
std::string view_text(const view::EngineView& view);

}  // namespace pagoda::http::page
