// Tests steps that do not wait for the masks of grammars that take long.

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/memory/block_space_manager.hpp"
#include "engine/scheduling/scheduler_core.hpp"
#include "kernels/sample.hpp"
#include "tests/engine/grammar/grammar_text.hpp"
#include "tests/engine/scheduling/mask_jobs.hpp"

namespace pagoda::scheduling {
namespace {

/// Number of items of a grammar for which a step waits in these tests.
constexpr std::uint64_t kInTime = 2'000;

SchedulerConfig late_masks_config(std::int32_t max_num_seqs, std::int32_t pipeline_depth) {
  SchedulerConfig config;
  config.max_num_seqs = max_num_seqs;
  config.max_num_batched_tokens = 512;
  config.pipeline_depth = pipeline_depth;
  config.eos_token_ids = {test::kWordEnd};
  config.vocab_size = test::kWordVocab;
  return config;
}

/// Returns a regex that passes the trial, and whose masks take long in this vocabulary.
std::string hostile_regex(int k) {
  return "(.{0," + std::to_string(12 + k % 40) + "}[aeiou]){2," + std::to_string(4 + k % 7) + "}[x-z]{0," +
         std::to_string(1 + k) + "}";
}

/// A scheduler, its block manager, and a device that keeps the tokens of rows. A job is in time if it needs less than
/// `in_time`. Each other job takes `steps_of_late_job` steps, one after the other.
class Server {
 public:
  explicit Server(std::int32_t max_num_seqs = 64, std::int32_t pipeline_depth = 2, std::int32_t num_blocks = 2000)
      : scheduler_(late_masks_config(max_num_seqs, pipeline_depth)),
        blocks_({.layout = KvLayout::uniform(4), .num_device_blocks = num_blocks}) {}

  void add(RequestId id, const char* regex, std::int64_t max_tokens, std::size_t num_prompt_tokens = 3,
           std::int64_t n = 1) {
    auto spec = std::make_shared<RequestSpec>();
    spec->id = id;
    spec->prompt = std::make_shared<const TokenIds>(num_prompt_tokens, static_cast<TokenId>('a' + id % 20));
    spec->sampling.max_tokens = max_tokens;
    spec->sampling.n = n;
    if (regex != nullptr) {
      static const auto compiler = test::word_compiler();
      spec->grammar = compiler->compile(test::regex(regex)).value();
      spec->sampling.structured_outputs.emplace();
    }
    scheduler_.add_group(std::move(spec));
  }

  /// Fills the pipeline and ends its oldest step. Returns false when there is nothing to run.
  bool step() {
    bool goes_on = false;
    while (advance()) goes_on = true;
    if (in_flight_.empty()) return goes_on || make_late_mask();
    if (masks_follow_plans) bring_masks();
    const ExecuteStep step = std::move(in_flight_.front());
    in_flight_.pop_front();
    ++num_steps;
    scheduler_.on_step_result(execute(step));
    if (num_steps % steps_of_late_job == 0) make_late_mask();
    return true;
  }
  void run() {
    while (step()) {
    }
    EXPECT_TRUE(scheduler_.idle());
  }

  std::int64_t late_masks() const { return scheduler_.metrics().late_masks; }
  std::int64_t num_preemptions() const { return scheduler_.stats().preemptions_recompute_total; }
  std::size_t num_late_jobs() const { return late_jobs_.size(); }

  std::uint64_t in_time = kInTime;
  int steps_of_late_job = 3;
  bool masks_follow_plans = false;  ///< whether the masks of a step come when the next step has been planned
  int num_steps = 0;
  std::map<std::pair<RequestId, std::int32_t>, TokenIds> tokens;  ///< as reported
  std::map<RequestId, std::vector<int>> steps_with_tokens;
  std::map<RequestId, std::size_t> num_ended;  ///< number of sequences

 private:
  struct Row {
    std::int32_t index = 0;
    TokenIds tokens;
  };

  void bring_masks() {
    for (MaskJob& job : scheduler_.take_mask_jobs()) {
      std::uint64_t work = in_time;
      if (in_time > 0 && job.run(work)) {
        made_.push_back(std::move(job.made));
      } else {
        late_jobs_.push_back(std::move(job));
      }
    }
    scheduler_.masks_made(std::exchange(made_, {}));
    scheduler_.masks_late(scheduler_.missing_masks());
    if (auto masks = scheduler_.take_masks()) masks_[masks->step] = std::move(*masks);
  }

