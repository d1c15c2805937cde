#pragma once

#include <string_view>

namespace pagoda::json_lines {

/// The protocol that a line shows its client to speak instead: "HTTP" by a request line, "TLS" by the beginning of a
/// handshake; empty: none. Such a client is not to be read on: a web page can have its browser send any lines behind
/// the head of a request, and they would run as if the page's reader had asked.
std::string_view other_protocol(std::string_view line);

}  // namespace pagoda::json_lines
