// Tests tokens for which a grammar leaves no alternative.

#include <algorithm>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/memory/block_space_manager.hpp"
#include "engine/scheduling/scheduler_core.hpp"
#include "kernels/sample.hpp"
#include "tests/engine/scheduling/mask_jobs.hpp"
#include "tests/engine/scheduling/simulated_grammar.hpp"
#include "tests/engine/scheduling/simulated_model.hpp"

namespace pagoda::scheduling {
namespace {

using test::grammar_of;

/// Returns a token of the simulation's vocabulary, whose texts of several letters begin with a, c, g or l.
TokenId token_of(char c) {
  return c >= 'a' ? c - 'a' + 27 : c - 'A' + 1;
}

std::string text_of(const TokenIds& tokens) {
  std::string text;
  for (const TokenId token : tokens) text += token == test::kEos ? "." : test::simulated_text(token);
  return text;
}

/// Returns the token that a device samples of the allowed ones, which are in the order of their ids.
using Choice = std::function<TokenId(const TokenIds& allowed)>;

TokenId shortest(const TokenIds& allowed) {
  return *std::ranges::min_element(allowed, {}, [](TokenId token) { return test::simulated_text(token).size(); });
}

TokenId longest(const TokenIds& allowed) {
  return *std::ranges::max_element(allowed, {}, [](TokenId token) { return test::simulated_text(token).size(); });
}

SchedulerConfig jump_forward_config(std::int32_t pipeline_depth) {
  SchedulerConfig config;
  config.max_num_seqs = 8;
  config.max_num_batched_tokens = 64;
  config.pipeline_depth = pipeline_depth;
  config.eos_token_ids = {test::kEos};
  config.vocab_size = test::kVocab;
  config.thinking = test::kThinking;
  return config;
}

/// A scheduler with a device that keeps the tokens of rows, and chooses among the tokens that masks allow.
class JumpForward : public testing::Test {
 protected:
  void SetUp() override {}

  void start(std::int32_t pipeline_depth) {
    scheduler_ = std::make_unique<SchedulerCore>(jump_forward_config(pipeline_depth));
    blocks_ = std::make_unique<memory::BlockSpaceManager>(
        memory::BlockSpaceConfig{.layout = KvLayout::uniform(4), .num_device_blocks = 100});
  }

  static std::shared_ptr<RequestSpec> request(const char* regex) {
    auto spec = std::make_shared<RequestSpec>();
    spec->id = 1;
    spec->prompt = std::make_shared<const TokenIds>(TokenIds{1, 2, 3});
    spec->sampling.max_tokens = 40;
    if (regex != nullptr) {
      spec->grammar = grammar_of(regex);
      spec->sampling.structured_outputs.emplace();
    }
    return spec;
  }

  /// Runs the request to its end.
  void run(const SharedSpec& spec) {
    scheduler_->add_group(spec);
    while (step()) {
    }
    EXPECT_TRUE(scheduler_->idle());
  }

  std::string text(std::int32_t index = 0) { return text_of(tokens_[index]); }
  const metrics::StepMetrics& metrics() const { return scheduler_->metrics(); }

  Choice choose_ = shortest;
  std::unique_ptr<SchedulerCore> scheduler_;
  std::unique_ptr<memory::BlockSpaceManager> blocks_;
  std::map<std::int32_t, TokenIds> tokens_;  ///< as reported, by sequence
  std::map<std::int32_t, FinishReason> finished_;
  std::vector<std::int64_t> samples_of_steps_;
  std::optional<Error> error_;
  std::vector<RowDrafts> drafts_;  ///< as reported

 private:
  struct Row {
    std::int32_t index = 0;
    TokenIds tokens;
  };

  bool step() {
    bool goes_on = false;
    while (auto plan = scheduler_->next_memory_request(0)) {
      goes_on = true;
      if (auto step = scheduler_->on_memory_grant(blocks_->plan(*plan).grant, 0))
        in_flight_.push_back(std::move(*step));
      note_events();
    }
    if (in_flight_.empty()) return goes_on;
    const ExecuteStep step = std::move(in_flight_.front());
    in_flight_.pop_front();
    scheduler_->on_step_result(execute(step));
    note_events();
    return true;
  }

