#pragma once

/// For journals that must not hold prompts and outputs: what stands in their places, so that the cores do what they
/// did.

#include <array>
#include <cstdint>
#include <map>
#include <span>
#include <utility>

#include "engine/memory/block_space_manager.hpp"
#include "engine/request/request_spec.hpp"
#include "engine/step/plan.hpp"
#include "engine/step/result.hpp"
#include "engine/types.hpp"

namespace pagoda::journal {

/// A request without prompt, stop strings, bad words, bias, allowed tokens, salt, and what its text must be. Its
/// lengths, stop_token_ids and user stay.
SharedSpec blank(const RequestSpec& spec);

/// A token report for the scheduler, which only asks whether a token ends a sequence, and in a beam search which
/// continuation is better: tokens that end sequences of the request stay, others keep their order alone, and only those
/// of a beam search keep their log-probabilities.
void blank(TokenReport& report, const RequestSpec& spec, std::span<const TokenId> eos_token_ids);

/// For the block manager, which only asks whether tokens at one position are equal: each position has a permutation of
/// its own of all ids, by a secret key. (Four Feistel rounds, whose keys are a SipHash of the position.)
class HashedTokens {
 public:
  using Key = std::array<std::uint64_t, 2>;
  explicit HashedTokens(const Key& key) : key_(key) {}

  /// `blocks`: the manager that the plan is for, before it.
  MemoryRequest hash(MemoryRequest plan, const memory::BlockSpaceManager& blocks);
  TokenId hash(std::int32_t position, TokenId token) const;

 private:
  SharedTokens hash(const SharedTokens& tokens) const;

  Key key_;
  /// By sequence, of the last plan: tokens and their hashes. The head of the queue is offered in plan after plan.
  std::map<SequenceId, std::pair<SharedTokens, SharedTokens>> offered_;
};

}  // namespace pagoda::journal
