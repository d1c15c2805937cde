#pragma once

#include "io/jinja/text.hpp"
#include "io/jinja/value.hpp"

namespace pagoda::jinja {

/// Returns str(value).
Text to_text(const Value& value, Heap& heap);
void append_text(TextBuilder& out, const Value& value, Heap& heap);
/// Appends repr(value).
void append_repr(TextBuilder& out, const Value& value, Heap& heap);

}  // namespace pagoda::jinja
