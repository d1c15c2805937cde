#include "engine/execution/decode_batches.hpp"

#include <algorithm>
#include <bit>

#include "kernels/result.hpp"

namespace pagoda::execution {
namespace {

std::int32_t smallest_that_fits(const std::vector<std::int32_t>& sizes, std::int32_t wanted) {
  const auto found = std::ranges::lower_bound(sizes, wanted);
  PAGODA_ASSERT(found != sizes.end(), "a step is no larger than the engine's limits");
  return *found;
}

/// Returns the sizes from `first`, a power of two, to `last`.
std::vector<std::int32_t> token_sizes(std::int32_t first, std::int32_t last) {
  constexpr std::int32_t kMinStep = 8;
  constexpr std::uint32_t kShare = 8;
  std::vector<std::int32_t> sizes;
  for (std::int32_t size = first; size < last;) {
    sizes.push_back(size);
    const auto eighth = static_cast<std::int32_t>(std::bit_floor(static_cast<std::uint32_t>(size)) / kShare);
    size += std::min(size, std::max(kMinStep, eighth));
  }
  if (first <= last) sizes.push_back(last);
  return sizes;
}

}  // namespace

DecodeBatches::DecodeBatches(const DecodeLimits& limits)
    : max_query_len_(1 + limits.max_drafts), tokens_(token_sizes(1, limits.max_num_seqs)) {
  constexpr std::int64_t kMinContext = 2048;
  constexpr std::int64_t kContextFactor = 4;
  if (limits.max_drafts > 0) tokens_with_drafts_ = token_sizes(2, std::min(limits.max_draft_tokens, kMaxDraftTokens));
  for (std::int64_t context = kMinContext; context < limits.max_model_len; context *= kContextFactor) {
    contexts_.push_back(static_cast<std::int32_t>(context));
  }
  contexts_.push_back(static_cast<std::int32_t>(limits.max_model_len));
}

std::optional<DecodeBatch> DecodeBatches::around(std::int64_t num_tokens, std::int32_t max_query_len,
                                                 std::int32_t context_len) const {
  const bool has_drafts = max_query_len > 1;
  const auto& sizes = has_drafts ? tokens_with_drafts_ : tokens_;
  if (has_drafts && (max_query_len > max_query_len_ || sizes.empty() || num_tokens > sizes.back())) return {};
  return DecodeBatch{smallest_that_fits(sizes, static_cast<std::int32_t>(num_tokens)), has_drafts ? max_query_len_ : 1,
                     smallest_that_fits(contexts_, context_len)};
}

std::vector<DecodeBatch> DecodeBatches::all() const {
  std::vector<DecodeBatch> batches;
  for (auto context = contexts_.rbegin(); context != contexts_.rend(); ++context) {
    for (auto size = tokens_with_drafts_.rbegin(); size != tokens_with_drafts_.rend(); ++size) {
      batches.push_back({*size, max_query_len_, *context});
    }
    for (auto size = tokens_.rbegin(); size != tokens_.rend(); ++size) batches.push_back({*size, 1, *context});
  }
  return batches;
}

}  // namespace pagoda::execution