  StepResult execute(const ExecuteStep& step) {
    for (const RowId row : step.rows_gone) rows_.erase(row);
    for (const NewRow& fresh : step.new_rows) {
      TokenIds tokens = *fresh.spec.prompt;
      tokens.insert(tokens.end(), fresh.tokens_so_far.begin(), fresh.tokens_so_far.end());
      rows_[fresh.row] = {fresh.sequence_index, std::move(tokens)};
    }
    for (const ForcedToken& forced : step.forced_tokens) {
      TokenIds& tokens = rows_.at(forced.row).tokens;
      EXPECT_LE(forced.position, std::ssize(tokens));
      tokens.resize(static_cast<std::size_t>(forced.position));
      tokens.push_back(forced.token);
    }
    StepResult result;
    result.step = step.step;
    std::int64_t num_samples = 0;
    for (std::size_t i = 0; i < step.work.size(); ++i) {
      const RowWork& work = step.work[i];
      Row& row = rows_.at(work.row);
      EXPECT_LE(work.end_position(), std::ssize(row.tokens)) << "a row runs what it does not have";
      RowResult& row_result = result.rows.emplace_back();
      row_result.sequence = work.sequence;
      row_result.num_computed_tokens = work.end_position();
      const auto first = static_cast<std::int32_t>(result.samples.size());
      std::optional<Error> error;
      num_samples += work.num_samples + work.num_drafts;
      const auto draw = [&](std::size_t place) {
        const TokenId token = sample(step.step, i, place);
        if (token < 0) error = Error{ErrorCode::invalid_request, "nothing is left", {}, -1};
        result.samples.push_back({token, 0, 0, {}});
        return token;
      };
      if (work.num_drafts > 0) {
        const TokenIds before = row.tokens;
        auto end = static_cast<std::size_t>(work.end_position() - work.num_drafts);
        std::size_t place = 0;
        TokenId token = draw(place);
        for (; end < before.size() && token == before[end]; ++end) token = draw(++place);
        row.tokens.resize(end);
        row.tokens.push_back(token);
        row_result.num_computed_tokens = static_cast<std::int32_t>(end);
      } else {
        for (std::int32_t k = 0; k < work.num_samples; ++k) draw(0);
        if (work.num_samples > 0) row.tokens.push_back(result.samples.back().token);
      }
      row_result.output = RowTokens{{first, static_cast<std::int32_t>(std::ssize(result.samples)) - first}};
      if (error) row_result.output = *error;
    }
    EXPECT_LE(num_samples, 8) << "there are no more rows of logits";
    samples_of_steps_.push_back(std::ssize(result.samples));
    return result;
  }

  /// Samples in one of the places of drafts, or after all of them.
  TokenId sample(StepId step, std::size_t work, std::size_t place) {
    const StepMasks& masks = masks_[step];
    const auto first = std::ranges::find(masks.work, static_cast<std::int32_t>(work));
    if (first == masks.work.end()) return token_of('b');  // any token is allowed, or the sequence has ended
    const auto mask = masks.mask(static_cast<std::size_t>(first - masks.work.begin()) + place);
    TokenIds allowed;
    for (TokenId token = 0; token < test::kVocab; ++token) {
      const std::uint32_t word = mask[static_cast<std::size_t>(token) / 32];
      const bool is_allowed = (word >> static_cast<std::uint32_t>(token) % 32 & 1U) != 0;
      if (is_allowed && !banned_.contains(token)) allowed.push_back(token);
    }
    return allowed.empty() ? -1 : choose_(allowed);
  }

