#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "io/chat/answer_dialect.hpp"
#include "io/chat/probe_renderer.hpp"

namespace pagoda::chat {

/// Range of the arguments of a call in a text.
struct ArgumentRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// Returns the first place, at or after `from`, where the text has exactly these arguments in the form's syntax, with
/// any white space in their JSON.
std::optional<ArgumentRange> find_arguments(std::string_view text, std::size_t from, const ToolCallForm& form,
                                            const nlohmann::ordered_json& arguments);

/// Returns whether the text is exactly these calls in the syntax of `form`, with white space around them at most.
bool is_written(std::string_view text, const ToolCallForm& form, const std::vector<ProbeCall>& calls);

}  // namespace pagoda::chat
