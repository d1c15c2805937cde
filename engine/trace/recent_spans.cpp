#include "engine/trace/recent_spans.hpp"

#include <algorithm>

#include "kernels/result.hpp"

namespace pagoda::trace {

void RecentSpans::add(Row row, const char* name, TimeUs started_us, TimeUs finished_us, std::initializer_list<Arg> args,
                      Place place) {
  PAGODA_ASSERT(args.size() <= Span::kMaxArgs, "a span has few arguments");
  const std::lock_guard lock(mutex_);
  if (finished_us > watched_until_us_) {
    is_on_.store(false, std::memory_order_relaxed);
    ring_ = {};
  }
  if (ring_.empty()) return;
  Span& span = ring_[num_recorded_++ % kMaxSpans];
  span = {row, name, started_us, finished_us, static_cast<std::uint8_t>(args.size()), {}, place};
  std::ranges::copy(args, span.all_args.begin());
}

RecentSpans::Since RecentSpans::since(std::uint64_t number, std::size_t max_spans, TimeUs now) {
  const std::lock_guard lock(mutex_);
  watched_until_us_ = now + kWatchUs;
  Since found{{}, num_recorded_};
  if (ring_.empty()) {
    ring_.resize(kMaxSpans);
    first_ = num_recorded_;
    is_on_.store(true, std::memory_order_relaxed);
    return found;
  }
  const std::uint64_t wanted = std::min<std::uint64_t>(max_spans, kMaxSpans);
  const auto last = [this](std::uint64_t count) {
    return std::max(first_, num_recorded_ - std::min(num_recorded_, count));
  };
  const std::uint64_t oldest = last(wanted);
  for (auto at = std::max(number, last(kMaxSpans)); at < num_recorded_; ++at) {
    const Span& span = ring_[at % kMaxSpans];
    if (at >= oldest || span.row == Row::device) found.spans.push_back(span);
  }
  return found;
}

}  // namespace pagoda::trace
