#pragma once

#include "engine/grammar/rules.hpp"
#include "engine/request/structured_output.hpp"
#include "kernels/result.hpp"

namespace pagoda::grammar {

/// Returns a client's grammar as rules, of which the first can end. Needs no tokenizer. Error: invalid_request, param =
/// "structured_outputs", for a grammar that is wrong, not supported, too large or matched by no text. For a schema the
/// message names the part.
Result<Rules> grammar_rules(const StructuredOutput& constraint);

}  // namespace pagoda::grammar
