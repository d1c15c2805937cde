// The router's state as bytes. The bytes may be anything, so all values that later code relies on or computes with are
// checked here.

#include <algorithm>

#include "engine/routing/router_core.hpp"
#include "engine/step/codec.hpp"

namespace pagoda::routing {
namespace {

constexpr std::uint64_t kMaxRequestId = std::uint64_t{1} << 62U;
// Maximum length of a prompt; sums of this many fit their type.
constexpr std::int64_t kMaxTokens = std::int64_t{1} << 40U;

bool is_count(std::int64_t value) {
  return value >= 0 && value <= static_cast<std::int64_t>(kMaxRequestId);
}

}  // namespace

void RouterCore::save(Encoder& out) const {
  visit_fields(*this, [&](const auto&... fields) { (out.put(fields), ...); });
  placement_.save(out);
  tokenizer_queue_.save(out);
  grammar_queue_.save(out);
}

bool RouterCore::load(Decoder& in) {
  if (!visit_fields(*this, [&](auto&... fields) { return (in.get(fields) && ...); })) return false;
  if (!placement_.load(in) || !tokenizer_queue_.load(in) || !grammar_queue_.load(in)) return false;
  if (next_id_ > kMaxRequestId || !is_count(aborted_by_drain_) || !is_count(aborted_outside_)) return false;
  if (!is_count(failed_with_replicas_)) return false;
  if (!work_rate_.is_valid() || !ttft_forecast_.is_valid()) return false;
  for (const auto& [id, request] : live_) {
    if (!is_valid(id, request)) return false;
    if (!of_client_[request.client].emplace(request.arrival.tag, id).second) return false;
    live_prompt_tokens_ += request.num_prompt_tokens;
    estimated_prompt_tokens_ += request.estimated_prompt_tokens;
    live_sequences_ += request.num_sequences;
    if (request.grammar_job) wait_for_grammar_[*request.grammar_job].push_back(id);
    if (request.deadline_us) deadlines_.emplace(*request.deadline_us, id);
  }
  const auto is_inside = [](const auto& entry) { return entry.second.outside == nullptr; };
  return std::ranges::count_if(live_, is_inside) == static_cast<std::ptrdiff_t>(placement_.num_placed());
}

bool RouterCore::is_valid(RequestId id, const Request& request) const {
  if (id >= next_id_ || request.arrival.id != id || !is_valid_time(request.arrival.at_us)) return false;
  if (request.timeout_ms < 0 || request.timeout_ms > kMaxTimeoutMs) return false;
  if (request.deadline_us && !is_valid_time(*request.deadline_us)) return false;
  if (request.num_sequences < 1 || request.num_sequences > SamplingLimits{}.max_sequences) return false;
  if (!is_count(request.num_before) || !is_valid_time(request.waited_us)) return false;
  const auto max_estimated = request.num_prompt_tokens > 0 ? 0 : kMaxTokens;
  if (request.estimated_prompt_tokens < 0 || request.estimated_prompt_tokens > max_estimated) return false;
  if (placement_.is_placed(id) != (request.outside == nullptr)) return false;
  const bool needs_adapter = request.outside && !request.outside->adapter.empty() && !has_ended(*request.outside);
  const bool has_adapter = request.adapter.id != 0;
  if (request.waits_for_adapter && (!needs_adapter || has_adapter)) return false;
  if (request.outside && needs_adapter != (request.waits_for_adapter || has_adapter)) return false;
  if (has_adapter && !limits_.has_adapters) return false;
  const bool waits_for_grammar = request.grammar_job && request.outside && request.outside->sampling.structured_outputs;
  if (request.grammar_job && !waits_for_grammar) return false;
  const bool waits = waits_for_grammar || request.waits_for_adapter;
  if (request.encoded && (!waits || request.job || !pagoda::is_valid(request.encoded))) return false;
  if (request.encoded && request.encoded->id != id) return false;
  // A resumable request that has ended was admitted by another engine, which may have had other limits.
  const std::int64_t max_tokens = request.resumable ? kMaxTokens : limits_.max_model_len;
  const bool has_prompt = request.num_prompt_tokens > 0 && request.num_prompt_tokens <= max_tokens;
  if (!request.outside) return has_prompt;
  if (request.encoded ? !has_prompt : request.num_prompt_tokens != 0) return false;
  return has_ended(*request.outside) || check_request(*request.outside, limits_).has_value();
}

}  // namespace pagoda::routing
