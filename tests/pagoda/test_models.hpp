#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <utility>

#include "engine/request/generate_request.hpp"

namespace pagoda::test {

/// The demo model of the repository.
inline std::string demo_model() {
  return std::string(PAGODA_SOURCE_DIR) + "/examples/models/pagoda-stories";
}

/// So many of the model's likeliest tokens behind a text.
inline GenerateRequest greedy_request(std::string text, std::int64_t max_tokens) {
  GenerateRequest request;
  request.prompt = std::move(text);
  request.sampling.max_tokens = max_tokens;
  request.sampling.temperature = 0;
  request.sampling.ignore_eos = true;
  return request;
}

inline std::string shared_path(const std::string& below) {
  return std::string(PAGODA_SHARED_DIR) + "/" + below;
}

inline bool shared_is_there() {
  return std::filesystem::exists(shared_path("models/stories260k/config.json"));
}

}  // namespace pagoda::test

/// Skips the test, saying so, when the shared data is not beside the repository.
#define PAGODA_NEEDS_SHARED_DATA() \
  if (!pagoda::test::shared_is_there()) GTEST_SKIP() << "no shared data at " << PAGODA_SHARED_DIR
