// Requests whose adapters have virtual tokens.

#include <functional>
#include <optional>
#include <string>
#include <utility>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/routing/router_core.hpp"

namespace pagoda::routing {
namespace {

using testing::HasSubstr;

constexpr ClientId kClientOfPrompts = 1;
constexpr TimeUs kSomeTime = 5'000'000;

AdmissionLimits limits_with_prompts() {
  AdmissionLimits limits;
  limits.vocab_size = 100;
  limits.max_model_len = 32;
  limits.max_kv_tokens = 24;
  limits.max_num_seqs = 4;
  limits.max_queued_requests = 5;
  limits.max_queued_prompt_tokens = 1 << 30;
  limits.has_adapters = true;
  return limits;
}

class PromptAdapterRequests : public testing::Test {
 protected:
  /// Returns what becomes of a request with `count` tokens of its own: the spec, or the error.
  Result<SharedSpec> enter(std::int32_t num_virtual, std::int64_t count,
                           const std::function<void(GenerateRequest&)>& change = {}) {
    GenerateRequest request;
    request.prompt_token_ids.emplace(static_cast<std::size_t>(count), 7);
    request.sampling.max_tokens = 16;
    request.adapter = "tone";
    if (change) change(request);
    const auto submitted = core_.submit(kClientOfPrompts, next_tag_++, request, kSomeTime);
    EXPECT_TRUE(submitted) << submitted.error().message;
    TokenIds tokens(static_cast<std::size_t>(count));
    for (std::size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<TokenId>(i + 1);
    EXPECT_TRUE(core_.prompt_encoded(submitted->id, std::move(tokens)).settled.empty());
    const auto effects = core_.adapter_acquired(submitted->id, AdapterRef{3, "tone", "/tone", {1, num_virtual}});
    EXPECT_EQ(effects.settled.size(), 1U);
    if (const auto* error = std::get_if<Error>(&effects.settled.at(0).outcome)) {
      EXPECT_EQ(effects.adapters_released, std::vector<AdapterId>{3});
      return fail(*error);
    }
    return std::get<SharedSpec>(effects.settled[0].outcome);
  }

  RouterCore core_{limits_with_prompts(), 0};
  std::uint64_t next_tag_ = 1;
};

TEST_F(PromptAdapterRequests, VirtualTokensComeInFrontOfThePrompt) {
  const auto spec = enter(4, 3).value();
  EXPECT_EQ(*spec->prompt, (TokenIds{0, 0, 0, 0, 1, 2, 3}));
  EXPECT_EQ(spec->num_virtual_tokens(), 4);
  EXPECT_EQ(TokenIds(spec->own_prompt().begin(), spec->own_prompt().end()), (TokenIds{1, 2, 3}));
  EXPECT_EQ(core_.live_requests({}, kSomeTime).at(0).prompt_tokens, 3) << "clients do not know the others";
  EXPECT_TRUE(is_valid(spec));
}

TEST_F(PromptAdapterRequests, OtherAdaptersLeaveThePromptAsItIs) {
  const auto spec = enter(0, 3).value();
  EXPECT_EQ(*spec->prompt, (TokenIds{1, 2, 3}));
  EXPECT_EQ(spec->adapter.id, 3U);
}

TEST_F(PromptAdapterRequests, VirtualTokensCountForTheContext) {
  EXPECT_EQ(enter(10, 13).value()->sampling.max_tokens, 32 - 23);
  const auto too_long = enter(10, 14);
  ASSERT_FALSE(too_long);
  EXPECT_EQ(too_long.error().code, ErrorCode::context_too_long);
  EXPECT_EQ(too_long.error().param, "prompt_token_ids");
  EXPECT_THAT(too_long.error().message, HasSubstr("24"));
  EXPECT_THAT(too_long.error().message, HasSubstr("10 are virtual tokens of the adapter \"tone\""));
}

TEST_F(PromptAdapterRequests, ATruncatedPromptLeavesRoomForThem) {
  const auto truncate_to = [](std::int64_t kept) {
    return [kept](GenerateRequest& request) {
      request.truncate_prompt_tokens = kept;
      request.sampling.max_tokens = 5;
    };
  };
  // 24 tokens fit into the cache.
  const auto spec = enter(9, 15, truncate_to(-1)).value();
  EXPECT_EQ(TokenIds(spec->own_prompt().begin(), spec->own_prompt().end()),
            (TokenIds{6, 7, 8, 9, 10, 11, 12, 13, 14, 15}));
  EXPECT_EQ(spec->sampling.max_tokens, 5);
  EXPECT_EQ(enter(9, 15, truncate_to(6)).value()->prompt->size(), 9U + 6U);
  EXPECT_EQ(enter(30, 15, truncate_to(-1)).error().code, ErrorCode::context_too_long);
}

TEST_F(PromptAdapterRequests, ASpecWithoutTokensOfItsOwnIsNotValid) {
  auto spec = std::make_shared<RequestSpec>(*enter(4, 3).value());
  spec->adapter.facts.num_virtual_tokens = 7;
  EXPECT_FALSE(is_valid(spec));
  spec->adapter.facts.num_virtual_tokens = -1;
  EXPECT_FALSE(is_valid(spec));
}

}  // namespace
}  // namespace pagoda::routing
