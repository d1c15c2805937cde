// The simulation tests that resumed groups compute the right tokens.

#include <functional>
#include <memory>
#include <optional>

#include <gtest/gtest.h>

#include "tests/engine/scheduling/service.hpp"

namespace pagoda::scheduling {
namespace {

SharedSpec ended_request(std::optional<Error> error) {
  auto spec = std::make_shared<RequestSpec>();
  spec->id = 1;
  spec->prompt = std::make_shared<const TokenIds>(3, 1);
  spec->sampling.n = 2;
  auto progress = std::make_shared<RequestProgress>();
  for (std::int32_t index = 0; index < 2; ++index) {
    auto& sequence = progress->sequences.emplace_back();
    sequence.result.index = index;
    sequence.result.token_ids = {1, 2};
    sequence.ended = !error;
  }
  progress->error = std::move(error);
  spec->progress = std::move(progress);
  return spec;
}

TEST(ResumedGroup, ThatHadEndedEndsAtOnceAndRunsNothing) {
  SchedulerCore core(config_of(SchedulingPolicy::fcfs, 4));
  core.add_group(ended_request(std::nullopt));
  const StepOutputs outputs = core.take_outputs();
  ASSERT_EQ(outputs.ends.size(), 1U);
  EXPECT_EQ(outputs.ends[0].request, 1U);
  EXPECT_FALSE(outputs.ends[0].error);
  EXPECT_TRUE(outputs.outputs.empty()) << "all was told";
  EXPECT_TRUE(core.idle());
  EXPECT_EQ(core.check_invariants(), std::nullopt);
}

TEST(ResumedGroup, ThatHadFailedFailsAgain) {
  SchedulerCore core(config_of(SchedulingPolicy::fcfs, 4));
  core.add_group(ended_request(Error{ErrorCode::internal, "it failed"}));
  const StepOutputs outputs = core.take_outputs();
  ASSERT_EQ(outputs.ends.size(), 1U);
  ASSERT_TRUE(outputs.ends[0].error);
  EXPECT_EQ(outputs.ends[0].error->message, "it failed");
  EXPECT_TRUE(core.idle());
}

TEST(ResumedGroup, MustFitItsRequest) {
  const auto with = [](const std::function<void(RequestSpec&, RequestProgress&)>& change) {
    RequestSpec spec = *ended_request(std::nullopt);
    auto progress = std::make_shared<RequestProgress>(*spec.progress);
    for (auto& sequence : progress->sequences) sequence.ended = false;
    change(spec, *progress);
    spec.progress = progress;
    return is_valid(std::make_shared<const RequestSpec>(spec));
  };
  EXPECT_TRUE(with([](auto&, auto&) {}));
  EXPECT_FALSE(with([](auto&, auto& p) { p.sequences.pop_back(); }));
  EXPECT_FALSE(with([](auto&, auto& p) { p.sequences[1].result.index = 0; }));
  EXPECT_TRUE(with([](auto&, auto& p) { p.sequences[1].result.token_ids.clear(); })) << "it waits for a row";
  EXPECT_FALSE(with([](auto&, auto& p) { p.sequences[0].result.token_ids[0] = -1; }));
  EXPECT_FALSE(with([](auto&, auto& p) { p.sequences[0].result.token_ids.resize(16); })) << "it would have ended";
  EXPECT_TRUE(with([](auto&, auto& p) {
    p.sequences[0].result.token_ids.resize(16);
    p.sequences[0].ended = true;
  }));
  EXPECT_FALSE(with([](auto&, auto& p) { p.sequences[0].result.token_ids.resize(17); }));
  EXPECT_FALSE(with([](auto&, auto& p) { p.sequences[0].result.logprobs.emplace(); })) << "nobody asked";
  EXPECT_FALSE(with([](auto& s, auto&) { s.sampling.logprobs = 1; }));
  EXPECT_FALSE(with([](auto&, auto& p) { p.prompt_logprobs.add(LogprobEntry{}); }));
  EXPECT_FALSE(with([](auto& s, auto&) {
    s.sampling.use_beam_search = true;
    s.sampling.best_of = 2;
  })) << "beams are told at their end";
}

}  // namespace
}  // namespace pagoda::scheduling
