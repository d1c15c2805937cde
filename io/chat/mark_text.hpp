#pragma once

#include <cstddef>
#include <string_view>

/// Functions for texts of templates, which consist of marks ("<tool_call>", "[TOOL_CALLS]", "◁think▷"), white space and
/// other text.
namespace pagoda::chat::marks {

std::string_view without_left_space(std::string_view text);
std::string_view without_right_space(std::string_view text);
std::string_view without_space(std::string_view text);  ///< at both ends

/// Return the mark that the text begins or ends with; empty for none.
std::string_view first(std::string_view text);
std::string_view last(std::string_view text);
/// Returns the first mark anywhere in the text; empty for none.
std::string_view find(std::string_view text);

/// Return the number of bytes that both texts begin with, or end with. Fewer where this would cut a mark or a
/// character: the part up to this mark, or after it.
std::size_t common_begin(std::string_view left, std::string_view right);
std::size_t common_end(std::string_view left, std::string_view right);

}  // namespace pagoda::chat::marks
