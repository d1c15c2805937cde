#pragma once

#include <optional>
#include <string>
#include <vector>

#include "io/chat/answer_dialect.hpp"
#include "io/chat/probe_renderer.hpp"

namespace pagoda::chat {

/// Cuts what a template has made of one call, and of two where it may be that many, into the parts of `form`, of which
/// only how arguments are written is known. False where that is no such form. What it says of other calls is to be
/// checked: it is a guess.
bool cut_calls(const std::string& one_text, const std::vector<ProbeCall>& one,
               const std::optional<std::string>& two_text, const std::vector<ProbeCall>& two, ToolCallForm& form);

/// The same of the tags around two arguments, which are texts: a form of which only those are known.
std::optional<ToolCallForm> cut_tagged_arguments(const std::string& text, const ProbeCall& call);

}  // namespace pagoda::chat
