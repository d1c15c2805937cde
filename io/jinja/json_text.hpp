#pragma once

#include "io/jinja/text.hpp"
#include "io/jinja/value.hpp"

namespace pagoda::jinja {

/// How json.dumps writes.
struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool has_indent = false;  ///< lines, each with its depth times `indent`
  Text indent = kEmptyText;
  Text item_separator = kEmptyText;
  Text key_separator = kEmptyText;
};

/// json.dumps(value); fails for what JSON does not have. The punctuation of a list or dict of the input came from the
/// input too.
Text to_json(const Value& value, const JsonStyle& style, Heap& heap);

}  // namespace pagoda::jinja
