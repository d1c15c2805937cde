#include "io/serving/tenant_usage.hpp"

#include <algorithm>
#include <cmath>
#include <utility>

namespace pagoda::serving {
namespace {

using std::chrono::milliseconds;

constexpr double kSecondsPerMinute = 60;
/// Retry time of a refusal because too many requests are live. Their ends cannot be predicted.
constexpr milliseconds kRetryLater{1000};

double seconds_between(LimitClock::time_point from, LimitClock::time_point to) {
  return std::max(0.0, std::chrono::duration<double>(to - from).count());
}

std::string counted(std::int64_t count, const char* what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

LimitLevel level_of(const TokenBucket& bucket, LimitClock::time_point now) {
  return {bucket.per_minute(), bucket.remaining(now), bucket.wait_for(bucket.per_minute(), now)};
}

void set_limit(std::optional<TokenBucket>& bucket, std::int64_t per_minute, LimitClock::time_point now) {
  if (per_minute == 0) {
    bucket.reset();
  } else if (bucket) {
    bucket->set_limit(per_minute, now);
  } else {
    bucket.emplace(per_minute, now);
  }
}

}  // namespace

double TokenBucket::level(LimitClock::time_point now) const {
  return std::min(per_minute_, level_ + seconds_between(at_, now) * per_minute_ / kSecondsPerMinute);
}

void TokenBucket::set_limit(std::int64_t per_minute, LimitClock::time_point now) {
  level_ = level(now);
  at_ = now;
  per_minute_ = static_cast<double>(per_minute);
  level_ = std::min(level_, per_minute_);
}

milliseconds TokenBucket::wait_for(std::int64_t amount, LimitClock::time_point now) const {
  const double missing = std::min(static_cast<double>(amount), per_minute_) - level(now);
  constexpr double kRounding = 1e-6;  // a refill in several parts may lack the last bits
  if (missing <= kRounding) return milliseconds(0);
  return milliseconds(
      std::max<std::int64_t>(1, std::llround(std::ceil(1000 * missing * kSecondsPerMinute / per_minute_))));
}

void TokenBucket::take(std::int64_t amount, LimitClock::time_point now) {
  level_ = std::min(per_minute_, level(now) - static_cast<double>(amount));
  at_ = std::max(at_, now);
}

std::int64_t TokenBucket::remaining(LimitClock::time_point now) const {
  constexpr double kRounding = 1e-6;
  return std::max<std::int64_t>(0, static_cast<std::int64_t>(std::floor(level(now) + kRounding)));
}

void TenantUsage::set_limits(const TenantLimits& limits, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  set_limit(requests_, limits.requests_per_minute, now);
  set_limit(tokens_, limits.tokens_per_minute, now);
  max_live_ = limits.max_concurrent_requests;
}

std::optional<LimitRefusal> TenantUsage::admit(std::int64_t num_requests, std::int64_t prompt_tokens,
                                               Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  if (max_live_ > 0 && num_requests > max_live_) {
    return LimitRefusal{"this call has " + counted(num_requests, "request") + ", but this key may have " +
                            std::to_string(max_live_) + " at a time (max_concurrent_requests)",
                        {}};
  }
  if (max_live_ > 0 && live_ + num_requests > max_live_) {
    return LimitRefusal{counted(live_, "request") + " of this key are live, but it may have " +
                            std::to_string(max_live_) + " at a time (max_concurrent_requests)",
                        kRetryLater};
  }
  const auto refuse = [&](const TokenBucket& bucket, std::int64_t amount,
                          const char* what) -> std::optional<LimitRefusal> {
    const auto wait = bucket.wait_for(amount, now);
    if (wait.count() == 0) return std::nullopt;
    const auto seconds = (wait.count() + 999) / 1000;
    return LimitRefusal{"this key has used up its " + counted(bucket.per_minute(), what) + " a minute: try again in " +
                            counted(seconds, "second"),
                        wait};
  };
  if (requests_ && num_requests > requests_->per_minute()) {
    return LimitRefusal{"this call has " + counted(num_requests, "request") + ", but this key may send " +
                            std::to_string(requests_->per_minute()) + " a minute (requests_per_minute)",
                        {}};
  }
  if (requests_) {
    if (auto refusal = refuse(*requests_, num_requests, "request")) return refusal;
  }
  if (tokens_) {
    // A tenant whose bucket is empty waits, even for a request of 0 tokens.
    if (auto refusal = refuse(*tokens_, std::max<std::int64_t>(1, prompt_tokens), "token")) return refusal;
  }
  if (requests_) requests_->take(num_requests, now);
  if (tokens_) tokens_->take(prompt_tokens, now);
  live_ += num_requests;
  return std::nullopt;
}

void TenantUsage::add_tokens(std::int64_t count, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  if (tokens_) tokens_->take(count, now);
}

void TenantUsage::adopt(std::int64_t num_requests) {
  const std::lock_guard lock(mutex_);
  live_ += num_requests;
}

void TenantUsage::ended(std::int64_t num_requests) {
  const std::lock_guard lock(mutex_);
  live_ -= num_requests;
}

void TenantUsage::refused(std::int64_t num_requests, std::int64_t prompt_tokens, Clock::time_point now) {
  const std::lock_guard lock(mutex_);
  live_ -= num_requests;
  if (requests_) requests_->take(-num_requests, now);
  if (tokens_) tokens_->take(-prompt_tokens, now);
}

bool TenantUsage::limits_tokens() const {
  const std::lock_guard lock(mutex_);
  return tokens_.has_value();
}

LimitLevels TenantUsage::levels(Clock::time_point now) const {
  const std::lock_guard lock(mutex_);
  LimitLevels levels;
  if (requests_) levels.requests = level_of(*requests_, now);
  if (tokens_) levels.tokens = level_of(*tokens_, now);
  return levels;
}

TenantTicket& TenantTicket::operator=(TenantTicket&& other) {
  if (this == &other) return *this;
  end();
  usage_ = std::exchange(other.usage_, nullptr);
  num_requests_ = other.num_requests_;
  prompt_tokens_ = other.prompt_tokens_;
  return *this;
}

std::optional<LimitRefusal> TenantTicket::admit(std::shared_ptr<TenantUsage> usage, std::int64_t num_requests,
                                                std::int64_t prompt_tokens) {
  if (!usage) return std::nullopt;
  auto refusal = usage->admit(num_requests, prompt_tokens, LimitClock::now());
  if (refusal) return refusal;
  usage_ = std::move(usage);
  num_requests_ = num_requests;
  prompt_tokens_ = prompt_tokens;
  return std::nullopt;
}

void TenantTicket::adopt(std::shared_ptr<TenantUsage> usage, std::int64_t num_requests) {
  usage->adopt(num_requests);
  usage_ = std::move(usage);
  num_requests_ = num_requests;
}

void TenantTicket::add_tokens(std::int64_t count) {
  if (usage_ && count != 0) usage_->add_tokens(count, LimitClock::now());
}

void TenantTicket::end() {
  if (const auto usage = std::exchange(usage_, nullptr)) usage->ended(num_requests_);
}

void TenantTicket::refused() {
  if (const auto usage = std::exchange(usage_, nullptr)) {
    usage->refused(num_requests_, prompt_tokens_, LimitClock::now());
  }
}

}  // namespace pagoda::serving
