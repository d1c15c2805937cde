#include "engine/journal/resumable_requests.hpp"

#include <algorithm>
#include <iterator>
#include <utility>
#include <variant>

#include "engine/journal/journal.hpp"
#include "engine/journal/output_records.hpp"

namespace pagoda::journal {
namespace {

TokenReport report_of(const SequenceResult& result, std::size_t i) {
  TokenReport report;
  report.token = result.token_ids[i];
  if (!result.logprobs) return report;
  const LogprobEntry entry = (*result.logprobs)[i];
  report.logprob = entry.logprob;
  report.rank = entry.rank;
  for (const TokenLogprob& candidate : entry.top) report.top.emplace_back(candidate.token_id, candidate.logprob);
  return report;
}

/// Returns whether the last token ended the sequence, and not an end without a token after it.
bool ends_with_token(const RequestProgress::Sequence& sequence, const SamplingParams& sampling) {
  const SequenceResult& result = sequence.result;
  // The text has a stop string.
  if (!sequence.ended || std::holds_alternative<std::string>(result.stop_reason)) return false;
  if (result.finish_reason == FinishReason::stop) return true;
  return result.finish_reason == FinishReason::length && std::ssize(result.token_ids) == sampling.max_tokens;
}

}  // namespace

void ResumableRequests::record(std::span<const std::byte> bytes) {
  num_bytes_ += bytes.size();
  const auto header = read_header(bytes);
  if (!header) {
    ++num_damaged_;
    return;
  }
  const std::uint8_t what = header->what;
  Decoder in(bytes.subspan(kRecordHeaderBytes));
  if (header->core.source == Source::output && what != kEffect && !apply_record(what, in)) {
    ++num_damaged_;
    if (what >= kFirstInput && what != kRecoveryState) on_gap();
  }
}

void ResumableRequests::on_gap() {
  if (core_ == nullptr) return;
  for (auto& request : core_->resumable()) {
    auto& those = request.progress->has_ended() ? ended_before_ : live_before_gap_;
    those.insert_or_assign(request.spec->id, std::move(request));
  }
  core_ = std::make_unique<output::OutputCore>(tokenizer_);
  core_->keep_all_ended();
}

bool ResumableRequests::apply_record(std::uint8_t what, Decoder& in) {
  if (what == kState || what == kRecoveryState) return load(in);
  auto record = read_output_record(static_cast<std::uint8_t>(what - kFirstInput), in);
  if (!record) return false;
  if (core_ == nullptr) return true;  // the core's state was in a segment that is gone
  if (auto* spec = std::get_if<SharedSpec>(&*record)) {
    const auto num_sequences = static_cast<std::size_t>((*spec)->sampling.num_sequences());
    if (num_sequences_ + num_sequences > kMaxSequences + num_bytes_ / kBytesOfSequence) {
      ++num_damaged_;  // the request is left out, and the others are followed
      return true;
    }
    num_sequences_ += num_sequences;
    return core_->open(std::move(*spec));
  }
  const auto& [step, now] = std::get<std::pair<StepOutputs, TimeUs>>(*record);
  if (!core_->takes(step)) return false;
  core_->process(step, now);
  now_ = std::max(now_, now);
  return true;
}

/// Loads a state of the core. If the state is damaged, the state before it stays.
bool ResumableRequests::load(Decoder& in) {
  auto core = std::make_unique<output::OutputCore>(tokenizer_);
  if (!core->load(in) || in.num_left() > 0) return false;
  core->keep_all_ended();
  if (core_) {
    for (auto& request : core_->resumable()) {
      if (request.progress->has_ended()) ended_before_.emplace(request.spec->id, std::move(request));
    }
  }
  core_ = std::move(core);
  live_before_gap_.clear();
  return true;
}

std::vector<output::OutputCore::Resumable> ResumableRequests::take() const {
  auto all = live_before_gap_;
  for (const auto& [id, request] : ended_before_) {
    if (request.until_us > now_) all.emplace(id, request);
  }
  if (core_) {
    for (auto& request : core_->resumable()) all.insert_or_assign(request.spec->id, std::move(request));
  }
  std::vector<output::OutputCore::Resumable> in_order;
  for (auto& [id, request] : all) in_order.push_back(std::move(request));
  return in_order;
}

std::vector<SequenceDelta> sent_deltas(const std::shared_ptr<const text::Tokenizer>& tokenizer, const RequestSpec& spec,
                                       const RequestProgress& progress) {
  if (!spec.stream || spec.sampling.chooses_at_end() || spec.sampling.use_beam_search) return {};
  output::OutputCore core(tokenizer);
  core.open(with_progress(spec, nullptr));
  std::vector<SequenceDelta> sent;
  const auto process = [&](const StepOutputs& step) {
    for (RequestOutput& output : core.process(step, 0).outputs) {
      std::ranges::move(output.deltas, std::back_inserter(sent));
    }
  };
  std::size_t longest = 0;
  for (const auto& [result, ended] : progress.sequences) longest = std::max(longest, result.token_ids.size());
  for (std::size_t i = 0; i < longest; ++i) {
    StepOutputs step;
    for (const auto& sequence : progress.sequences) {
      const SequenceResult& result = sequence.result;
      if (i >= result.token_ids.size()) continue;
      SequenceOutput& output = step.outputs.emplace_back();
      output.request = spec.id;
      output.sequence_index = result.index;
      output.token = report_of(result, i);
      if (i + 1 == result.token_ids.size() && ends_with_token(sequence, spec.sampling)) {
        output.finished = result.finish_reason;
      }
    }
    process(step);
  }
  // An end releases the text that was held back, whatever caused the end.
  StepOutputs ends;
  for (const auto& sequence : progress.sequences) {
    if (!sequence.ended || ends_with_token(sequence, spec.sampling)) continue;
    SequenceOutput& output = ends.outputs.emplace_back();
    output.request = spec.id;
    output.sequence_index = sequence.result.index;
    output.finished = sequence.result.finish_reason;
  }
  process(ends);
  return sent;
}

}  // namespace pagoda::journal
