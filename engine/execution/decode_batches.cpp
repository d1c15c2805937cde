#include "engine/execution/decode_batches.hpp"

#include <algorithm>
#include <bit>

#include "kernels/result.hpp"

namespace pagoda::execution {
namespace {

std::int32_t smallest_that_fits(const std::vector<std::int32_t>& sizes, std::int64_t wanted) {
  const auto found = std::ranges::lower_bound(sizes, wanted);
  PAGODA_ASSERT(found != sizes.end(), "a step is no larger than the engine's limits");
  return *found;
}

}  // namespace

DecodeBatches::DecodeBatches(const DecodeLimits& limits) : limits_(limits) {
  constexpr std::int64_t kMinContext = 2048;
  constexpr std::int64_t kContextFactor = 4;
  constexpr std::int32_t kMinStep = 8;
  constexpr std::uint32_t kShare = 8;
  limits_.max_draft_tokens = limits.max_drafts > 0 ? std::min(limits.max_draft_tokens, kMaxDraftTokens) : 0;
  for (std::int32_t count = 1; count < limits.max_num_seqs;) {
    sequences_.push_back(count);
    const auto eighth = static_cast<std::int32_t>(std::bit_floor(static_cast<std::uint32_t>(count)) / kShare);
    count += std::min(count, std::max(kMinStep, eighth));
  }
  sequences_.push_back(limits.max_num_seqs);
  for (std::int32_t count = 1; count < limits.max_num_seqs; count *= 2) sequences_with_drafts_.push_back(count);
  sequences_with_drafts_.push_back(limits.max_num_seqs);
  for (std::int64_t context = kMinContext; context < limits.max_model_len; context *= kContextFactor) {
    contexts_.push_back(static_cast<std::int32_t>(context));
  }
  contexts_.push_back(static_cast<std::int32_t>(limits.max_model_len));
}

std::optional<DecodeBatch> DecodeBatches::around(std::int64_t num_sequences, std::int64_t num_tokens,
                                                 std::int32_t max_query_len, std::int32_t context_len) const {
  const std::int32_t context = smallest_that_fits(contexts_, context_len);
  if (num_tokens == num_sequences) return DecodeBatch{smallest_that_fits(sequences_, num_sequences), 1, context};
  if (num_tokens > limits_.max_draft_tokens || max_query_len > 1 + limits_.max_drafts) return {};
  DecodeBatch batch{smallest_that_fits(sequences_with_drafts_, num_sequences), 2, context};
  while (batch.num_tokens() < num_tokens) batch.tokens_each *= 2;
  if (batch.num_tokens() > limits_.max_draft_tokens) return {};
  return batch;
}

std::int32_t DecodeBatches::max_query_len(const DecodeBatch& batch) const {
  return batch.has_drafts() ? std::min(1 + limits_.max_drafts, batch.num_tokens()) : 1;
}

std::vector<DecodeBatch> DecodeBatches::all() const {
  const auto most_each = static_cast<std::int32_t>(std::bit_ceil(static_cast<std::uint32_t>(1 + limits_.max_drafts)));
  std::vector<DecodeBatch> batches;
  for (const std::int32_t context : contexts_) {
    for (const std::int32_t count : sequences_) batches.push_back({count, 1, context});
    for (std::int32_t each = 2; each <= most_each; each *= 2) {
      for (const std::int32_t count : sequences_with_drafts_) {
        if (count * each <= limits_.max_draft_tokens) batches.push_back({count, each, context});
      }
    }
  }
  std::ranges::reverse(batches);
  return batches;
}

}  // namespace pagoda::execution
