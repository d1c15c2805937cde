#pragma once

#include <optional>
#include <string>
#include <vector>

#include "io/chat/answer_dialect.hpp"
#include "io/chat/probe_renderer.hpp"

namespace pagoda::chat {

/// Cuts the template's text of one call, and of two calls where several are possible, into the parts of `form`, of
/// which only the form of arguments is known. Returns false if the texts do not have such a form. The result is a
/// guess: check it with other calls.
bool cut_calls(const std::string& one_text, const std::vector<ProbeCall>& one,
               const std::optional<std::string>& two_text, const std::vector<ProbeCall>& two, ToolCallForm& form);

/// Cuts the tags around two arguments, which are texts. Only these fields of the result are set.
std::optional<ToolCallForm> cut_tagged_arguments(const std::string& text, const ProbeCall& call);

}  // namespace pagoda::chat
