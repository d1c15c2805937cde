#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace pagoda::http::openai {

/// Returns a thought as the `encrypted_content` of a reasoning item, which clients send back unchanged. It is opaque,
/// not secret: base64 after a mark of this server.
std::string opaque_thought(std::string_view thought);

/// Returns the thought in a text of opaque_thought, or nullopt if another server made the text.
std::optional<std::string> thought_of(std::string_view opaque);

}  // namespace pagoda::http::openai
