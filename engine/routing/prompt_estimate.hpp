#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/request/generate_request.hpp"

namespace pagoda::routing {

/// Returns the number of prompt tokens of a request. For a text that is not tokenized yet it is an estimate by its
/// bytes.
inline std::int64_t estimated_prompt_tokens(const GenerateRequest& request) {
  constexpr std::size_t kBytesPerToken = 4;
  std::int64_t num_tokens = request.prompt ? static_cast<std::int64_t>(1 + request.prompt->size() / kBytesPerToken) : 0;
  if (request.prompt_token_ids) num_tokens = static_cast<std::int64_t>(request.prompt_token_ids->size());
  const std::int64_t num_kept = request.truncate_prompt_tokens.value_or(-1);
  return num_kept > 0 ? std::min(num_tokens, num_kept) : num_tokens;
}

}  // namespace pagoda::routing
