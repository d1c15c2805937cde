#pragma once

/// For journals that must not hold prompts and outputs: what stands in their places, so that the cores do what they
/// did.

#include <array>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <unordered_map>

#include "engine/memory/block_space_manager.hpp"
#include "engine/request/request_spec.hpp"
#include "engine/step/plan.hpp"
#include "engine/step/result.hpp"
#include "engine/types.hpp"

namespace pagoda::journal {

/// For the scheduler, which only asks whether a token ends a sequence, and which of two is the lower (a tie of beams).
class BlankTokens {
 public:
  explicit BlankTokens(std::span<const TokenId> eos_token_ids) : endings_(eos_token_ids.begin(), eos_token_ids.end()) {}

  /// A request without prompt, stop strings, bias and salt; lengths and stop tokens stay.
  SharedSpec blank(const RequestSpec& spec);
  /// Tokens that end sequences stay; the order of those that are reported together does, too.
  StepResult blank(StepResult result) const;

 private:
  void blank(TokenReport& report) const;

  std::set<TokenId> endings_;  ///< of any request
};

/// For the block manager, which asks whether tokens at one position are equal: each is a keyed hash of itself and its
/// position. (SipHash; 31 bits of it, but blocks are compared whole.)
class HashedTokens {
 public:
  using Key = std::array<std::uint64_t, 2>;
  explicit HashedTokens(const Key& key) : key_(key) {}

  /// `blocks`: the manager that the plan is for, before it.
  PlanStep hash(PlanStep plan, const memory::BlockSpaceManager& blocks);

 private:
  TokenId hash(std::int32_t position, TokenId token) const;
  SharedTokens hash(const SharedTokens& tokens);

  Key key_;
  /// Of the last plan: the head of the queue is offered in plan after plan.
  std::unordered_map<const TokenIds*, std::pair<SharedTokens, SharedTokens>> offered_;
  std::unordered_map<const TokenIds*, std::pair<SharedTokens, SharedTokens>> offered_now_;
};

}  // namespace pagoda::journal
