#pragma once

#include <cstdint>
#include <optional>

#include "engine/text/tokenizer_spec.hpp"

namespace pagoda::text {

/// At most so many bytes of text become one token: a longer text than n times this has more than n tokens. Nothing when
/// there is no such number because the tokenizer may drop text or make one token of a run of any length.
std::optional<std::int64_t> max_bytes_per_token(const TokenizerSpec& spec);

}  // namespace pagoda::text
