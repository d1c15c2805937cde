#pragma once

#include <string_view>

#include "engine/grammar/rules.hpp"
#include "kernels/result.hpp"

namespace pagoda::grammar {

/// Returns the rules of a grammar in EBNF, as llama.cpp (GBNF) and XGrammar write it. `root` derives the text:
///
///   root  ::= "yes" | "no" tail{0,3}     # a comment
///   tail  ::= [^,\n]+ ( "," . )?
///
/// Error: invalid_request that names the line, and what is wrong or not supported in it.
Result<Rules> ebnf_rules(std::string_view grammar);

}  // namespace pagoda::grammar
