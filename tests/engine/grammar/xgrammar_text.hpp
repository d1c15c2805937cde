#pragma once

#include <string>

#include "engine/grammar/rules.hpp"

namespace pagoda::test {

/// Rules in XGrammar's EBNF, its start called root: what can never be finished is left out. Some text matches them.
std::string xgrammar_text(const grammar::Rules& rules);

}  // namespace pagoda::test
