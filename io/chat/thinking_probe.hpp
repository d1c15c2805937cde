#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "io/chat/answer_dialect.hpp"
#include "io/chat/probe_renderer.hpp"

namespace pagoda::chat {

struct ProbedThinking {
  Marks marks = {};
  std::string follows = {};  ///< text between the thinking and the content or a call, also present without thinking
};

/// Returns the form in which the template writes thinking; if it shows none, the known marks that its source contains.
std::optional<ProbedThinking> probe_thinking(ProbeRenderer& renderer);

/// Returns `text` without white space at its left, and without an empty thinking, or the end mark of one, that it
/// begins with.
std::string_view after_empty_thinking(std::string_view text, const std::optional<Marks>& thinking);

}  // namespace pagoda::chat
