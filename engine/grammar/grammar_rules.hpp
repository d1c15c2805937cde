#pragma once

#include "engine/grammar/rules.hpp"
#include "engine/request/structured_output.hpp"
#include "kernels/result.hpp"

namespace pagoda::grammar {

/// A client's grammar as rules, the first of which can be finished. Needs no tokenizer.
/// Error: invalid_request, param = "structured_outputs", for what is wrong, not supported, too large or matched by no
/// text; of a schema it names the part.
Result<Rules> grammar_rules(const StructuredOutput& constraint);

}  // namespace pagoda::grammar
