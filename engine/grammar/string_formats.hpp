#pragma once

#include <optional>
#include <string_view>

namespace pagoda::grammar {

/// Returns a regex, for regex_rules.hpp, whose texts all have a `format` of JSON Schema, for example date, time,
/// date-time, duration, email, hostname, ipv4, ipv6, uuid or uri. Nothing for formats that are not supported.
std::optional<std::string_view> string_format(std::string_view name);

}  // namespace pagoda::grammar
