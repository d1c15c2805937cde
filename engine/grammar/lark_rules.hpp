#pragma once

#include <string_view>

#include "engine/grammar/rules.hpp"
#include "kernels/result.hpp"

namespace pagoda::grammar {

/// Returns rules for the texts that a Lark grammar derives from `start`, in the syntax of Lark and llguidance.
/// Terminals are regular, and text that %ignore names may follow each of them. Texts are derived, not lexed: a text is
/// accepted even if Lark's lexer would cut it into other terminals than those that a rule asks for.
///
/// Error: invalid_request with the line, for a grammar that is wrong or not supported.
Result<Rules> lark_rules(std::string_view grammar);

}  // namespace pagoda::grammar
