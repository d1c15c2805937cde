#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pagoda::wire {

/// Appends `text` as a JSON string with its quotes. Each maximal invalid piece of UTF-8 becomes one U+FFFD, so the
/// result is valid JSON for any text. Written by hand because it runs for every token.
void append_string(std::string& out, std::string_view text);

void append_integer(std::string& out, std::int64_t value);

/// Appends the shortest decimal that parses to the same value. Infinities and NaN, which JSON does not have, become
/// null.
void append_number(std::string& out, double value);

/// Appends a log-probability in single precision. JSON has no minus infinity: values below -9999 and NaN become -9999.
void append_logprob(std::string& out, float value);

}  // namespace pagoda::wire
