#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/sample.hpp"

namespace pagoda::kernels::cuda {

/// A SampleRow as kernels read it: every pointer is device memory.
struct DeviceSampleRow {
  const float* logits = nullptr;
  float* changed = nullptr;         ///< buffer of the changed logits; null if nothing changes the logits
  std::uint32_t* counts = nullptr;  ///< [vocab], stored after `changed`
  SampleOutput* output = nullptr;
  std::int32_t* top_tokens = nullptr;
  float* top_logprobs = nullptr;
  /// Logarithm of the sum of exp(logit) over the vocabulary: sample_rows_kernel leaves it for rank_tokens_kernel.
  double* log_total = nullptr;
  const std::int32_t* prompt_tokens = nullptr;
  const std::int32_t* output_tokens = nullptr;
  const std::uint32_t* allowed_tokens = nullptr;  ///< bit mask of the vocabulary; null = all tokens are allowed
  const std::int32_t* banned_tokens = nullptr;
  const std::int32_t* bad_word_tokens = nullptr;
  const std::int32_t* bad_word_ends = nullptr;
  const std::int32_t* last_tokens = nullptr;
  /// [num_logprobs] tokens whose logprobs are listed; null = the likeliest tokens are listed.
  const std::int32_t* logprob_tokens = nullptr;
  const std::int32_t* bias_tokens = nullptr;
  const float* bias_values = nullptr;
  double uniform = 0;  ///< random number in [0, 1) that draws the token
  std::int32_t num_prompt = 0;
  std::int32_t num_output = 0;
  std::int32_t num_banned = 0;
  std::int32_t num_bad_words = 0;
  std::int32_t num_last = 0;
  std::int32_t num_bias = 0;
  float temperature = 1.0F;
  float inverse_temperature = 1.0F;
  float top_p = 1.0F;
  float min_p = 0.0F;
  std::int32_t top_k = 0;
  std::int32_t num_logprobs = -1;
  std::int32_t forced_token = -1;
  bool processed_logprobs = false;
  float presence_penalty = 0.0F;
  float frequency_penalty = 0.0F;
  float repetition_penalty = 1.0F;
};

/// Lays out one piece of memory for all rows, their log_total and the lists that they point to.
class SampleUpload {
 public:
  explicit SampleUpload(const SampleParams& params);

  std::size_t bytes() const { return bytes_; }
  /// Rows [first_row, first_row + num_rows), of which num_changed have changed logits.
  struct Pass {
    std::size_t first_row = 0;
    std::size_t num_rows = 0;
    std::size_t first_changed = 0;  ///< index into the list of changed rows
    std::size_t num_changed = 0;
  };
  /// Returns the rows in order, in passes that each contain at most `max_changed` (at least 1) changed rows.
  std::vector<Pass> passes(std::size_t max_changed) const;

  /// Writes all rows and lists to `host`, for use at `device`. Changed row i of a pass uses the memory at `changed` + i
  /// * changed_row_bytes().
  void write(std::byte* host, std::byte* device, std::span<const Pass> passes, std::byte* changed) const;

  const DeviceSampleRow* rows(const std::byte* device) const {
    return reinterpret_cast<const DeviceSampleRow*>(device);
  }
  /// Returns the indices of the rows whose logits change.
  const std::int32_t* changed_rows(const std::byte* device) const {
    return reinterpret_cast<const std::int32_t*>(device + changed_offset_);
  }
  std::size_t num_changed() const { return changed_.size(); }

 private:
  const SampleParams& params_;
  std::vector<std::int32_t> changed_;
  std::size_t log_totals_offset_ = 0;
  std::size_t changed_offset_ = 0;
  std::size_t lists_offset_ = 0;
  std::size_t bytes_ = 0;
};

/// Returns the bytes that the changed logits of a row need: float32 logits, then the counts; a multiple of 256.
std::size_t changed_row_bytes(std::int64_t vocab);

}  // namespace pagoda::kernels::cuda
