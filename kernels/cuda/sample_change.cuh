#pragma once

/// Applies masks, bans, bias and penalties to the logits of a row (its changed logits).

#include "kernels/cuda/device_functions.cuh"
#include "kernels/cuda/sample_rows.hpp"

namespace pagoda::kernels::cuda {

constexpr int kCopyThreads = 256;
constexpr int kCopyPerThread = 8;
constexpr int kChangeThreads = 1024;
/// Bit of a count that is set if the token is in the prompt.
constexpr std::uint32_t kInPrompt = 0x80000000U;

// Block (b, r) copies 2048 logits of changed row r, with -inf for tokens that are not allowed, and sets their counts to
// 0.
__global__ void copy_logits_kernel(const DeviceSampleRow* rows, const std::int32_t* changed_rows, int vocab) {
  const DeviceSampleRow& row = rows[changed_rows[blockIdx.y]];
#pragma unroll
  for (int i = 0; i < kCopyPerThread; ++i) {
    const int token =
        (static_cast<int>(blockIdx.x) * kCopyPerThread + i) * kCopyThreads + static_cast<int>(threadIdx.x);
    if (token >= vocab) return;
    const bool allowed = row.allowed_tokens == nullptr || (row.allowed_tokens[token / 32] >> (token % 32) & 1U) != 0;
    row.changed[token] = allowed ? row.logits[token] : -INFINITY;
    row.counts[token] = 0;
  }
}

/// Calls f(i) for i from 0 to count - 1, distributed over the threads of the block.
template <class F>
__device__ void for_list(int count, const F& f) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kChangeThreads) f(i);
}

__device__ inline float penalised(float logit, std::uint32_t count, const DeviceSampleRow& row) {
  const std::uint32_t in_output = count & ~kInPrompt;
  float x = logit > 0.0F ? logit / row.repetition_penalty : logit * row.repetition_penalty;
  x = __fsub_rn(x, __fmul_rn(row.frequency_penalty, static_cast<float>(in_output)));
  if (in_output > 0) x -= row.presence_penalty;
  // A very small repetition penalty must not turn a finite logit into the +inf that marks a broken row.
  return x == INFINITY && logit < INFINITY ? 3.402823466e38F : x;
}

// Block r changes the logits of changed row r. It reports in the row's output whether a token is out of range.
__global__ __launch_bounds__(kChangeThreads) void change_logits_kernel(const DeviceSampleRow* rows,
                                                                       const std::int32_t* changed_rows, int vocab) {
  const DeviceSampleRow& row = rows[changed_rows[blockIdx.x]];
  bool out_of_range = false;
  const auto in_vocab = [&](std::int32_t token) {
    const bool inside = token >= 0 && token < vocab;
    out_of_range = out_of_range || !inside;
    return inside;
  };
  for_list(row.num_banned, [&](int i) {
    if (in_vocab(row.banned_tokens[i])) row.changed[row.banned_tokens[i]] = -INFINITY;
  });
  for_list(row.num_bad_words, [&](int i) {
    const std::int32_t begin = i == 0 ? 0 : row.bad_word_ends[i - 1];
    const std::int32_t num_before = row.bad_word_ends[i] - 1 - begin;
    if (num_before > row.num_last) return;
    const std::int32_t* output = row.last_tokens + row.num_last - num_before;
    for (int k = 0; k < num_before; ++k) {
      if (output[k] != row.bad_word_tokens[begin + k]) return;
    }
    const std::int32_t last = row.bad_word_tokens[begin + num_before];
    if (in_vocab(last)) row.changed[last] = -INFINITY;
  });
  __syncthreads();
  for_list(row.num_bias, [&](int i) {
    const std::int32_t token = row.bias_tokens[i];
    if (!in_vocab(token)) return;
    // The thread of a token's first entry adds all entries of the token, in order.
    for (int j = 0; j < i; ++j) {
      if (row.bias_tokens[j] == token) return;
    }
    float x = row.changed[token];
    for (int j = i; j < row.num_bias; ++j) {
      if (row.bias_tokens[j] == token) x += row.bias_values[j];
    }
    row.changed[token] = x;
  });
  for_list(row.num_output, [&](int i) {
    if (in_vocab(row.output_tokens[i])) atomicAdd(&row.counts[row.output_tokens[i]], 1U);
  });
  for_list(row.num_prompt, [&](int i) {
    if (in_vocab(row.prompt_tokens[i])) atomicOr(&row.counts[row.prompt_tokens[i]], kInPrompt);
  });
  __syncthreads();
  // The thread that takes a token's count applies the penalties.
  const auto penalise = [&](std::int32_t token) {
    if (!in_vocab(token)) return;
    const std::uint32_t count = atomicExch(&row.counts[token], 0U);
    if (count != 0) row.changed[token] = penalised(row.changed[token], count, row);
  };
  for_list(row.num_output, [&](int i) { penalise(row.output_tokens[i]); });
  for_list(row.num_prompt, [&](int i) { penalise(row.prompt_tokens[i]); });
  const int any = __syncthreads_or(out_of_range);
  if (threadIdx.x == 0) row.output->problem = any ? SampleProblem::token_out_of_range : SampleProblem::none;
}

}  // namespace pagoda::kernels::cuda
