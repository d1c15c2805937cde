#pragma once

#include <string>

#include "engine/grammar/rules.hpp"

namespace pagoda::test {

/// Returns the rules in XGrammar's EBNF, with the start rule called root. Leaves out parts that can never be completed.
/// Some text must match the rules.
std::string xgrammar_text(const grammar::Rules& rules);

}  // namespace pagoda::test
