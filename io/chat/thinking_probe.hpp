#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "io/chat/answer_dialect.hpp"
#include "io/chat/probe_renderer.hpp"

namespace pagoda::chat {

struct ProbedThinking {
  Marks marks = {};
  std::string follows = {};  ///< what stands between the thinking and the content, or a call, without thinking too
};

/// How the template writes what an assistant thought; where it shows none, the marks that its source names.
std::optional<ProbedThinking> probe_thinking(ProbeRenderer& renderer);

/// The text behind a thinking that it begins with and that is empty, or of which it has the end alone; without
/// whitespace at the left.
std::string_view behind_empty_thinking(std::string_view text, const std::optional<Marks>& thinking);

}  // namespace pagoda::chat
