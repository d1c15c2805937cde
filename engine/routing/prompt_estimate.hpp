#pragma once

#include <cstdint>

#include "engine/request/generate_request.hpp"

namespace pagoda::routing {

/// Prompt tokens of a request, a text's by its bytes while it is not tokenized.
inline std::int64_t estimated_prompt_tokens(const GenerateRequest& request) {
  constexpr std::size_t kBytesPerToken = 4;
  if (request.prompt_token_ids) return static_cast<std::int64_t>(request.prompt_token_ids->size());
  return request.prompt ? static_cast<std::int64_t>(1 + request.prompt->size() / kBytesPerToken) : 0;
}

}  // namespace pagoda::routing
