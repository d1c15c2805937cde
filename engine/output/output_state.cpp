// The state of open requests as bytes. The bytes may be anything, so all values that later code relies on or computes
// with are checked here.

#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "engine/output/output_core.hpp"
#include "engine/step/codec.hpp"

namespace pagoda::output {
namespace {

/// Returns about the number of bytes of the request in a state.
std::size_t estimated_bytes(const OutputCore::Resumable& request) {
  constexpr std::size_t kTokenBytes = 4;
  constexpr std::size_t kTextEndBytes = 2;
  constexpr std::size_t kLogprobBytes = 16;
  constexpr std::size_t kRequestBytes = 256;
  std::size_t bytes = kRequestBytes + request.spec->prompt->size() * kTokenBytes + request.spec->resume->text.size();
  for (const auto& [result, ended] : request.progress->sequences) {
    bytes += result.text.size() + result.token_ids.size() * (kTokenBytes + kTextEndBytes);
    if (result.logprobs) bytes += result.logprobs->num_logprobs() * kLogprobBytes;
  }
  return bytes + request.progress->prompt_logprobs.num_logprobs() * kLogprobBytes;
}

}  // namespace

void OutputCore::save(Encoder& out, Saved which) const {
  std::vector<const RequestState*> in_order;
  for (const auto& [id, request] : requests_) {
    if (which == Saved::all || request.spec->resume) in_order.push_back(&request);
  }
  out.put(max_ended_bytes_);
  std::ranges::sort(in_order, {}, [](const RequestState* request) { return request->spec->id; });
  out.put(in_order.size());
  for (const RequestState* request : in_order) {
    out.put(request->spec);
    out.put(request->spec->resume);
    out.put(*request);
    for (const SequenceState& sequence : request->sequences) {
      out.put(sequence.result);
      out.put(sequence.ended);
    }
  }
  if (which == Saved::live_resumable) return out.put(std::size_t{0});
  out.put(ended_to_resume_.size());
  for (const Ended& ended : ended_to_resume_) {
    out.put(ended.spec);
    out.put(ended.spec->resume);
    out.put(ended.progress);
    out.put(ended.until_us);
  }
}

bool OutputCore::load(Decoder& in) {
  std::size_t num_requests = 0;
  if (!in.get(max_ended_bytes_) || !in.get(num_requests)) return false;
  for (; num_requests > 0; --num_requests) {
    if (!load_request(in)) return false;
  }
  return load_ended(in);
}

namespace {

/// Reads a spec, and behind it the note that is not among its fields.
bool get_spec(Decoder& in, SharedSpec& spec) {
  std::shared_ptr<const ResumeNote> resume;
  if (!in.get(spec) || !is_valid(spec) || !in.get(resume) || !is_valid(resume)) return false;
  if (resume) spec = with_note(*spec, std::move(resume));
  return true;
}

}  // namespace

bool OutputCore::load_request(Decoder& in) {
  SharedSpec spec;
  if (!get_spec(in, spec) || requests_.contains(spec->id)) return false;
  auto begun = std::make_shared<RequestSpec>(*spec);
  // The progress since then follows in the bytes.
  begun->progress = nullptr;
  open(std::move(begun));
  RequestState& request = requests_.at(spec->id);
  request.spec = spec;
  if (!in.get(request) || !is_valid_time(request.first_scheduled_us) || !is_valid_time(request.first_token_us)) {
    return false;
  }
  if (!is_valid_count(request.cached_tokens) || !is_valid_count(request.preemptions) ||
      !is_valid_count(request.restarts) || !is_valid_count(request.draft_tokens) ||
      !is_valid_count(request.drafts_accepted) || !request.prompt_logprobs.is_valid() ||
      request.prompt_logprobs.size() >= spec->own_prompt().size()) {
    return false;
  }
  for (SequenceState& sequence : request.sequences) {
    SequenceResult result;
    bool ended = false;
    if (!in.get(result) || !in.get(ended) || !restore(*spec, std::move(result), ended, sequence)) return false;
    request.num_ended += ended ? 1 : 0;
  }
  // A request that continues from its end stays open until this end is sent.
  return request.num_ended < request.sequences.size() || (spec->progress && spec->progress->has_ended());
}

bool OutputCore::load_ended(Decoder& in) {
  std::size_t num_ended = 0;
  if (!in.get(num_ended)) return false;
  for (; num_ended > 0; --num_ended) {
    Ended ended;
    if (!get_spec(in, ended.spec) || !ended.spec->resume || !in.get(ended.progress) || !in.get(ended.until_us)) {
      return false;
    }
    if (!ended.progress || !ended.progress->has_ended() || !is_valid_time(ended.until_us)) return false;
    if (!is_valid(with_progress(*ended.spec, ended.progress))) return false;
    ended_bytes_ += estimated_bytes({ended.spec, ended.progress});
    ended_to_resume_.push_back(std::move(ended));
  }
  return true;
}

bool OutputCore::restore(const RequestSpec& spec, SequenceResult result, bool ended, SequenceState& sequence) const {
  const SequenceResult begun = std::exchange(sequence.result, std::move(result));
  const SequenceResult& come_to = sequence.result;
  const bool is_valid =
      !come_to.logprobs || (come_to.logprobs->is_valid() && come_to.logprobs->size() == come_to.token_ids.size());
  if (!is_valid) return false;
  if (come_to.logprobs) sequence.result.logprobs->set_texts(tokenizer_);
  sequence.ended = ended;
  if (come_to.index != begun.index || come_to.logprobs.has_value() != begun.logprobs.has_value() ||
      come_to.cumulative_logprob.has_value() != begun.cumulative_logprob.has_value()) {
    return false;
  }
  if (ended) {
    const auto& ends = come_to.text_ends;
    if (ends.size() != come_to.token_ids.size() || !std::ranges::is_sorted(ends) ||
        (!ends.empty() && ends.back() > come_to.text.size())) {
      return false;
    }
    set_unsent(spec, sequence);
    return true;
  }
  std::string text;
  std::vector<std::uint64_t> text_ends;
  for (std::size_t i = 0; i < come_to.token_ids.size(); ++i) {
    const bool may_stop = static_cast<std::int64_t>(i) + 1 > spec.sampling.min_tokens;
    const auto matched = push_token(spec, sequence, come_to.token_ids[i], may_stop);
    if (matched.stop) return false;  // it would have ended there
    text += matched.text;
    text_ends.push_back(text.size());
  }
  if (text != come_to.text || text_ends != come_to.text_ends) return false;
  set_unsent(spec, sequence);
  return true;
}

/// Sets the delta of the text and tokens that no delta contains yet: the whole output if it is chosen at the end,
/// otherwise the part behind the last complete delta.
void OutputCore::set_unsent(const RequestSpec& spec, SequenceState& sequence) {
  const SequenceResult& result = sequence.result;
  const std::size_t num_tokens = result.token_ids.size();
  std::size_t num_sent = 0;
  if (!spec.sampling.chooses_at_end()) {
    if (sequence.ended || num_tokens == 0) return;
    const auto interval = static_cast<std::size_t>(spec.sampling.stream_interval.value_or(1));
    num_sent = num_tokens - (num_tokens - 1) % interval;
  }
  const std::size_t text_sent = num_sent == 0 ? 0 : static_cast<std::size_t>(result.text_ends[num_sent - 1]);
  SequenceDelta& delta = sequence.delta;
  delta.text = result.text.substr(text_sent);
  delta.token_ids.assign(result.token_ids.begin() + static_cast<std::ptrdiff_t>(num_sent), result.token_ids.end());
  delta.logprobs.clear();
  if (result.logprobs && spec.stream) delta.logprobs.add(*result.logprobs, num_sent, num_tokens);
}

RequestProgress OutputCore::progress_of(const RequestState& request) {
  RequestProgress progress;
  for (const SequenceState& sequence : request.sequences) {
    progress.sequences.push_back({sequence.result, sequence.ended});
  }
  progress.prompt_logprobs = request.prompt_logprobs;
  progress.cached_tokens = request.cached_tokens;
  progress.preemptions = request.preemptions;
  progress.restarts = request.restarts;
  progress.draft_tokens = request.draft_tokens;
  progress.drafts_accepted = request.drafts_accepted;
  return progress;
}

std::vector<SharedSpec> OutputCore::with_progress_of(std::span<const RequestId> requests) const {
  std::vector<SharedSpec> all;
  for (const RequestId id : requests) {
    const auto found = requests_.find(id);
    if (found == requests_.end()) continue;
    const RequestState& request = found->second;
    all.push_back(with_progress(*request.spec, std::make_shared<const RequestProgress>(progress_of(request))));
  }
  return all;
}

std::vector<OutputCore::Resumable> OutputCore::resumable() const {
  std::vector<Resumable> all;
  for (const auto& [id, request] : requests_) {
    if (!request.spec->resume) continue;
    all.push_back({request.spec, std::make_shared<const RequestProgress>(progress_of(request))});
  }
  for (const Ended& ended : ended_to_resume_) all.push_back({ended.spec, ended.progress, ended.until_us});
  std::ranges::sort(all, {}, [](const Resumable& request) { return request.spec->id; });
  return all;
}

/// Keeps a resumable request that has ended. Call before its results are moved out, and before sequences that best_of
/// leaves out are dropped.
void OutputCore::keep_ended(const RequestState& request, const std::optional<Error>& error, TimeUs now) {
  if (!request.spec->resume) return;
  auto progress = std::make_shared<RequestProgress>(progress_of(request));
  progress->error = error;
  Ended ended{request.spec, std::move(progress), now + request.spec->resume->keep_ms * 1000};
  ended_bytes_ += estimated_bytes({ended.spec, ended.progress});
  ended_to_resume_.push_back(std::move(ended));
  while (ended_bytes_ > max_ended_bytes_) drop_oldest_ended();
}

void OutputCore::keep_all_ended() {
  max_ended_bytes_ = std::numeric_limits<std::size_t>::max();
}

void OutputCore::forget_ended(TimeUs now) {
  while (!ended_to_resume_.empty() && ended_to_resume_.front().until_us <= now) drop_oldest_ended();
}

void OutputCore::drop_oldest_ended() {
  const Ended& oldest = ended_to_resume_.front();
  ended_bytes_ -= estimated_bytes({oldest.spec, oldest.progress});
  ended_to_resume_.pop_front();
}

}  // namespace pagoda::output
