#pragma once

#include <string_view>

namespace pagoda::json_lines {

/// Returns the other protocol that a line belongs to: "HTTP" for a request line, "TLS" for the beginning of a
/// handshake; empty if there is none. Do not read further lines of such a client: a web page can make a browser send
/// any lines after the head of a request, and they would run in the name of the browser's user.
std::string_view other_protocol(std::string_view line);

}  // namespace pagoda::json_lines
