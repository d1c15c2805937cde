#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace pagoda::serving {

/// Limits of a tenant; 0: no limit.
struct TenantLimits {
  std::int64_t requests_per_minute = 0;
  std::int64_t tokens_per_minute = 0;  ///< tokens of prompts and outputs
  std::int64_t max_concurrent_requests = 0;

  bool operator==(const TenantLimits&) const = default;
};

using LimitClock = std::chrono::steady_clock;

/// Token bucket: refills with `per_minute` a minute and holds at most the amount of one minute. A plain state machine.
class TokenBucket {
 public:
  /// The bucket begins full. `per_minute` must be above 0.
  TokenBucket(std::int64_t per_minute, LimitClock::time_point now)
      : per_minute_(static_cast<double>(per_minute)), level_(per_minute_), at_(now) {}

  /// Changes the limit. The content stays, up to the new limit.
  void set_limit(std::int64_t per_minute, LimitClock::time_point now);

  /// Returns the time until the bucket holds `amount`, or is full if `amount` is above the limit; 0: now.
  std::chrono::milliseconds wait_for(std::int64_t amount, LimitClock::time_point now) const;

  /// Takes `amount` out of the bucket, whose content may become negative. A negative amount is put back.
  void take(std::int64_t amount, LimitClock::time_point now);

  /// Returns the content, rounded down and at least 0.
  std::int64_t remaining(LimitClock::time_point now) const;
  std::int64_t per_minute() const { return static_cast<std::int64_t>(per_minute_); }

 private:
  double level(LimitClock::time_point now) const;

  double per_minute_;
  double level_;  ///< content at the time `at_`; may be below 0
  LimitClock::time_point at_;
};

/// Reason for which requests are refused.
struct LimitRefusal {
  std::string message;
  std::chrono::milliseconds retry_after{};  ///< 0: they will never be accepted
};

/// Current state of a limit.
struct LimitLevel {
  std::int64_t limit = 0;
  std::int64_t remaining = 0;
  std::chrono::milliseconds reset{};  ///< time until the whole limit is available again
};
struct LimitLevels {
  std::optional<LimitLevel> requests;  ///< absent: no limit
  std::optional<LimitLevel> tokens;    ///< absent: no limit
};

/// Usage of a tenant's limits, for all its keys and all servers of the process. Thread-safe.
class TenantUsage {
 public:
  using Clock = LimitClock;

  TenantUsage(const TenantLimits& limits, Clock::time_point now) { set_limits(limits, now); }

  /// Changes the limits. The usage up to now stays counted.
  void set_limits(const TenantLimits& limits, Clock::time_point now);

  /// Admits all `num_requests` requests with `prompt_tokens` tokens together, or none. Admitted requests are live until
  /// ended() or refused(). Returns the refusal, or nothing if they are admitted.
  std::optional<LimitRefusal> admit(std::int64_t num_requests, std::int64_t prompt_tokens, Clock::time_point now);

  /// Charges tokens in addition to the tokens of admit(). A negative count gives tokens back.
  void add_tokens(std::int64_t count, Clock::time_point now);

  /// Counts `num_requests` recovered requests as live, whatever the limits: an earlier process admitted them.
  void adopt(std::int64_t num_requests);

  /// Call when `num_requests` live requests have ended.
  void ended(std::int64_t num_requests);
  /// Like ended(), for requests that the engine refused: gives back their requests and prompt tokens.
  void refused(std::int64_t num_requests, std::int64_t prompt_tokens, Clock::time_point now);

  bool limits_tokens() const;
  LimitLevels levels(Clock::time_point now) const;

 private:
  mutable std::mutex mutex_;
  std::optional<TokenBucket> requests_;
  std::optional<TokenBucket> tokens_;
  std::int64_t max_live_ = 0;
  std::int64_t live_ = 0;
};

/// Requests of a tenant that were admitted together. They count as live until end(), refused() or the destructor. Not
/// thread-safe.
class TenantTicket {
 public:
  /// Makes a ticket without a tenant: nothing is counted or limited.
  TenantTicket() = default;
  TenantTicket(TenantTicket&&) = default;
  TenantTicket& operator=(TenantTicket&& other);
  ~TenantTicket() { end(); }

  /// Admits the requests. `usage` may be null: no limits. Returns the refusal, or nothing if they are admitted.
  std::optional<LimitRefusal> admit(std::shared_ptr<TenantUsage> usage, std::int64_t num_requests,
                                    std::int64_t prompt_tokens);
  /// Calls TenantUsage::adopt and holds the requests.
  void adopt(std::shared_ptr<TenantUsage> usage, std::int64_t num_requests);
  void add_tokens(std::int64_t count);
  bool counts_tokens() const { return usage_ && usage_->limits_tokens(); }
  void end();
  void refused();

 private:
  std::shared_ptr<TenantUsage> usage_;
  std::int64_t num_requests_ = 0;
  std::int64_t prompt_tokens_ = 0;
};

}  // namespace pagoda::serving