  bool advance() {
    if (!masks_follow_plans) bring_masks();
    take_outputs();
    EXPECT_EQ(scheduler_.check_invariants(), std::nullopt);
    EXPECT_EQ(blocks_.check_invariants(), std::nullopt);
    const auto plan = scheduler_.next_memory_request(0);
    if (!plan) return false;
    if (auto step = scheduler_.on_memory_grant(blocks_.plan(*plan).grant, 0)) in_flight_.push_back(std::move(*step));
    return true;
  }

  bool make_late_mask() {
    if (late_jobs_.empty()) return false;
    std::vector<MaskJob> jobs;
    jobs.push_back(std::move(late_jobs_.front()));
    late_jobs_.pop_front();
    made_ = test::run_all(std::move(jobs));
    scheduler_.masks_made(std::exchange(made_, {}));
    return true;
  }

  StepResult execute(const ExecuteStep& step) {
    for (const RowId row : step.rows_gone) rows_.erase(row);
    for (const NewRow& fresh : step.new_rows) {
      TokenIds row_tokens = *fresh.spec.prompt;
      row_tokens.insert(row_tokens.end(), fresh.tokens_so_far.begin(), fresh.tokens_so_far.end());
      rows_[fresh.row] = {fresh.sequence_index, std::move(row_tokens)};
    }
    for (const ForcedToken& forced : step.forced_tokens) {
      TokenIds& row_tokens = rows_.at(forced.row).tokens;
      row_tokens.resize(static_cast<std::size_t>(forced.position));
      row_tokens.push_back(forced.token);
    }
    StepResult result;
    result.step = step.step;
    for (std::size_t i = 0; i < step.work.size(); ++i) {
      const RowWork& work = step.work[i];
      Row& row = rows_.at(work.row);
      EXPECT_LE(work.end_position(), std::ssize(row.tokens)) << "a row runs what it does not have";
      RowResult& row_result = result.rows.emplace_back();
      row_result.sequence = work.sequence;
      const TokenIds before = row.tokens;
      auto end = static_cast<std::size_t>(work.end_position() - work.num_drafts);
      const auto first = result.samples.size();
      for (std::int32_t k = 0; k < work.num_samples; ++k) {
        row.tokens.resize(end);
        TokenId token = sample(step.step, i, 0, row, k);
        result.samples.push_back({token, 0, 0, {}});
        for (std::size_t place = 1; work.num_drafts > 0 && end < before.size() && token == before[end]; ++place) {
          row.tokens.resize(++end, token);
          token = sample(step.step, i, place, row, k);
          result.samples.push_back({token, 0, 0, {}});
        }
      }
      row_result.output =
          RowTokens{{static_cast<std::int32_t>(first), static_cast<std::int32_t>(result.samples.size() - first)}};
      row_result.num_computed_tokens = static_cast<std::int32_t>(end);
      if (work.num_samples > 0)
        row.tokens.push_back(result.samples[first + static_cast<std::size_t>(row_result.samples().count) - 1].token);
      if (work.num_samples > 1) row.tokens.back() = result.samples[first].token;
    }
    return result;
  }

  /// Samples any token of the mask, by a hash of all tokens before. Without a mask, samples a token that no grammar of
  /// these tests accepts.
  TokenId sample(StepId step, std::size_t work, std::size_t place, const Row& row, std::int32_t k) {
    std::size_t hash = static_cast<std::size_t>(row.index + k);
    for (const TokenId token : row.tokens) hash = hash * 31 + static_cast<std::size_t>(token) + 7;
    const StepMasks& masks = masks_[step];
    const auto first = std::ranges::find(masks.work, static_cast<std::int32_t>(work));
    if (first == masks.work.end()) return '\n';
    const auto mask = masks.mask(static_cast<std::size_t>(first - masks.work.begin()) + place);
    TokenIds allowed;
    for (TokenId token = 0; token < test::kWordVocab; ++token) {
      const std::uint32_t word = mask[static_cast<std::size_t>(token) / 32];
      if ((word >> static_cast<std::uint32_t>(token) % 32 & 1U) != 0) allowed.push_back(token);
    }
    EXPECT_FALSE(allowed.empty());
    return allowed.empty() ? '\n' : allowed[(hash >> 5) % allowed.size()];
  }

