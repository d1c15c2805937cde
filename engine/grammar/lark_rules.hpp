#pragma once

#include <string_view>

#include "engine/grammar/rules.hpp"
#include "kernels/result.hpp"

namespace pagoda::grammar {

/// The texts that a Lark grammar derives from `start`, as Lark and llguidance write it. Terminals are regular, and what
/// %ignore names may come behind each of them. Texts are derived, not lexed: where Lark's lexer would cut a text into
/// other terminals than those that a rule asks for, the text is taken all the same.
///
/// Error: invalid_request with the line, for what is wrong or is not supported.
Result<Rules> lark_rules(std::string_view grammar);

}  // namespace pagoda::grammar
