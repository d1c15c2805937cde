#pragma once

#include <string_view>

#include "engine/grammar/rules.hpp"
#include "kernels/result.hpp"

namespace pagoda::grammar {

/// A grammar in EBNF, as llama.cpp (GBNF) and XGrammar write it; the text is what `root` derives:
///
///   root  ::= "yes" | "no" tail{0,3}     # a comment
///   tail  ::= [^,\n]+ ( "," . )?
///
/// Error: invalid_request that names the line and what is wrong with it, or not supported.
Result<Rules> ebnf_rules(std::string_view grammar);

}  // namespace pagoda::grammar