  void take_outputs() {
    for (const SequenceOutput& output : scheduler_.take_outputs().outputs) {
      if (output.token) {
        tokens[{output.request, output.sequence_index}].push_back(output.token->token);
        steps_with_tokens[output.request].push_back(num_steps);
      }
      num_ended[output.request] += output.finished ? 1 : 0;
    }
  }

  SchedulerCore scheduler_;
  memory::BlockSpaceManager blocks_;
  std::deque<ExecuteStep> in_flight_;
  std::map<StepId, StepMasks> masks_;
  std::map<RowId, Row> rows_;
  std::vector<MadeMask> made_;
  std::deque<MaskJob> late_jobs_;
};

TEST(LateMasks, AStreamBesideSixtyHostileGrammarsHasATokenInEachStep) {
  constexpr std::int64_t kMaxTokens = 100;
  Server alone;
  alone.add(1, nullptr, kMaxTokens);
  alone.run();
  Server beside;
  beside.steps_of_late_job = 1'000'000;  // the threads finish no job
  for (RequestId k = 0; k < 60; ++k) beside.add(2 + k, hostile_regex(static_cast<int>(k)).c_str(), kMaxTokens);
  beside.add(1, nullptr, kMaxTokens);
  while (beside.num_ended[1] == 0) ASSERT_TRUE(beside.step());
  EXPECT_GT(beside.num_late_jobs(), 30U) << "the grammars must take long";
  EXPECT_LE(beside.num_steps, alone.num_steps + 1);
  const std::vector<int>& steps = beside.steps_with_tokens[1];
  for (std::size_t i = 1; i < steps.size(); ++i) EXPECT_EQ(steps[i], steps[i - 1] + 1);
  EXPECT_EQ((beside.tokens[{1, 0}]), (alone.tokens[{1, 0}]));
}

TEST(LateMasks, ChangeNoTokens) {
  for (const std::int32_t depth : {1, 2}) {
    const auto run = [&](Server& server) {
      for (RequestId k = 0; k < 20; ++k) {
        // Prompts of whole blocks are shared, and their last token does not run again.
        server.add(1 + k, hostile_regex(static_cast<int>(k)).c_str(), 30, k % 2 == 0 ? 8 : 5, k % 5 == 0 ? 3 : 1);
      }
      server.add(100, "(ab|cd){20}[0-9]{3}", 60);
      server.run();
    };
    Server in_time(64, depth);
    in_time.in_time = grammar::kMaxMaskWork;
    run(in_time);
    EXPECT_EQ(in_time.late_masks(), 0);
    Server late(64, depth);
    late.in_time = 0;
    late.steps_of_late_job = 1;
    run(late);
    EXPECT_GT(late.late_masks(), 100);
    EXPECT_EQ(late.tokens, in_time.tokens);
    EXPECT_EQ(late.num_ended, in_time.num_ended);
  }
}

TEST(LateMasks, ASequenceThatIsPreemptedWhileItsSampleWaitsForAMaskGetsTheMask) {
  const auto run = [](Server& server) {
    server.masks_follow_plans = true;
    server.in_time = grammar::kMaxMaskWork;
    server.add(1, nullptr, 60);
    for (RequestId id = 2; id <= 4; ++id) server.add(id, "([a-f]{3} ){12}", 60);
    server.run();
  };
  Server roomy;
  run(roomy);
  EXPECT_EQ(roomy.num_preemptions(), 0);
  for (std::int32_t num_blocks = 17; num_blocks < 24; ++num_blocks) {
    Server scarce(64, 2, num_blocks);
    run(scarce);
    EXPECT_GT(scarce.num_preemptions(), 0);
    EXPECT_EQ(scarce.tokens, roomy.tokens) << num_blocks << " blocks";
  }
}

TEST(LateMasks, AtThePromptsEndHoldUpNobodyInTheQueue) {
  Server server(1);  // one row
  server.in_time = 0;
  server.steps_of_late_job = 50;
  server.add(1, "a{3}", 10, 8);
  server.add(2, nullptr, 10);
  while (server.num_ended[2] == 0) ASSERT_TRUE(server.step());
  EXPECT_EQ(server.num_ended[1], 0U);
  EXPECT_EQ(server.late_masks(), 1);
  server.run();
  EXPECT_EQ((server.tokens[{1, 0}]), (TokenIds{'a', 'a', 'a', test::kWordEnd}));
}

}  // namespace
}  // namespace pagoda::scheduling
