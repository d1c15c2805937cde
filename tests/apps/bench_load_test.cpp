#include "apps/bench_load.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>

namespace pagoda::apps {
namespace {

std::vector<std::string> adapters_of(const std::vector<GenerateRequest>& requests) {
  std::vector<std::string> names;
  for (const auto& request : requests) names.push_back(request.adapter);
  return names;
}

TEST(BenchLoad, UsesItsAdaptersInTurn) {
  LoadShape shape{.num_prompts = 5, .input_len = 3};
  EXPECT_THAT(adapters_of(make_load(shape, 10)), testing::Each(""));
  shape.adapters = {"sql", "poet"};
  EXPECT_THAT(adapters_of(make_load(shape, 10)), testing::ElementsAre("sql", "poet", "sql", "poet", "sql"));
}

TEST(BenchLoad, HasTheSamePromptsWithAndWithoutAdapters) {
  LoadShape shape{.num_prompts = 4, .input_len = 3};
  const auto plain = make_load(shape, 10);
  shape.adapters = {"sql"};
  const auto adapted = make_load(shape, 10);
  ASSERT_EQ(plain.size(), adapted.size());
  for (std::size_t i = 0; i < plain.size(); ++i) EXPECT_EQ(plain[i].prompt_token_ids, adapted[i].prompt_token_ids);
}

}  // namespace
}  // namespace pagoda::apps
