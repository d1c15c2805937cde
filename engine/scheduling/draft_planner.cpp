#include "engine/scheduling/draft_planner.hpp"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>

#include "kernels/result.hpp"

namespace pagoda::scheduling {
namespace {

/// Drafts that gain less are dropped: as long as drafts run, nothing is planned behind them, which costs a little time.
constexpr double kMinGain = 1.02;

/// Number of plans after which a run of the draft model is tried, though it did not pay.
constexpr std::int32_t kMaxPlansWithoutRun = 256;

/// Minimum number of unread tokens that a step has time for.
constexpr std::int32_t kMinChunkToRead = 64;

/// Returns the expected duration. A size that is far larger than those that were measured is taken to be as fast as a
/// smaller one, so that it is tried.
double finite_us(const StepTimeCurve& times, std::int32_t num_tokens) {
  double us = times.expected_us_of(num_tokens);
  while (std::isinf(us) && num_tokens > 1) us = times.expected_us_of(num_tokens /= 2);
  return us;
}

}  // namespace

template <class Visit>
void DraftPlanner::visit_drafting(const Visit& visit) const {
  for (SequenceGroup* group : table_.running) {
    if (group->decoding->proposer() == nullptr) continue;
    for (Sequence& s : group->sequences) {
      if (!s.waits) visit(*group, s);
    }
  }
}

/// Gives the drafts of each sequence their room: each draft takes the place of one more row in a step's samples.
void DraftPlanner::plan(const Step& step) {
  expected_us_.clear();
  drafters_.clear();
  fewest_ = step.num_tokens;
  std::int32_t room = step.max_drafts;
  std::int32_t new_tokens = kMaxLookedUpTokens;
  const Gain without{step.num_tokens, static_cast<double>(step.num_tokens), expected_us(step.num_tokens)};
  Gain with = without;
  visit_drafting([&](SequenceGroup& group, Sequence& s) {
    const auto most = static_cast<std::size_t>(step.may_run(group) ? room : 0);
    group.decoding->proposer()->propose(group, s, most, new_tokens, chances_);
    PAGODA_ASSERT(s.ahead.drafts.size() <= most, "a proposer keeps to its room");
    s.max_draft_inputs = 0;
    if (s.ahead.has_made_drafts()) return add_drafter(group, s);
    PAGODA_ASSERT(s.ahead.drafts.size() == chances_.size(), "each draft has a chance");
    s.ahead.drop_drafts(std::ssize(chances_) - add_drafts_that_pay(with));
    room -= static_cast<std::int32_t>(s.ahead.drafts.size());
  });
  use_draft_model(without, with, room);
  if (with.num_tokens == without.num_tokens || with.pays_more_than(without, kMinGain)) return;
  visit_drafting([this](SequenceGroup&, Sequence& s) {
    s.ahead.drafts.clear();
    if (s.max_draft_inputs <= config_.max_catch_up()) s.max_draft_inputs = 0;
  });
}

/// Remembers the durations for the current plan: they are asked for again for each sequence.
double DraftPlanner::expected_us(std::int32_t num_tokens) {
  for (auto next = fewest_ + static_cast<std::int32_t>(expected_us_.size()); next <= num_tokens; ++next) {
    expected_us_.push_back(step_times_.expected_us_of(next));
  }
  return expected_us_[static_cast<std::size_t>(num_tokens - fewest_)];
}

/// Takes as many drafts with chances_ as raise the number of tokens that the step keeps in its time the most. Adds them
/// to the step, and returns their number.
std::int32_t DraftPlanner::add_drafts_that_pay(Gain& step) {
  Gain best = step;
  Gain more = step;
  for (const double chance : chances_) {
    ++more.num_tokens;
    more.num_kept += chance;
    more.us = expected_us(more.num_tokens);
    if (more.pays_more_than(best)) best = more;
  }
  return best.num_tokens - std::exchange(step, best).num_tokens;
}

/// Before a sequence has results, those of all sequences count. In plans without results of a sequence, what is known
/// of it fades, so that its drafts are tried again: its text may have become easier to guess.
void DraftPlanner::add_drafter(const SequenceGroup& group, Sequence& s) {
  constexpr double kFadeInPlan = 0.998;
  constexpr double kFirstShare = 0.6;  // of right drafts, before there are results
  const auto most = static_cast<std::int32_t>(std::exchange(s.ahead.drafts, {}).size());
  const double chance = s.made_drafts.share_right(outcomes_.share_right(kFirstShare));
  s.made_drafts.fade(kFadeInPlan);
  // A head can read a token once an earlier step has run the token before it.
  if (config_.speculation.has_draft_head() && group.length(s) - s.num_scheduled_tokens != 1) return;
  std::int32_t max_drafts = 0;
  for (double of_all = chance; max_drafts < most && of_all >= config_.speculation.min_chance; of_all *= chance) {
    ++max_drafts;
  }
  if (max_drafts > 0) drafters_.push_back({&group, &s, chance, max_drafts, group.length(s) - s.num_drafted_tokens});
}

void DraftPlanner::made_drafts_verified(Sequence* sequence, std::int32_t num_drafts, std::int32_t num_right) {
  outcomes_.add(num_drafts, num_right);
  if (sequence != nullptr) sequence->made_drafts.add(num_drafts, num_right);
}

/// Adds the drafts of sequences that the draft model has read. Others are read if their drafts would pay, too.
void DraftPlanner::use_draft_model(const Gain& without, Gain& step, std::int32_t room) {
  if (drafters_.empty() || std::isinf(without.us)) return;
  constexpr double kFadeInPlan = 0.999;  // so that a model whose drafts were wrong is tried again
  outcomes_.fade(kFadeInPlan);
  std::ranges::stable_sort(drafters_, std::greater{}, &Drafter::chance);
  Gain with_all = step;
  add_runs_that_pay(with_all, drafters_, room);
  const bool may_read = with_all.num_tokens > step.num_tokens && with_all.pays_more_than(without, kMinGain);
  const auto is_ready = [this](const Drafter& drafter) { return drafter.num_unread <= config_.max_catch_up(); };
  std::span behind = std::ranges::stable_partition(drafters_, is_ready);
  const std::span ready(drafters_.data(), drafters_.size() - behind.size());
  if (behind.empty()) {
    step = with_all;
  } else {
    add_runs_that_pay(step, ready, room);
  }
  std::int32_t inputs_left = config_.max_num_batched_tokens;
  for (const Drafter& drafter : ready) {
    if (drafter.num_drafts == 0 || drafter.num_unread > inputs_left) continue;
    drafter.sequence->ahead.drafts.assign(static_cast<std::size_t>(drafter.num_drafts), kMadeDraft);
    drafter.sequence->max_draft_inputs = drafter.num_unread;
    inputs_left -= drafter.num_unread;
  }
  const auto makes_drafts = [](const Drafter& drafter) { return drafter.sequence->ahead.has_made_drafts(); };
  num_plans_without_run_ =
      std::ranges::any_of(ready, makes_drafts) ? 0 : std::min(num_plans_without_run_ + 1, kMaxPlansWithoutRun);
  if (!may_read || behind.empty()) return;
  if (run_times_.is_sure() && num_plans_without_run_ >= kMaxPlansWithoutRun) {
    // Runs did not pay. Trying them again is worth the time to read one sequence.
    const auto shortest = std::ranges::min_element(behind, {}, &Drafter::num_unread) - behind.begin();
    behind = behind.subspan(static_cast<std::size_t>(shortest), 1);
  }
  const double saved_us = without.us_of_token() - with_all.us_of_token();
  let_read(behind, saved_us, std::min(inputs_left, max_inputs(step.us + step.us_of_runs)));
}

/// Adds runs of the draft model, for all these sequences together: the first run makes the first drafts, the second run
/// the second ones, and so on. Where not all drafts have room, sequences that come first have theirs.
void DraftPlanner::add_runs_that_pay(Gain& step, std::span<Drafter> drafters, std::int32_t room) {
  for (Drafter& drafter : drafters) {
    drafter.chance_of_last = 1;
    drafter.num_drafts = 0;
  }
  Gain more = step;
  std::int32_t num_runs = 0;
  const std::int32_t room_of_all = room;
  // One run is tried, however long it takes, until its duration is known. Later it is tried again from time to time,
  // since runs may have become faster.
  const bool is_trial = !run_times_.is_sure() || num_plans_without_run_ >= kMaxPlansWithoutRun;
  for (std::int32_t run = 0; !is_trial || run == 0; ++run) {
    const std::int32_t added = add_run(more, drafters, run, room);
    if (is_trial) more.us_of_runs = step.us_of_runs;
    const bool is_late =
        config_.target_step_us > 0 && more.us + more.us_of_runs > static_cast<double>(config_.target_step_us);
    if (added == 0 || is_late) break;
    room -= added;
    if (!more.pays_more_than(step)) continue;
    step = more;
    num_runs = run + 1;
  }
  room = room_of_all;
  for (std::int32_t run = 0; run < num_runs; ++run) {
    for (Drafter& drafter : drafters) {
      if (run >= drafter.max_drafts || room == 0) continue;
      ++drafter.num_drafts;
      --room;
    }
  }
}

/// Adds a run to the step, and returns the number of drafts that it makes, at most `room`.
std::int32_t DraftPlanner::add_run(Gain& step, std::span<Drafter> drafters, std::int32_t run, std::int32_t room) {
  std::int32_t num_drafts = 0;
  std::int32_t num_inputs = 0;
  for (Drafter& drafter : drafters) {
    if (run >= drafter.max_drafts || num_drafts == room) continue;
    ++num_drafts;
    num_inputs += run == 0 && drafter.num_unread <= config_.max_catch_up() ? drafter.num_unread : 1;
    step.num_kept += drafter.chance_of_last *= drafter.chance;
  }
  if (num_drafts == 0) return 0;
  step.num_tokens += num_drafts;
  step.us = expected_us(step.num_tokens);
  step.us_of_runs += finite_us(run_times_, num_inputs);
  return num_drafts;
}

/// Lets the draft model read up to `left` tokens of sequences that are far behind, if their drafts, which save
/// `saved_us` of each token's time, will save the time of reading.
void DraftPlanner::let_read(std::span<const Drafter> behind, double saved_us, std::int32_t left) {
  for (const Drafter& drafter : behind) {
    if (left <= config_.max_catch_up() || !should_read(drafter, saved_us)) continue;
    drafter.sequence->max_draft_inputs = std::min(drafter.num_unread, left);
    left -= drafter.sequence->max_draft_inputs;
  }
}

bool DraftPlanner::should_read(const Drafter& drafter, double saved_us) const {
  const auto num_left =
      static_cast<double>(drafter.group->spec->sampling.max_tokens - drafter.sequence->num_generated());
  const std::int32_t chunk = std::min(drafter.num_unread, kMinChunkToRead);
  return finite_us(read_times_, chunk) * drafter.num_unread / chunk <= saved_us * num_left;
}

/// Returns the maximum number of tokens that the draft model reads beside a step of this duration: as prompts, it may
/// lengthen the step by max_chunk_us, and keeps to target_step_us.
std::int32_t DraftPlanner::max_inputs(double us_of_step) const {
  const auto within = [this](double us) {
    if (us <= 0) return 0.0;
    const double tokens = read_times_.tokens_within(us);
    return tokens > 0 ? std::max<double>(kMinChunkToRead, tokens) : kMinChunkToRead;
  };
  double most = config_.max_num_batched_tokens;
  if (config_.max_chunk_us > 0) most = std::min(most, within(static_cast<double>(config_.max_chunk_us)));
  if (config_.target_step_us > 0) {
    most = std::min(most, within(static_cast<double>(config_.target_step_us) - us_of_step));
  }
  return static_cast<std::int32_t>(most);
}

/// The runs of a step are measured together. Where some sequences were far behind, the time above that of usual runs is
/// theirs.
void DraftPlanner::runs_measured(const InFlightStep& step, TimeUs duration_us) {
  if (step.num_draft_runs == 0) return;
  const std::int64_t others = step.num_draft_inputs - step.num_caught_up;
  const std::int64_t each = (others + step.num_draft_runs - 1) / step.num_draft_runs;
  if (step.num_caught_up == 0) return run_times_.step_measured(each, duration_us / step.num_draft_runs);
  const double usual_us = others == 0 ? 0 : run_times_.us_of(each) * static_cast<double>(step.num_draft_runs);
  read_times_.step_measured(step.num_caught_up, duration_us - static_cast<TimeUs>(usual_us));
}

}  // namespace pagoda::scheduling
