#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "engine/request/generate_request.hpp"
#include "engine/request/output.hpp"
#include "engine/routing/prompt_estimate.hpp"
#include "io/serving/key_ring.hpp"
#include "io/serving/tenancy.hpp"
#include "io/serving/tenant.hpp"

namespace pagoda::http {

/// Charges a job's requests to the limits of its key's principal.
class JobCharges {
 public:
  explicit JobCharges(serving::SharedPrincipal principal) : principal_(std::move(principal)) {}

  const serving::SharedPrincipal& principal() const { return principal_; }
  /// Returns whether the principal's tokens are limited. If they are, count tokens as they are generated: a client that
  /// disconnects early would not be charged for tokens that are counted only at the end.
  bool counts_tokens() const { return ticket_.counts_tokens(); }

  /// Assigns the requests to the principal and admits them. Returns the refusal if a limit is exceeded.
  std::optional<serving::LimitRefusal> admit(const serving::KeyRing& keys, std::vector<GenerateRequest>& requests) {
    std::int64_t prompt_tokens = 0;
    charges_.resize(requests.size());
    for (std::size_t i = 0; i < requests.size(); ++i) {
      serving::apply_tenant(keys, principal_, requests[i]);
      prompt_tokens += charges_[i].prompt_tokens = routing::estimated_prompt_tokens(requests[i]);
    }
    if (!principal_) return std::nullopt;
    return ticket_.admit(principal_->usage, std::ssize(requests), prompt_tokens);
  }

  /// Continues a single request that a previous process has admitted, with its prompt already charged.
  void go_on() {
    charges_.assign(1, Charge{.is_exact = true});
    if (principal_) ticket_.adopt(principal_->usage, 1);
  }

  /// Replaces the estimated number of tokens of a prompt by the number from the engine. `tokens` is 0 if the number is
  /// not known yet; then does nothing.
  void prompt(std::size_t prompt, std::int64_t tokens) {
    auto& charge = charges_[prompt];
    if (tokens == 0 || std::exchange(charge.is_exact, true)) return;
    ticket_.add_tokens(tokens - std::exchange(charge.prompt_tokens, tokens));
  }
  void output(std::size_t prompt, std::int64_t tokens) {
    charges_[prompt].generated_tokens += tokens;
    ticket_.add_tokens(tokens);
  }
  /// Counts output tokens that are already charged.
  void output_before(std::size_t prompt, std::int64_t tokens) { charges_[prompt].generated_tokens += tokens; }
  void done(std::size_t prompt, const Usage& usage) {
    this->prompt(prompt, usage.prompt_tokens);
    output(prompt, usage.completion_tokens - charges_[prompt].generated_tokens);
  }
  void end() { ticket_.end(); }
  void refused() { ticket_.refused(); }

 private:
  struct Charge {
    std::int64_t prompt_tokens = 0;     ///< estimated at first
    std::int64_t generated_tokens = 0;  ///< tokens reported so far
    bool is_exact = false;              ///< whether prompt_tokens comes from the engine
  };

  serving::SharedPrincipal principal_;
  serving::TenantTicket ticket_;
  std::vector<Charge> charges_;  ///< by prompt
};

}  // namespace pagoda::http
