#include "engine/execution/rank_results.hpp"

#include <string>

#include <gtest/gtest.h>

namespace pagoda::execution {
namespace {

StepResult result_of(StepId step, std::int32_t rank, TokenId token = 0) {
  StepResult result;
  result.step = step;
  result.rank = rank;
  result.rows.push_back({7, 3, RowTokens{{0, 1}}, {}});
  result.rows.push_back({8, 4, RowTokens{{1, 1}}, {}});
  result.samples.push_back({token, 0, 1, {}});
  result.samples.push_back({token + 1, 0, 1, {}});
  result.started_us = 100 - rank;
  result.finished_us = 200 + rank;
  return result;
}

StepResult failure_of(StepId step, std::int32_t rank, const std::string& why) {
  StepResult result;
  result.step = step;
  result.rank = rank;
  result.error = Error{ErrorCode::device_failed, why};
  return result;
}

TEST(RankResults, OneRankAnswersAtOnce) {
  RankResults results(1);
  const auto step = results.add(result_of(1, 0, 5));
  ASSERT_TRUE(step);
  EXPECT_EQ(step->step, 1U);
  EXPECT_EQ(step->samples.at(1).token, 6);
}

TEST(RankResults, AStepEndsWithItsLastRankAndHasTheSamplesOfRank0) {
  for (const bool rank_0_is_last : {false, true}) {
    RankResults results(2);
    const std::int32_t first = rank_0_is_last ? 1 : 0;
    EXPECT_FALSE(results.add(result_of(1, first, first == 0 ? 5 : 90)));
    const auto step = results.add(result_of(1, 1 - first, first == 0 ? 90 : 5));
    ASSERT_TRUE(step);
    EXPECT_EQ(step->samples.at(0).token, 5);
    EXPECT_EQ(step->started_us, 99) << "the first rank to start";
    EXPECT_EQ(step->finished_us, 201) << "the last rank to end";
    EXPECT_FALSE(step->error);
  }
}

TEST(RankResults, AStepHasTheSamplesOfTheFirstRankOfTheLastStage) {
  for (const std::int32_t last : {0, 1, 2, 3}) {
    RankResults results(4, 2);
    for (std::int32_t rank = 0; rank < 4; ++rank) {
      if (rank == last) continue;
      StepResult result = result_of(1, rank, 10 * rank);
      if (rank < 2) {  // the first stage has rows without tokens
        result.samples.clear();
        for (RowResult& row : result.rows) row.output = RowTokens{};
        result.rows[1].output = Error{ErrorCode::bad_file, "its adapter"};
      }
      EXPECT_FALSE(results.add(result));
    }
    StepResult result = result_of(1, last, 10 * last);
    const auto step = results.add(result);
    ASSERT_TRUE(step);
    EXPECT_EQ(step->samples.at(0).token, 20);
    EXPECT_EQ(step->rows.at(0).samples().count, 1);
    EXPECT_EQ(step->started_us, 97) << "times are those of the last stage";
    EXPECT_EQ(step->finished_us, 203);
    ASSERT_NE(step->rows.at(1).error(), nullptr) << "the error of a row may come from another stage";
  }
}

TEST(RankResults, ARankMayBeStepsAheadOfTheOthers) {
  RankResults results(3);
  EXPECT_FALSE(results.add(result_of(1, 2)));
  EXPECT_FALSE(results.add(result_of(2, 2)));
  EXPECT_FALSE(results.add(result_of(1, 1)));
  EXPECT_FALSE(results.add(result_of(2, 1)));
  EXPECT_EQ(results.add(result_of(1, 0)).value().step, 1U);
  EXPECT_EQ(results.add(result_of(2, 0)).value().step, 2U);
}

TEST(RankResults, AnErrorOfAnyRankFailsTheStep) {
  for (const std::int32_t failed : {0, 1, 2}) {
    RankResults results(3);
    std::optional<StepResult> step;
    for (std::int32_t rank = 0; rank < 3; ++rank) {
      EXPECT_FALSE(step);
      step = results.add(rank == failed ? failure_of(1, rank, "broken") : result_of(1, rank));
    }
    ASSERT_TRUE(step);
    ASSERT_TRUE(step->error);
    EXPECT_EQ(step->error->message, "broken");
    EXPECT_TRUE(step->rows.empty());
    EXPECT_TRUE(step->samples.empty());
  }
}

TEST(RankResults, OfSeveralErrorsTheOneOfTheLowestRankCounts) {
  RankResults results(2);
  EXPECT_FALSE(results.add(failure_of(1, 1, "second")));
  EXPECT_EQ(results.add(failure_of(1, 0, "first")).value().error.value().message, "first");
}

TEST(RankResults, TheReasonIsNotThatOfARankThatWaitedForAnother) {
  for (const std::int32_t failed : {0, 1, 2}) {
    RankResults results(3);
    std::optional<StepResult> step;
    for (std::int32_t rank = 0; rank < 3; ++rank) {
      StepResult failure = failure_of(1, rank, rank == failed ? "no memory" : "waited");
      failure.error->code = rank == failed ? ErrorCode::out_of_memory : ErrorCode::device_failed;
      step = results.add(std::move(failure));
    }
    ASSERT_TRUE(step);
    EXPECT_EQ(step->error.value().message, "no memory");
  }
}

TEST(RankResults, AnErrorOfARowFailsThisRowAlone) {
  RankResults results(2);
  EXPECT_FALSE(results.add(result_of(1, 0, 5)));
  StepResult other = result_of(1, 1, 5);
  other.rows[1].output = Error{ErrorCode::internal, "no token is left"};
  const auto step = results.add(std::move(other));
  ASSERT_TRUE(step);
  EXPECT_FALSE(step->error);
  EXPECT_EQ(step->rows.at(0).error(), nullptr);
  ASSERT_NE(step->rows.at(1).error(), nullptr);
  EXPECT_EQ(step->rows.at(1).error()->message, "no token is left");
}

TEST(RankResults, ARowWithoutItsAdapterSaysSoWhateverElseHasFailed) {
  for (const std::int32_t rank_without : {0, 1}) {
    RankResults results(2);
    std::optional<StepResult> step;
    for (const std::int32_t rank : {0, 1}) {
      StepResult result = result_of(1, rank, 5);
      const ErrorCode code = rank == rank_without ? ErrorCode::bad_adapter : ErrorCode::internal;
      result.rows[1].output = Error{code, "of rank " + std::to_string(rank)};
      step = results.add(std::move(result));
    }
    ASSERT_TRUE(step);
    ASSERT_NE(step->rows.at(1).error(), nullptr);
    EXPECT_EQ(step->rows.at(1).error()->code, ErrorCode::bad_adapter) << "rank " << rank_without;
  }
}

TEST(RankResults, ResultsOfReplacedWorkersAreIgnored) {
  RankResults results(2);
  EXPECT_FALSE(results.add(result_of(1, 0)));
  EXPECT_FALSE(results.add(result_of(2, 0)));
  results.replaced(2, 2);
  EXPECT_FALSE(results.add(result_of(1, 1)));
  EXPECT_FALSE(results.add(result_of(2, 1)));
  EXPECT_FALSE(results.add(result_of(3, 1)));
  EXPECT_EQ(results.add(result_of(3, 0)).value().step, 3U);
}

TEST(RankResults, ASecondReplacementWithNothingInFlightKeepsWhatIsLost) {
  RankResults results(1);
  results.replaced(1, 4);
  results.replaced(1, 0);
  EXPECT_FALSE(results.add(result_of(4, 0)));
  EXPECT_TRUE(results.add(result_of(5, 0)));
}

}  // namespace
}  // namespace pagoda::execution
