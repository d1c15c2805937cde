#pragma once

#include <cstddef>
#include <optional>
#include <string_view>
#include <vector>

#include "io/chat/answer_dialect.hpp"
#include "io/chat/probe_renderer.hpp"

namespace pagoda::chat {

/// Where the arguments of a call stand in a text.
struct ArgumentRange {
  std::size_t begin = 0;
  std::size_t end = 0;
};

/// The first place from `from` on where exactly these arguments are written in the form's way, whatever whitespace
/// their JSON has.
std::optional<ArgumentRange> find_arguments(std::string_view text, std::size_t from, const ToolCallForm& form,
                                            const nlohmann::ordered_json& arguments);

/// Whether the text is these calls, and nothing but whitespace around them, as the form says that they are written.
bool is_written(std::string_view text, const ToolCallForm& form, const std::vector<ProbeCall>& calls);

}  // namespace pagoda::chat
