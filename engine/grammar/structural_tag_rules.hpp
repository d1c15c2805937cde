#pragma once

#include <string_view>

#include "engine/grammar/rules.hpp"
#include "kernels/result.hpp"

namespace pagoda::grammar {

/// A structural tag, as XGrammar and vLLM write it: free text, and parts of it that are held to grammars.
///
///   {"type": "structural_tag", "format": FORMAT}
///
/// FORMAT is an object with a `type`, and what that takes:
///   const_string {value}, json_schema {json_schema, style}, regex {pattern}, grammar {grammar}, any_text {excludes},
///   sequence {elements}, or {elements}, in_order {elements: [{content, required}], separator}: those that are required
///     and any of the others, in their order, with the separator between two, optional {content}, star {content}, plus
///     {content}, repeat {content, min,
///   max}, tag {begin, content, end}: `end` a text or several; any_text in it has none of them, triggered_tags
///   {triggers, tags, at_least_one, stop_after_first, excludes}: free text; behind a trigger follows one
///     of the tags that begin with it,
///   tags_with_separator {tags, separator, at_least_one, stop_after_first}.
/// The style of a schema is json, or python for values with True, False and None. The form without a format,
/// {"structures": [{begin, schema, end}], "triggers": [...]}, is that of triggered_tags.
///
/// Error: invalid_request that names the part (a JSON pointer) and what is wrong with it, or not supported.
Result<Rules> structural_tag_rules(std::string_view text);

}  // namespace pagoda::grammar
