#pragma once

#include <cstdint>
#include <optional>

#include "engine/text/tokenizer_spec.hpp"

namespace pagoda::text {

/// Returns the largest number of bytes of text that become one token: a text longer than n times this number has more
/// than n tokens. Nothing if there is no such number, because the tokenizer may drop text or make one token of a run of
/// any length.
std::optional<std::int64_t> max_bytes_per_token(const TokenizerSpec& spec);

}  // namespace pagoda::text
