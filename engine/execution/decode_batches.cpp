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

}  // namespace

DecodeBatches::DecodeBatches(std::int32_t max_num_seqs, std::int64_t max_model_len) {
  constexpr std::int64_t kMinContext = 2048;
  constexpr std::int64_t kContextFactor = 4;
  constexpr std::int32_t kMinStep = 8;
  constexpr std::uint32_t kShare = 8;
  for (std::int32_t rows = 1; rows < max_num_seqs;) {
    rows_.push_back(rows);
    const auto eighth = static_cast<std::int32_t>(std::bit_floor(static_cast<std::uint32_t>(rows)) / kShare);
    rows += std::min(rows, std::max(kMinStep, eighth));
  }
  rows_.push_back(max_num_seqs);
  for (std::int64_t context = kMinContext; context < max_model_len; context *= kContextFactor) {
    contexts_.push_back(static_cast<std::int32_t>(context));
  }
  contexts_.push_back(static_cast<std::int32_t>(max_model_len));
}

DecodeBatch DecodeBatches::around(std::int32_t num_rows, std::int32_t context_len) const {
  return {smallest_that_fits(rows_, num_rows), smallest_that_fits(contexts_, context_len)};
}

std::vector<DecodeBatch> DecodeBatches::all() const {
  std::vector<DecodeBatch> batches;
  for (auto context = contexts_.rbegin(); context != contexts_.rend(); ++context) {
    for (auto rows = rows_.rbegin(); rows != rows_.rend(); ++rows) batches.push_back({*rows, *context});
  }
  return batches;
}

}  // namespace pagoda::execution
