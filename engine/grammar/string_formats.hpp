#pragma once

#include <optional>
#include <string_view>

namespace pagoda::grammar {

/// A regex, of regex_rules.hpp, whose texts all have a `format` of JSON Schema: date, time, date-time, duration, email,
/// hostname, ipv4, ipv6, uuid, uri. Nothing for other formats.
std::optional<std::string_view> string_format(std::string_view name);

}  // namespace pagoda::grammar
