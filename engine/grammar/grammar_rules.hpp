#pragma once

#include <string>

#include "engine/request/structured_output.hpp"
#include "kernels/result.hpp"

namespace pagoda::grammar {

/// A client's grammar in XGrammar's EBNF, made from ASCII alone. Needs no tokenizer, and no XGrammar.
/// Error: invalid_request, param = "structured_outputs", for what is wrong, not supported, too large or matched by no
/// text; of a schema it names the part.
Result<std::string> grammar_ebnf(const StructuredOutput& wish);

}  // namespace pagoda::grammar
