#pragma once

#include <cstddef>
#include <string_view>

/// Texts that templates put together of marks ("<tool_call>", "[TOOL_CALLS]", "◁think▷"), whitespace and else.
namespace pagoda::chat::marks {

std::string_view without_left_space(std::string_view text);
std::string_view without_right_space(std::string_view text);
std::string_view without_space(std::string_view text);  ///< at both ends

/// The mark that the text begins or ends with; empty for none.
std::string_view first(std::string_view text);
std::string_view last(std::string_view text);
/// The first mark anywhere in the text; empty for none.
std::string_view find(std::string_view text);

/// How many bytes both begin with, or end with. Where that cuts a mark or a character it is less: the part up to that
/// mark, or behind it.
std::size_t common_begin(std::string_view left, std::string_view right);
std::size_t common_end(std::string_view left, std::string_view right);

}  // namespace pagoda::chat::marks
