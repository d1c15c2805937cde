#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

namespace pagoda::serving {

/// What a tenant may have of the engine; 0: as much as it likes.
struct TenantLimits {
  std::int64_t requests_per_minute = 0;
  std::int64_t tokens_per_minute = 0;  ///< of prompts and outputs
  std::int64_t max_concurrent_requests = 0;

  bool operator==(const TenantLimits&) const = default;
};

using LimitClock = std::chrono::steady_clock;

/// So much a minute, that of a whole minute at once. A plain state machine.
class MinuteBucket {
 public:
  /// Full. `per_minute` is above 0.
  MinuteBucket(std::int64_t per_minute, LimitClock::time_point now)
      : per_minute_(static_cast<double>(per_minute)), level_(per_minute_), at_(now) {}

  /// What is in it stays, up to the new limit.
  void set_limit(std::int64_t per_minute, LimitClock::time_point now);

  /// How long until `amount` is in it, or, of an amount above the limit, until it is full; 0: now.
  std::chrono::milliseconds wait_for(std::int64_t amount, LimitClock::time_point now) const;

  /// It may owe something then. A negative amount is given back.
  void take(std::int64_t amount, LimitClock::time_point now);

  /// Whole ones that are in it.
  std::int64_t remaining(LimitClock::time_point now) const;
  std::int64_t per_minute() const { return static_cast<std::int64_t>(per_minute_); }

 private:
  double level(LimitClock::time_point now) const;

  double per_minute_;
  double level_;  ///< at `at_`; below 0: owed
  LimitClock::time_point at_;
};

/// Why requests are not taken.
struct LimitRefusal {
  std::string message;
  std::chrono::milliseconds retry_after{};  ///< 0: they never will be
};

/// What is left of a limit.
struct LimitLevel {
  std::int64_t limit = 0;
  std::int64_t remaining = 0;
  std::chrono::milliseconds reset{};  ///< until all of it is there again
};
struct LimitLevels {
  std::optional<LimitLevel> requests;  ///< absent: there is no such limit; likewise below
  std::optional<LimitLevel> tokens;
};

/// What a tenant uses of its limits, over all its keys and all servers of the process. Thread-safe.
class TenantUsage {
 public:
  using Clock = LimitClock;

  TenantUsage(const TenantLimits& limits, Clock::time_point now) { set_limits(limits, now); }

  /// What is used stays used.
  void set_limits(const TenantLimits& limits, Clock::time_point now);

  /// Takes so many requests with so many prompt tokens, or none. What is taken is live until it has `ended`.
  std::optional<LimitRefusal> admit(std::int64_t num_requests, std::int64_t prompt_tokens, Clock::time_point now);

  /// Tokens beside those that were taken with admit; negative: those were too many.
  void add_tokens(std::int64_t count, Clock::time_point now);

  /// So many that a process before has admitted go on: they are live, whatever the limits.
  void go_on(std::int64_t num_requests);

  /// So many live ones have ended.
  void ended(std::int64_t num_requests);
  /// And have cost nothing: the engine had no place for them.
  void refused(std::int64_t num_requests, std::int64_t prompt_tokens, Clock::time_point now);

  bool limits_tokens() const;
  LimitLevels levels(Clock::time_point now) const;

 private:
  mutable std::mutex mutex_;
  std::optional<MinuteBucket> requests_;
  std::optional<MinuteBucket> tokens_;
  std::int64_t max_live_ = 0;
  std::int64_t live_ = 0;
};

/// A tenant's requests that were admitted together, until they have ended or this goes. One owner.
class TenantTicket {
 public:
  /// Of nobody: everything is free.
  TenantTicket() = default;
  TenantTicket(TenantTicket&&) = default;
  TenantTicket& operator=(TenantTicket&& other);
  ~TenantTicket() { end(); }

  /// `usage` may be null. Or why they are not admitted.
  std::optional<LimitRefusal> admit(std::shared_ptr<TenantUsage> usage, std::int64_t num_requests,
                                    std::int64_t prompt_tokens);
  /// See TenantUsage.
  void go_on(std::shared_ptr<TenantUsage> usage, std::int64_t num_requests);
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
