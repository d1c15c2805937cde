#pragma once

#include "engine/grammar/schema_document.hpp"

namespace pagoda::grammar {

/// Returns the schema with keywords of JSON Schema 2020-12 in place of those of drafts 4 to 7: a list of `items` and
/// `additionalItems`, `dependencies`, and an `exclusiveMinimum` or `exclusiveMaximum` that is true or false. A keyword
/// that is null is left out: programs in Go write null for an empty list or map. Only `const`, `default`, `examples`
/// and `type` keep it.
Schema of_newest_draft(Schema schema);

}  // namespace pagoda::grammar