  void note_events() {
    scheduler_->masks_made(test::run_all(scheduler_->take_mask_jobs()));
    if (auto masks = scheduler_->take_masks()) masks_[masks->step] = std::move(*masks);
    EXPECT_EQ(scheduler_->check_invariants(), std::nullopt);
    EXPECT_EQ(blocks_->check_invariants(), std::nullopt);
    const StepOutputs outputs = scheduler_->take_outputs();
    for (const SequenceOutput& output : outputs.outputs) {
      EXPECT_FALSE(finished_.contains(output.sequence_index));
      if (output.token) tokens_[output.sequence_index].push_back(output.token->token);
      if (output.finished) finished_[output.sequence_index] = *output.finished;
    }
    for (const RequestEnd& end : outputs.ends) error_ = end.error;
    drafts_.insert(drafts_.end(), outputs.drafts.begin(), outputs.drafts.end());
  }

  std::deque<ExecuteStep> in_flight_;
  std::map<StepId, StepMasks> masks_;
  std::map<RowId, Row> rows_;

 protected:
  std::set<TokenId> banned_;  ///< tokens that the device never samples
};

TEST_F(JumpForward, ATextWithoutAChoiceTakesOneStep) {
  for (const std::int32_t depth : {1, 2}) {
    start(depth);
    tokens_.clear();
    finished_.clear();
    samples_of_steps_.clear();
    run(request("Abefhikm"));
    EXPECT_EQ(text(), "Abefhikm.");
    EXPECT_EQ(finished_.at(0), FinishReason::stop);
    EXPECT_EQ(samples_of_steps_, std::vector<std::int64_t>{1});
    EXPECT_EQ(metrics().forced_tokens, 8);
    EXPECT_EQ(metrics().draft_tokens, 0);
  }
}

TEST_F(JumpForward, WhatFollowsAChoiceForCertainRunsWithIt) {
  start(2);
  run(request("A(befhik|k)[nb]o{3}"));
  EXPECT_EQ(text(), "Abefhikbooo.");
  // The step that samples e is sent before b is known, so the tokens after e run in the next step.
  EXPECT_EQ(samples_of_steps_, std::vector<std::int64_t>({1, 1, 1, 1, 1}));
  EXPECT_EQ(metrics().forced_tokens, 4 + 3);
  EXPECT_EQ(finished_.at(0), FinishReason::stop);
}

TEST_F(JumpForward, NothingRunsBehindAnEndThatIsCertain) {
  start(2);
  run(request("A(n|k)"));
  EXPECT_EQ(text(), "Ak.");
  EXPECT_EQ(samples_of_steps_.size(), 3U);
  EXPECT_EQ(metrics().forced_tokens, 0);
}

TEST_F(JumpForward, WhoAsksForLogprobsHasEachTokenSampled) {
  start(2);
  auto spec = request("Abefhikm");
  spec->sampling.logprobs = 0;
  run(spec);
  EXPECT_EQ(text(), "Abefhikm.");
  EXPECT_EQ(samples_of_steps_, std::vector<std::int64_t>({1, 8}));
  EXPECT_EQ(metrics().forced_tokens, 0);
  EXPECT_EQ(metrics().accepted_draft_tokens, 7);
}

TEST_F(JumpForward, TokensBeyondTheLimitAreNotAppended) {
  for (const bool are_sampled : {false, true}) {
    start(2);
    tokens_.clear();
    finished_.clear();
    auto spec = request("Abefhikm");
    spec->sampling.max_tokens = 4;
    if (are_sampled) spec->sampling.logprobs = 0;
    run(spec);
    EXPECT_EQ(text(), "Abef");
    EXPECT_EQ(finished_.at(0), FinishReason::length);
  }
}

TEST_F(JumpForward, AnEndThatIsBannedIsLeftToTheSampling) {
  start(2);
  auto spec = request("Abef");
  spec->sampling.min_tokens = 10;
  banned_ = {test::kEos};
  run(spec);
  EXPECT_EQ(text(), "Abef");
  ASSERT_TRUE(error_) << "as without jumping";
  EXPECT_EQ(error_->message, "nothing is left");
}

TEST_F(JumpForward, ATokenOfStopTokenIdsEndsWhatIsCertain) {
  for (const bool are_sampled : {false, true}) {
    start(2);
    tokens_.clear();
    finished_.clear();
    auto spec = request("Abefhikm");
    spec->sampling.stop_token_ids = {token_of('f')};
    if (are_sampled) spec->sampling.logprobs = 0;
    run(spec);
    EXPECT_EQ(text(), "Abef");
    EXPECT_EQ(finished_.at(0), FinishReason::stop);
  }
}

TEST_F(JumpForward, SequencesOfARequestJumpOnceTheyAreApart) {
  start(2);
  auto spec = request("[ab]efhikm");
  spec->sampling.n = 3;
  run(spec);
  for (const std::int32_t index : {0, 1, 2}) EXPECT_EQ(text(index), "aefhikm.");
  EXPECT_EQ(samples_of_steps_, std::vector<std::int64_t>({3, 3}));
}

TEST_F(JumpForward, TheEndOfAThinkingBudgetIsCertainToo) {
  start(2);
  auto spec = request(nullptr);
  spec->prompt = std::make_shared<const TokenIds>(TokenIds{1, 2, test::kThinking.begin.front()});
  spec->sampling.thinking_token_budget = 2;
  spec->sampling.max_tokens = 6;
  run(spec);
  ASSERT_EQ(tokens_[0].size(), 6U);
  EXPECT_TRUE(std::ranges::equal(test::kThinking.close, std::span(tokens_[0]).subspan(2, 3)));
  EXPECT_EQ(metrics().forced_tokens, 2);
}

TEST_F(JumpForward, TextThatMayBeCutInSeveralWaysIsDraftedAndSampled) {
  start(2);
  choose_ = longest;
  run(request("[AB]cdefghilm"));
  EXPECT_EQ(text(), "Acdefghilm.");
  EXPECT_EQ(tokens_[0].size(), 5U);
  EXPECT_EQ(samples_of_steps_, std::vector<std::int64_t>({1, 1, 3}));
  EXPECT_EQ(metrics().drafts, 1);
  EXPECT_EQ(metrics().draft_tokens, 2);
  EXPECT_EQ(metrics().accepted_draft_tokens, 2);
  EXPECT_EQ(metrics().forced_tokens, 0);
}

TEST_F(JumpForward, DraftsThatAreSampledOtherwiseLeaveNothingBehind) {
  start(2);
  choose_ = shortest;
  run(request("[AB]cdefghilm"));
  EXPECT_EQ(text(), "Acdefghilm.");
  EXPECT_EQ(tokens_[0].size(), 11U);
  EXPECT_GE(metrics().draft_tokens, 2);
  EXPECT_EQ(metrics().accepted_draft_tokens, 0);
}

TEST_F(JumpForward, OfDraftsThoseBeforeTheFirstWrongOneAreKept) {
  start(2);
  choose_ = [](const TokenIds& allowed) {
    return allowed.front() == token_of('l') ? allowed.front() : longest(allowed);
  };
  run(request("[AB]cdefghilmbe"));
  EXPECT_EQ(text(), "Acdefghilmbe.");
  EXPECT_EQ(samples_of_steps_.at(2), 2);
  EXPECT_EQ(metrics().accepted_draft_tokens, 1);
}

TEST_F(JumpForward, ARequestIsToldOfTheDraftsOfItsRows) {
  start(2);
  run(request("Abefhikm"));
  EXPECT_TRUE(drafts_.empty()) << "forced tokens are no drafts";

  start(2);
  choose_ = [](const TokenIds& allowed) {
    return allowed.front() == token_of('l') ? allowed.front() : longest(allowed);
  };
  auto spec = request("[AB]cdefghilmbe");
  spec->id = 7;
  tokens_.clear();
  finished_.clear();
  run(spec);
  ASSERT_FALSE(drafts_.empty());
  std::int64_t num_drafts = 0;
  std::int64_t num_accepted = 0;
  for (const RowDrafts& row : drafts_) {
    EXPECT_EQ(row.request, 7U);
    EXPECT_GT(row.num_drafts, 0);
    num_drafts += row.num_drafts;
    num_accepted += row.num_accepted;
  }
  EXPECT_EQ(num_accepted, 1);
  EXPECT_EQ(num_accepted, metrics().accepted_draft_tokens);
  EXPECT_EQ(num_drafts, metrics().draft_tokens);
  EXPECT_EQ(std::ssize(drafts_), metrics().drafts);
  EXPECT_EQ(metrics().accepted_at_positions[0], 1);
  EXPECT_EQ(metrics().accepted_at_positions[1], 0);
}

TEST_F(JumpForward, DraftsOfStructuredOutputsDoNotNeedSpeculation) {
  start(2);
  choose_ = longest;
  auto spec = request("[AB]cdefghilm");
  spec->sampling.speculation = false;
  run(spec);
  EXPECT_EQ(text(), "Acdefghilm.");
  EXPECT_EQ(metrics().accepted_draft_tokens, 2);
}

TEST_F(JumpForward, WhatHasFollowedBeforeIsDraftedWhereFewTokensMayFollow) {
  for (const bool is_right : {false, true}) {
    start(2);
    tokens_.clear();
    finished_.clear();
    samples_of_steps_.clear();
    choose_ = [&](const TokenIds& allowed) { return is_right ? allowed.front() : allowed.back(); };
    auto spec = request("q(b|n)(e|f)(h|i)k");
    spec->prompt = std::make_shared<const TokenIds>(
        TokenIds{token_of('q'), token_of('b'), token_of('e'), token_of('h'), token_of('k')});
    run(spec);
    EXPECT_EQ(text(), is_right ? "qbehk." : "qnfik.");
    EXPECT_EQ(metrics().accepted_draft_tokens, is_right ? 4 : 0);
    EXPECT_EQ(samples_of_steps_ == std::vector<std::int64_t>({1, 5}), is_right);
  }
}

TEST(TokensAhead, DropsTheLastDraftsAndKeepsForcedTokens) {
  TokensAhead ahead{{1, 2}, {3, 4, 5}, false};
  ahead.drop_drafts(-1);
  EXPECT_EQ(ahead.size(), 5U);
  ahead.drop_drafts(2);
  EXPECT_EQ(ahead.drafts, TokenIds{3});
  EXPECT_EQ(ahead.at(1), 2);
  EXPECT_EQ(ahead.at(2), 3);
  ahead.drop_drafts(9);
  EXPECT_TRUE(ahead.drafts.empty());
  EXPECT_EQ(ahead.forced, (TokenIds{1, 2}));
}

SequenceGroup group_without_constraint(const OutputHistory& history) {
  SequenceGroup group;
  auto spec = std::make_shared<RequestSpec>();
  spec->prompt = std::make_shared<const TokenIds>(TokenIds{1});
  group.spec = std::move(spec);
  group.follow_spec(SchedulerConfig{}, history);
  return group;
}

TEST(MaskProposer, DraftsTakeNoMoreThanTheirRoom) {
  MaskProposer proposer(nullptr);
  const OutputHistory history{SpeculationConfig{}};
  const SequenceGroup group = group_without_constraint(history);
  Sequence sequence;
  proposer.offer(sequence, {1, 2, 3});
  std::int32_t new_tokens = 0;
  std::vector<double> chances;
  proposer.propose(group, sequence, 8, new_tokens, chances);
  EXPECT_EQ(sequence.ahead.drafts, (TokenIds{1, 2, 3}));
  EXPECT_EQ(chances, (std::vector<double>{1, 1, 1}));
  proposer.propose(group, sequence, 2, new_tokens, chances);
  EXPECT_EQ(sequence.ahead.drafts, (TokenIds{1, 2}));
  proposer.propose(group, sequence, 0, new_tokens, chances);
  EXPECT_TRUE(sequence.ahead.drafts.empty());
}

/// Makes the same draft for each sequence.
class OneDraft final : public Proposer {
 public:
  void propose(const SequenceGroup&, Sequence& sequence, std::size_t max_drafts, std::int32_t&,
               std::vector<double>& chances) override {
    sequence.ahead.drafts.assign(std::min<std::size_t>(max_drafts, 1), 77);
    chances.assign(sequence.ahead.drafts.size(), 0.5);
  }
  void on_result(SequenceId, std::int32_t, std::int32_t) override { ++num_results; }
  void on_fork(SequenceId, SequenceId) override {}
  void erase(SequenceId) override {}
  void save(Encoder&) const override {}
  bool load(Decoder&) override { return true; }

