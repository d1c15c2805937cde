#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace pagoda::http::openai {

/// Returns a thought as the `encrypted_content` of an item of reasoning, which clients give back as it is. It is
/// opaque, not secret: base64 behind a mark of this server.
std::string opaque_thought(std::string_view thought);

/// Returns the thought of such a text; nothing where another server has made the text.
std::optional<std::string> thought_of(std::string_view opaque);

}  // namespace pagoda::http::openai
