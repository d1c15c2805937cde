#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace pagoda::http::openai {

/// Returns `reasoning` as the `encrypted_content` of a reasoning item, which clients send back unchanged. It is opaque,
/// not secret: base64 after a mark of this server.
std::string opaque_reasoning(std::string_view reasoning);

/// Returns the reasoning in a text of opaque_reasoning, or nullopt if another server made the text.
std::optional<std::string> read_opaque_reasoning(std::string_view opaque);

}  // namespace pagoda::http::openai
