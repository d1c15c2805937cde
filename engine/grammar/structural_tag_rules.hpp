#pragma once

#include <string_view>

#include "engine/grammar/rules.hpp"
#include "kernels/result.hpp"

namespace pagoda::grammar {

/// Returns the rules of a structural tag, as XGrammar and vLLM write it: free text, with parts that must match
/// grammars.
///
///   {"type": "structural_tag", "format": FORMAT}
///
/// FORMAT is an object with a `type`, and the members of that type:
///   const_string {value}
///   json_schema {json_schema, style, label}
///   regex {pattern}
///   grammar {grammar}
///   any_text {excludes}
///   sequence {elements}
///   or {elements}
///   in_order {elements: [{content, required}], separator}: the required elements and any of the others, in their
///     order, with the separator between two
///   optional {content}, star {content}, plus {content}, repeat {content, min, max}
///   tag {begin, content, end}: `end` is a text or several texts, none of which any_text in the tag contains
///   triggered_tags {triggers, tags, at_least_one, stop_after_first, excludes}: free text; the rest of a tag that
///     begins with a trigger follows the trigger
///   tags_with_separator {tags, separator, at_least_one, stop_after_first}
/// The style of a schema is json, python for values with True, False and None, or text for a string without its quotes.
/// The form without a format, {"structures": [{begin, schema, end}], "triggers": [...]}, means triggered_tags.
///
/// Error: invalid_request that names the part (a JSON pointer), and what is wrong or not supported in it.
Result<Rules> structural_tag_rules(std::string_view text);

}  // namespace pagoda::grammar
