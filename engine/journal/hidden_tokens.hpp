#pragma once

/// Replaces prompts and outputs in journals that must not hold them, so that the cores still do what they did.

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

/// Returns a request without prompt, stop strings, bad words, bias, allowed tokens, salt and output constraints. Its
/// lengths, stop_token_ids and user stay.
SharedSpec blank(const RequestSpec& spec);

/// Blanks a token report for the scheduler, which only needs to know whether a token ends a sequence and, in a beam
/// search, which continuation is better. Tokens that end sequences of the request stay. Of the others only the order
/// stays, and in a beam search their log-probabilities.
void blank(TokenReport& report, const RequestSpec& spec, std::span<const TokenId> eos_token_ids);

/// Hashes tokens for the block manager, which only needs to know whether tokens at one position are equal. Each
/// position has its own permutation of all ids, which a secret key selects. (Four Feistel rounds, whose keys are a
/// SipHash of the position.)
class HashedTokens {
 public:
  using Key = std::array<std::uint64_t, 2>;
  explicit HashedTokens(const Key& key) : key_(key) {}

  /// Returns `plan` with hashed tokens and salts. `blocks`: the manager that the plan is for, in its state before the
  /// plan.
  MemoryRequest hash(MemoryRequest plan, const memory::BlockSpaceManager& blocks);
  TokenId hash(std::int32_t position, TokenId token) const;

 private:
  SharedTokens hash(const SharedTokens& tokens) const;

  Key key_;
  /// Tokens of the last plan and their hashes, by sequence. Kept because plan after plan offers the head of the queue.
  std::map<SequenceId, std::pair<SharedTokens, SharedTokens>> offered_;
};

}  // namespace pagoda::journal
