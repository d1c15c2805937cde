#include "io/serving/request_record.hpp"

#include <algorithm>

namespace pagoda::serving {
namespace {

void keep_shorter(std::optional<double>& shortest, double ms) {
  shortest = shortest ? std::min(*shortest, ms) : ms;
}

bool is_hex(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

bool is_zero(std::string_view text) {
  return text.find_first_not_of('0') == std::string_view::npos;
}

}  // namespace

void GenerationRecord::asked(const SamplingParams& sampling, const OpenSamplingFields& open) {
  if (!open.max_tokens) max_tokens = sampling.max_tokens;
  if (!open.temperature) temperature = sampling.temperature;
  if (!open.top_p) top_p = sampling.top_p;
  n = sampling.n;
}

void GenerationRecord::done(const RequestResult& result, std::int64_t streamed_tokens) {
  cached_tokens += result.usage.cached_tokens;
  completion_tokens += result.usage.completion_tokens - streamed_tokens;
  num_sequences += std::ssize(result.outputs);
  if (result.timing.queue_ms > 0) keep_shorter(queue_ms, result.timing.queue_ms);
  if (result.timing.ttft_ms > 0) keep_shorter(ttft_ms, result.timing.ttft_ms);
  total_ms = std::max(total_ms.value_or(0), result.timing.total_ms);
  auto worst = FinishReason::stop;
  for (const auto& output : result.outputs) worst = std::max(worst, output.finish_reason);
  constexpr auto kRank = [](std::string_view reason) {
    return reason.empty() ? -1 : reason == "stop" ? 0 : reason == "length" ? 1 : reason == "abort" ? 2 : 3;
  };
  finish_reason = std::max(finish_reason, to_string(worst),
                           [&](std::string_view a, std::string_view b) { return kRank(a) < kRank(b); });
}

std::optional<TraceParent> TraceParent::parse(std::string_view text) {
  constexpr std::size_t kLength = 55;  // 00-TRACE(32)-SPAN(16)-FLAGS(2)
  if (text.size() < kLength || text[2] != '-' || text[35] != '-' || text[52] != '-') return {};
  const auto version = text.substr(0, 2);
  const auto trace = text.substr(3, 32);
  const auto span = text.substr(36, 16);
  const auto flags = text.substr(53, 2);
  if (!is_hex(version) || !is_hex(trace) || !is_hex(span) || !is_hex(flags)) return {};
  if (version == "ff" || is_zero(trace) || is_zero(span)) return {};
  // Later versions may have more fields after a dash.
  if (text.size() > kLength && (version == "00" || text[kLength] != '-')) return {};
  const char low = flags[1];
  const int digit = low <= '9' ? low - '0' : low - 'a' + 10;
  return TraceParent{std::string(trace), std::string(span), (digit & 1) != 0};
}

}  // namespace pagoda::serving
