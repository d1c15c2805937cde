#include "engine/execution/message_checks.hpp"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <string>
#include <utility>

#include "engine/speculation_config.hpp"
#include "kernels/sample.hpp"

namespace pagoda::execution {
namespace {

tl::unexpected<Error> refuse(StepId step, const char* what) {
  return fail(ErrorCode::internal, "the message of step " + std::to_string(step) + " is invalid: " + what);
}

constexpr bool lies_in(std::int64_t value, std::int64_t count) {
  return value >= 0 && value < count;
}

bool lies_in(Range range, std::size_t size) {
  return range.first >= 0 && range.count >= 0 && std::int64_t{range.first} + range.count <= std::int64_t(size);
}

}  // namespace

DeviceMessageChecks::DeviceMessageChecks(DeviceLimits limits)
    : limits_(std::move(limits)), rows_(static_cast<std::size_t>(limits_.max_num_seqs)) {}

DeviceMessageChecks::Row* DeviceMessageChecks::row_at(RowId row) {
  return lies_in(row, limits_.max_num_seqs) ? &rows_[static_cast<std::size_t>(row)] : nullptr;
}

bool DeviceMessageChecks::are_known_tokens(const TokenIds& tokens) const {
  return std::ranges::all_of(tokens, [&](TokenId token) { return lies_in(token, limits_.vocab_size); });
}

bool DeviceMessageChecks::are_valid_words(const std::vector<TokenIds>& words) const {
  std::size_t num_tokens = 0;
  for (const TokenIds& word : words) {
    if (word.empty() || !are_known_tokens(word)) return false;
    num_tokens += word.size();
  }
  return num_tokens <= static_cast<std::size_t>(std::numeric_limits<std::int32_t>::max());
}

bool DeviceMessageChecks::is_valid(const RowSampling& sampling) const {
  const auto is_number = [](double value) { return std::isfinite(value); };
  const auto is_known = [&](const auto& entry) { return lies_in(entry.first, limits_.vocab_size); };
  return is_number(sampling.temperature) && sampling.temperature >= 0 && is_number(sampling.top_p) &&
         is_number(sampling.min_p) && is_number(sampling.presence_penalty) && is_number(sampling.frequency_penalty) &&
         is_number(sampling.repetition_penalty) && sampling.penalty_window >= -1 &&
         std::ranges::all_of(sampling.logit_bias, is_known) && are_known_tokens(sampling.banned_before_min_tokens) &&
         are_known_tokens(sampling.allowed_tokens) && are_valid_words(sampling.bad_words) &&
         sampling.num_logprobs >= -1 && sampling.num_logprobs <= limits_.vocab_size &&
         are_known_tokens(sampling.logprob_tokens) &&
         (sampling.logprob_tokens.empty() || std::ssize(sampling.logprob_tokens) == sampling.num_logprobs) &&
         sampling.num_prompt_logprobs >= -1 && sampling.num_prompt_logprobs <= limits_.vocab_size;
}

bool DeviceMessageChecks::take(const NewRow& fresh) {
  Row* const row = row_at(fresh.row);
  const RowSpec& spec = fresh.spec;
  if (row == nullptr || spec.prompt == nullptr || spec.prompt->empty()) return false;
  const auto num_tokens = std::ssize(*spec.prompt) + std::ssize(fresh.tokens_so_far);
  const auto num_virtual_tokens = spec.adapter.facts.num_virtual_tokens;
  if (num_virtual_tokens < 0 || num_virtual_tokens >= std::ssize(*spec.prompt)) return false;
  if (num_tokens > limits_.max_model_len || fresh.sequence_index < 0 || !are_known_tokens(*spec.prompt) ||
      !are_known_tokens(fresh.tokens_so_far) || !is_valid(spec.sampling)) {
    return false;
  }
  *row = Row{fresh.sequence, std::ssize(*spec.prompt), num_tokens,
             std::vector<std::int64_t>(limits_.layout.groups.size()), spec.sampling.appends_samples};
  return true;
}

bool DeviceMessageChecks::take(const ForcedToken& forced) {
  Row* const row = row_at(forced.row);
  const bool is_valid = row != nullptr && row->prompt_len > 0 && forced.position >= row->prompt_len &&
                        forced.position <= std::min(row->num_tokens, limits_.max_model_len) &&
                        lies_in(forced.token, limits_.vocab_size);
  if (is_valid) row->num_tokens = std::int64_t{forced.position} + 1;
  return is_valid;
}

bool DeviceMessageChecks::take(const RowTableDelta& delta, const std::vector<BlockId>& blocks) {
  Row* const row = row_at(delta.row);
  if (row == nullptr || row->prompt_len == 0 || !lies_in(delta.kv_group, limits_.layout.num_groups()) ||
      !lies_in(delta.blocks, blocks.size())) {
    return false;
  }
  std::int64_t& num_blocks = row->num_blocks[static_cast<std::size_t>(delta.kv_group)];
  if (delta.first_block < 0 || delta.first_block > num_blocks) return false;
  num_blocks = std::int64_t{delta.first_block} + delta.blocks.count;
  return num_blocks <= limits_.layout.table_size(limits_.max_model_len);
}

bool DeviceMessageChecks::is_valid(const RowWork& work) {
  const Row* const row = row_at(work.row);
  return row != nullptr && row->prompt_len > 0 && row->sequence == work.sequence && work.first_position >= 0 &&
         work.num_tokens > 0 && std::int64_t{work.first_position} + work.num_tokens <= limits_.max_model_len &&
         work.num_samples >= 0 && work.num_samples <= limits_.max_num_seqs && work.num_drafts >= 0 &&
         (work.num_drafts == 0 || (work.num_samples == 1 && work.num_drafts < work.num_tokens)) &&
         has_valid_draft_inputs(work, *row) && work.num_prompt_logprobs >= 0 &&
         work.num_prompt_logprobs <= work.num_tokens && work.first_prompt_logprob >= 0 &&
         (work.num_prompt_logprobs == 0 ||
          std::int64_t{work.first_prompt_logprob} + work.num_prompt_logprobs <= row->prompt_len);
}

bool DeviceMessageChecks::has_valid_draft_inputs(const RowWork& work, const Row& row) const {
  if (work.num_draft_inputs == 0 && work.first_draft_input == 0) return true;
  const std::int64_t end = std::int64_t{work.first_draft_input} + work.num_draft_inputs;
  const std::int64_t end_of_known = std::int64_t{work.end_position()} - work.num_drafts;
  // A head reads a token with the features of the token before it, which an earlier step has computed. So it reads
  // nothing of a row with one token, behind which it cannot draft.
  const bool has_features =
      !limits_.has_draft_head || (end <= std::int64_t{work.first_position} + 1 && (work.num_drafts == 0 || end > 1));
  return limits_.has_draft_model && has_features && work.first_draft_input >= 0 && work.num_draft_inputs > 0 &&
         end <= end_of_known &&
         (work.num_drafts == 0 || (end == end_of_known && end <= row.num_tokens && !work.has_mask &&
                                   work.num_drafts <= SpeculationConfig::kMaxTokens));
}

Status DeviceMessageChecks::check(const ExecuteStep& step) {
  if (step.step <= last_step_) return refuse(step.step, "its step is not after the last one");
  last_step_ = step.step;
  for (const RowId gone : step.rows_gone) {
    Row* const row = row_at(gone);
    if (row == nullptr) return refuse(step.step, "it removes a row that does not exist");
    *row = Row{};
  }
  for (const NewRow& fresh : step.new_rows) {
    if (!take(fresh)) return refuse(step.step, "invalid new row");
  }
  for (const ForcedToken& forced : step.forced_tokens) {
    if (!take(forced)) return refuse(step.step, "invalid forced token");
  }
  for (const BlockId block : step.blocks) {
    if (!lies_in(block, limits_.num_device_blocks)) return refuse(step.step, "a block is not in the device pool");
  }
  for (const RowTableDelta& delta : step.table_deltas) {
    if (!take(delta, step.blocks)) return refuse(step.step, "invalid change of a block table");
  }
  std::int64_t num_tokens = 0;
  std::int64_t num_samples = 0;
  std::int64_t num_draft_inputs = 0;
  std::vector<std::int32_t> masks_of_work;
  std::vector<bool> runs(rows_.size());
  for (const RowWork& work : step.work) {
    if (work.has_mask && work.num_samples == 0) return refuse(step.step, "a row with a mask samples nothing");
    if (!is_valid(work) || runs[static_cast<std::size_t>(work.row)]) return refuse(step.step, "invalid work of a row");
    runs[static_cast<std::size_t>(work.row)] = true;
    masks_of_work.push_back(work.has_mask ? 1 + work.num_drafts : 0);
    num_tokens += work.num_tokens;
    num_draft_inputs += work.num_draft_inputs;
    Row& row = rows_[static_cast<std::size_t>(work.row)];
    if (work.num_made_drafts() > 0) row.num_tokens = work.end_position();
    if (work.num_samples > 0 && row.appends_samples && row.num_tokens >= work.end_position()) {
      row.num_tokens = std::int64_t{work.end_position()} + 1;
    }
    num_samples += work.num_samples + work.num_drafts;
    if (work.num_drafts > work.num_made_drafts() && !has_drafts_of(step, work))
      return refuse(step.step, "drafts without forced tokens");
  }
  if (num_samples > limits_.max_num_samples) return refuse(step.step, "more samples than a step has room for");
  if (num_tokens > limits_.max_num_batched_tokens) return refuse(step.step, "more tokens than a step may run");
  if (num_draft_inputs > limits_.max_num_batched_tokens) {
    return refuse(step.step, "the draft model reads more tokens than a step may run");
  }
  const bool has_masks = std::ranges::any_of(masks_of_work, [](std::int32_t count) { return count > 0; });
  if (step.wait_for_masks != has_masks) return refuse(step.step, "wait_for_masks does not match the masks of its work");
  if (has_masks) waiting_for_masks_.emplace(step.step, std::move(masks_of_work));
  return {};
}

Status DeviceMessageChecks::check(const StepMasks& masks) {
  const auto found = waiting_for_masks_.extract(masks.step);
  if (!found) return refuse(masks.step, "no step waits for these masks");
  if (masks.words.size() != masks.work.size() * kernels::mask_words(limits_.vocab_size)) {
    return refuse(masks.step, "the masks have the wrong size for this vocabulary");
  }
  std::vector<std::int32_t>& left = found.mapped();
  std::int32_t before = 0;
  for (const std::int32_t i : masks.work) {
    const bool is_valid = i >= before && lies_in(i, std::ssize(left)) && left[static_cast<std::size_t>(i)]-- > 0;
    if (!is_valid) return refuse(masks.step, "a mask for work that has none");
    before = i;
  }
  return {};
}

Status DeviceMessageChecks::check(const CachePlan& plan) const {
  const auto all_lie = [&](const std::vector<BlockMove>& moves, std::int32_t num_from, std::int32_t num_to) {
    return std::ranges::all_of(moves, [&](const BlockMove& move) {
      return lies_in(move.from, num_from) && lies_in(move.to, num_to) && move.last_touched_step <= plan.step;
    });
  };
  const std::int32_t device = limits_.num_device_blocks;
  const std::int32_t host = limits_.num_host_blocks;
  const bool is_valid = all_lie(plan.swap_out, device, host) && all_lie(plan.swap_in, host, device) &&
                        all_lie(plan.copies, device, device);
  return is_valid ? Status() : Status(refuse(plan.step, "invalid move of a block"));
}

bool DeviceMessageChecks::has_drafts_of(const ExecuteStep& step, const RowWork& work) {
  const auto is_draft = [&](const ForcedToken& forced) {
    return forced.row == work.row && forced.position >= work.end_position() - work.num_drafts &&
           forced.position < work.end_position();
  };
  return std::ranges::count_if(step.forced_tokens, is_draft) == work.num_drafts;
}

void ResultChecks::sent(const ExecuteStep& step) {
  in_flight_.push_back({step.step, step.work});
}

bool ResultChecks::is_in_flight(StepId step) const {
  return std::ranges::any_of(in_flight_, [&](const Step& sent) { return sent.step == step; });
}

bool ResultChecks::is_valid(const TokenReport& report) const {
  return lies_in(report.token, limits_.vocab_size) &&
         std::ranges::all_of(report.top, [&](const auto& entry) { return lies_in(entry.first, limits_.vocab_size); });
}

bool ResultChecks::is_valid(const StepResult& result, const RowResult& row, const RowWork& work) const {
  if (row.sequence != work.sequence) return false;
  if (row.error() != nullptr) return true;  // its other fields have no meaning
  const Range samples = row.samples();
  if (!limits_.samples) {
    return samples.count == 0 && row.prompt_logprobs.count == 0 && row.num_computed_tokens == work.end_position();
  }
  const std::int64_t num_right = std::int64_t{samples.count} - work.num_samples;  // number of correct drafts
  if (num_right < 0 || num_right > work.num_drafts ||
      row.num_computed_tokens != work.end_position() - work.num_drafts + num_right ||
      !lies_in(samples, result.samples.size()) || !lies_in(row.prompt_logprobs, result.prompt_logprobs.size()) ||
      row.prompt_logprobs.count != work.num_prompt_logprobs) {
    return false;
  }
  const auto all_valid = [this](const std::vector<TokenReport>& reports, Range range) {
    const auto first = reports.begin() + range.first;
    return std::all_of(first, first + range.count, [this](const TokenReport& report) { return is_valid(report); });
  };
  return all_valid(result.samples, samples) && all_valid(result.prompt_logprobs, row.prompt_logprobs);
}

Status ResultChecks::check(const StepResult& result) {
  if (in_flight_.empty() || in_flight_.front().step != result.step)
    return refuse(result.step, "its step is not the oldest in flight");
  const Step step = std::move(in_flight_.front());
  in_flight_.pop_front();
  if (!is_valid_time(result.started_us) || !is_valid_time(result.finished_us) || !is_valid_time(result.draft_us)) {
    return refuse(result.step, "invalid time");
  }
  if (result.error) return result.rows.empty() ? Status() : Status(refuse(result.step, "a failed step has rows"));
  if (!limits_.samples && (!result.samples.empty() || !result.prompt_logprobs.empty())) {
    return refuse(result.step, "tokens of a stage that does not sample");
  }
  if (result.rows.size() != step.work.size()) return refuse(result.step, "the number of rows differs from the step's");
  for (std::size_t i = 0; i < step.work.size(); ++i) {
    if (!is_valid(result, result.rows[i], step.work[i])) return refuse(result.step, "invalid result of a row");
  }
  return {};
}

}  // namespace pagoda::execution
