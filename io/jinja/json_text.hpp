#pragma once

#include "io/jinja/text.hpp"
#include "io/jinja/value.hpp"

namespace pagoda::jinja {

/// Style of json.dumps.
struct JsonStyle {
  bool ensure_ascii = false;
  bool sort_keys = false;
  bool has_indent = false;  ///< whether each item has its own line, which starts with `indent` times its depth
  Text indent = kEmptyText;
  Text item_separator = kEmptyText;
  Text key_separator = kEmptyText;
};

/// Returns json.dumps(value). Throws Failure for values that JSON does not have. The punctuation of a list or dict of
/// the input counts as input too.
Text to_json(const Value& value, const JsonStyle& style, Heap& heap);

}  // namespace pagoda::jinja
