#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace pagoda::wire {

/// Appends `text` as a JSON string with its quotes. Bytes that are not UTF-8 become U+FFFD, one per maximal invalid
/// piece, so a line is valid JSON whatever the text holds. Written by hand because it runs for every token.
void append_string(std::string& out, std::string_view text);

void append_integer(std::string& out, std::int64_t value);

/// The shortest decimal that reads back as the same value. JSON has no infinities: they and NaN become null.
void append_number(std::string& out, double value);

/// A log-probability in single precision. JSON has no minus infinity: what is below -9999 (or no number) is -9999.
void append_logprob(std::string& out, float value);

}  // namespace pagoda::wire