  int num_results = 0;
};

TEST(MaskProposer, TakesDraftsOfTheOtherWhereMasksGiveNone) {
  auto other = std::make_unique<OneDraft>();
  OneDraft& one_draft = *other;
  MaskProposer proposer(std::move(other));
  const OutputHistory history{SpeculationConfig{}};
  const SequenceGroup group = group_without_constraint(history);
  Sequence sequence;
  sequence.id = 3;
  std::int32_t new_tokens = 0;
  std::vector<double> chances;
  proposer.propose(group, sequence, 8, new_tokens, chances);
  EXPECT_EQ(sequence.ahead.drafts, TokenIds{77});
  // They were not planned, and the next mask gives better ones.
  proposer.offer(sequence, {1, 2});
  proposer.propose(group, sequence, 8, new_tokens, chances);
  EXPECT_EQ(sequence.ahead.drafts, (TokenIds{1, 2}));
  proposer.on_result(3, 2, 2);
  EXPECT_EQ(one_draft.num_results, 0);
  sequence.ahead = {};
  proposer.propose(group, sequence, 8, new_tokens, chances);
  proposer.on_result(3, 1, 0);
  EXPECT_EQ(one_draft.num_results, 1);
  EXPECT_EQ(proposer.max_drafts(3), kMaxDrafts);
}

TEST(MaskProposer, WrongDraftsLowerTheNumberOfTheNextOnesAndRightDraftsRaiseIt) {
  MaskProposer proposer(nullptr);
  EXPECT_EQ(proposer.max_drafts(1), kMaxDrafts);
  proposer.on_result(1, 4, 1);
  EXPECT_EQ(proposer.max_drafts(1), kMaxDrafts / 2);
  proposer.on_result(1, 8, 6);
  EXPECT_EQ(proposer.max_drafts(1), 6);
  proposer.on_result(1, 6, 6);
  EXPECT_EQ(proposer.max_drafts(1), 12);
  proposer.on_fork(1, 2);
  proposer.erase(1);
  EXPECT_EQ(proposer.max_drafts(1), kMaxDrafts);
  EXPECT_EQ(proposer.max_drafts(2), 12);
  proposer.on_result(2, 12, 12);
  EXPECT_EQ(proposer.max_drafts(2), kMaxDrafts);
}

TEST(MaskProposer, ALoadedOneGoesOnAsTheSavedOne) {
  const auto bytes_of = [](const MaskProposer& proposer) {
    std::vector<std::byte> bytes;
    Encoder out(bytes);
    proposer.save(out);
    return bytes;
  };
  MaskProposer saved(nullptr);
  EXPECT_EQ(bytes_of(saved), bytes_of(MaskProposer(nullptr)));
  saved.on_result(7, 4, 0);
  const auto bytes = bytes_of(saved);
  Decoder in(bytes);
  MaskProposer loaded(nullptr);
  ASSERT_TRUE(loaded.load(in));
  EXPECT_EQ(loaded.max_drafts(7), saved.max_drafts(7));
  const auto wrong = encode(std::map<SequenceId, std::int32_t>{{7, 1 << 30}});
  Decoder in_wrong(wrong);
  EXPECT_FALSE(MaskProposer(nullptr).load(in_wrong));
}

}  // namespace
}  // namespace pagoda::scheduling
