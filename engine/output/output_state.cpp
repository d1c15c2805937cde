// The state of open requests as bytes. What is read may be anything: what would be followed or computed with later is
// checked here.

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/output/output_core.hpp"
#include "engine/step/codec.hpp"

namespace pagoda::output {

void OutputCore::save(Encoder& out) const {
  std::vector<const RequestState*> in_order;
  for (const auto& [id, request] : requests_) in_order.push_back(&request);
  std::ranges::sort(in_order, {}, [](const RequestState* request) { return request->spec->id; });
  out.put(in_order.size());
  for (const RequestState* request : in_order) {
    out.put(request->spec);
    out.put(*request);
    for (const SequenceState& sequence : request->sequences) {
      out.put(sequence.result);
      out.put(sequence.ended);
    }
  }
}

bool OutputCore::load(Decoder& in) {
  std::size_t num_requests = 0;
  if (!in.get(num_requests)) return false;
  for (; num_requests > 0; --num_requests) {
    if (!load_request(in)) return false;
  }
  return true;
}

bool OutputCore::load_request(Decoder& in) {
  SharedSpec spec;
  if (!in.get(spec) || !is_sound(spec) || requests_.contains(spec->id)) return false;
  open(spec);
  RequestState& request = requests_.at(spec->id);
  if (!in.get(request) || !is_sound_time(request.first_scheduled_us) || !is_sound_time(request.first_token_us)) {
    return false;
  }
  if (!is_sound_count(request.cached_tokens) || !is_sound_count(request.preemptions) ||
      !is_sound_count(request.restarts)) {
    return false;
  }
  for (SequenceState& sequence : request.sequences) {
    if (!load_sequence(in, *spec, sequence)) return false;
    request.num_ended += sequence.ended ? 1 : 0;
  }
  return request.num_ended < request.sequences.size();
}

bool OutputCore::load_sequence(Decoder& in, const RequestSpec& spec, SequenceState& sequence) {
  const SequenceResult begun = sequence.result;
  SequenceResult& result = sequence.result;
  if (!in.get(result) || !in.get(sequence.ended)) return false;
  if (result.index != begun.index || result.logprobs.has_value() != begun.logprobs.has_value() ||
      result.cumulative_logprob.has_value() != begun.cumulative_logprob.has_value()) {
    return false;
  }
  // Nothing of it has been told yet. What others have said was told with the step that brought it.
  if (spec.sampling.chooses_at_end()) {
    sequence.delta = {result.index, result.text, result.token_ids, result.logprobs.value_or(sequence.delta.logprobs)};
  }
  if (sequence.ended) return true;
  std::string text;
  for (std::size_t i = 0; i < result.token_ids.size(); ++i) {
    const std::string piece = sequence.detokenizer.push(result.token_ids[i]);
    if (piece.empty()) continue;
    const bool may_stop = static_cast<std::int64_t>(i) + 1 > spec.sampling.min_tokens;
    const auto matched = sequence.stop_matcher.push(piece, may_stop);
    if (matched.stop) return false;  // it would have ended there
    text += matched.text;
  }
  return text == result.text;
}

}  // namespace pagoda::output
