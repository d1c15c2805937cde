#pragma once

/// Marks in answers are found with the engine's functions (engine/text/marks.hpp).

#include "engine/text/marks.hpp"

namespace pagoda::chat {

using text::begins_with;
using text::find_mark;
using text::is_white;
using text::leading_white;
using text::MarkSet;
using text::Match;
using text::trailing_white;
using text::without_leading_white;
using text::without_outer_white;

}  // namespace pagoda::chat
