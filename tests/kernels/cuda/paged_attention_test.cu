#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/attention_plan.hpp"
#include "kernels/cuda/cuda_device.hpp"
#include "kernels/cuda/paged_attention.hpp"
#include "kernels/reference/reference_ops.hpp"
#include "tests/kernels/attention_case.hpp"
#include "tests/kernels/cuda/on_device.hpp"
#ifdef PAGODA_CUDA_EMULATED
#include "tests/support/cuda_emulator/cuda_emulator.hpp"
#endif

namespace pagoda::kernels::cuda {
namespace {

using testing_support::AttentionCase;
using testing_support::expect_close;

template <class T>
std::vector<T> copy_of(const T* values, std::int64_t count) {
  return count == 0 ? std::vector<T>() : std::vector<T>(values, values + count);
}

void attend_on_device(const PagedAttentionParams& host) {
  const std::int64_t sequences = host.num_sequences;
  const std::int64_t tokens = host.query_start[sequences];
  const std::int64_t width = host.num_heads * host.cache.head_dim;
  // The arrays have exactly the required length.
  const OnDevice query(copy_of(host.query, tokens * host.query_stride));
  const OnDevice query_start(copy_of(host.query_start, sequences + 1));
  const OnDevice context_len(copy_of(host.context_len, sequences));
  const OnDevice tables(copy_of(host.block_tables, sequences * host.max_blocks));
  const OnDevice cache(copy_of(host.cache.base, host.cache.num_blocks * host.cache.block_bytes));
  const OnDevice slopes(copy_of(host.alibi_slopes, host.alibi_slopes != nullptr ? host.num_heads : 0));
  const OnDevice out(copy_of(host.out, tokens * width));
  const OnDevice narrow_out(std::vector<std::uint16_t>(static_cast<std::size_t>(tokens * width), 0xFFFF));

  PagedAttentionParams p = host;
  p.query = query.data();
  p.query_start = query_start.data();
  p.context_len = context_len.data();
  p.block_tables = tables.data();
  p.cache.base = cache.data();
  p.alibi_slopes = slopes.data();
  p.out = out.data();
  if (host.narrow_out) {
    p.out = nullptr;
    p.narrow_out.data = narrow_out.data();
  }
  const std::vector<std::byte> noise(attention_scratch_bytes(p), std::byte{0xFF});
  const OnDevice scratch(noise);
  const std::vector<std::int32_t> zeros(static_cast<std::size_t>(kAttentionCounters));
  const OnDevice counters(zeros);
  const Status status = cuda_paged_attention(nullptr, p, {{scratch.data(), noise.size()}, counters.data()});
  ASSERT_TRUE(status.has_value()) << status.error().message;
  ASSERT_EQ(cudaDeviceSynchronize(), cudaSuccess) << cudaGetErrorString(cudaGetLastError());
  EXPECT_EQ(counters.read(), zeros);
  if (!host.narrow_out) {
    std::ranges::copy(out.read(), host.out);
    return;
  }
  std::ranges::transform(narrow_out.read(), host.out, [&](std::uint16_t bits) {
    return host.narrow_out.dtype == DType::bf16 ? to_float(BFloat16{bits}) : to_float(Float16{bits});
  });
}

using Rows = AttentionCase::Rows;

std::vector<float> attend(const AttentionCase& c, const std::vector<Rows>& batch) {
  return c.attend(batch, attend_on_device);
}

/// Rounds the queries to the keys' type, as the kernels do, so that the reference computes with the rounded queries.
void round_queries(AttentionCase& c) {
  if (c.dtype == DType::f32) return;
  for (std::vector<float>& query : c.queries) {
    for (float& x : query) x = c.dtype == DType::bf16 ? to_float(to_bf16(x)) : to_float(to_f16(x));
  }
}

class CudaPagedAttention : public ::testing::TestWithParam<std::tuple<DType, std::uint64_t>> {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no CUDA device on this machine";
#ifdef PAGODA_CUDA_EMULATED
    cuda_emulator::set_options({.seed = std::get<1>(GetParam())});
#endif
  }
#ifdef PAGODA_CUDA_EMULATED
  void TearDown() override {
    EXPECT_EQ(cuda_emulator::problem(), "");
    cuda_emulator::reset();
    cuda_emulator::set_options({});
  }
#endif

  DType dtype() const {
    return std::get<0>(GetParam());
  }
  AttentionCase filled(AttentionCase c) const {
    c.dtype = dtype();
    c.fill();
    round_queries(c);
    return c;
  }

  void expect_like_reference(const AttentionCase& c, const std::vector<Rows>& batch) const {
    // Probabilities are rounded to the keys' type.
    const double tolerance = dtype() == DType::f32 ? 1e-5 : dtype() == DType::bf16 ? 1e-2 : 2e-3;
    expect_close(attend(c, batch),
                 c.attend(batch, [](const PagedAttentionParams& p) { reference::paged_attention(p); }), tolerance,
                 tolerance);
  }

  /// Compares all rows of all sequences, and the last row of each, with the reference.
  void expect_like_reference(const AttentionCase& unfilled) const {
    const AttentionCase c = filled(unfilled);
    expect_like_reference(c, c.whole_batch());
    expect_like_reference(c, last_rows(c));
  }

  static std::vector<Rows> last_rows(const AttentionCase& c) {
    std::vector<Rows> rows;
    for (std::size_t s = 0; s < c.lengths.size(); ++s) rows.push_back({s, c.lengths[s] - 1, c.lengths[s]});
    return rows;
  }

  /// Compares the rows of every sequence in chunks of these sizes with the reference.
  void expect_chunks_like_reference(const AttentionCase& unfilled,
                                    std::vector<std::int64_t> chunks = {2, 7, 64}) const {
    const AttentionCase c = filled(unfilled);
    for (std::size_t s = 0; s < c.lengths.size(); ++s) {
      for (const std::int64_t chunk : chunks) {
        SCOPED_TRACE("sequence " + std::to_string(s) + " in chunks of " + std::to_string(chunk));
        for (std::int64_t first = 0; first < c.lengths[s]; first += 2 * chunk) {
          expect_like_reference(c, {{s, first, std::min(c.lengths[s], first + chunk)}});
        }
      }
    }
  }

  /// Expects that every sequence's last row has the same bits alone and in a batch, in any order.
  void expect_decodes_alike_in_any_batch(const AttentionCase& unfilled) const {
    const AttentionCase c = filled(unfilled);
    const std::vector<Rows> rows = last_rows(c);
    const std::vector<float> together = attend(c, rows);
    std::vector<float> apart;
    for (const Rows& row : rows) std::ranges::copy(attend(c, {row}), std::back_inserter(apart));
    EXPECT_EQ(together, apart);
  }
};

TEST_P(CudaPagedAttention, MatchesTheReferenceForShortAndLongSequences) {
  expect_like_reference({.lengths = {1, 2, 15, 16, 17, 33, 64, 65}});
  expect_like_reference({.num_heads = 2, .num_kv_heads = 1, .lengths = {511, 512, 513, 1030}});
  expect_like_reference({.num_heads = 1, .num_kv_heads = 1, .head_dim = 128, .lengths = {1050}});
  expect_like_reference({.num_heads = 1, .num_kv_heads = 1, .head_dim = 256, .lengths = {1050}});
}

TEST_P(CudaPagedAttention, WritesNarrowRowsAsRoundedFloats) {
  const AttentionCase c = filled({.num_heads = 8, .num_kv_heads = 2, .head_dim = 64, .lengths = {700, 5, 130}});
  for (const auto& batch : {c.whole_batch(), last_rows(c)}) {
    const std::vector<float> wide = attend(c, batch);
    for (const DType type : {DType::f16, DType::bf16}) {
      std::vector<float> expected(wide.size());
      std::ranges::transform(wide, expected.begin(),
                             [&](float x) { return type == DType::bf16 ? to_float(to_bf16(x)) : to_float(to_f16(x)); });
      EXPECT_EQ(c.attend(batch,
                         [&](PagedAttentionParams p) {
                           int any = 0;  // replaced by the rows on the device
                           p.narrow_out = {&any, type};
                           attend_on_device(p);
                         }),
                expected);
    }
  }
}

TEST_P(CudaPagedAttention, MatchesTheReferenceForAnyBlockSize) {
  for (const std::int32_t block_size : {1, 3, 4, 16, 32, 50}) {
    SCOPED_TRACE(block_size);
    expect_like_reference({.block_size = block_size, .lengths = {7, 61}});
  }
}

TEST_P(CudaPagedAttention, MatchesTheReferenceForAnyHeadDimension) {
  for (const std::int64_t head_dim : {1, 8, 24, 64, 80, 96, 100, 128, 200, 256, 600}) {
    SCOPED_TRACE(head_dim);
    expect_like_reference({.head_dim = head_dim, .lengths = {5, 70}});
  }
}

TEST_P(CudaPagedAttention, MatchesTheReferenceForAnyGroupingOfHeads) {
  for (const std::int64_t group : {1, 2, 3, 5, 8, 16, 17}) {
    SCOPED_TRACE(group);
    expect_like_reference({.num_heads = 2 * group, .num_kv_heads = 2, .lengths = {5, 40}});
  }
  expect_like_reference({.num_heads = 71, .num_kv_heads = 1, .head_dim = 16, .lengths = {5, 40}});
}

TEST_P(CudaPagedAttention, MatchesTheReferenceWithWindowSoftcapAndAlibi) {
  for (const std::int32_t window : {1, 5, 16, 40, 600}) {
    SCOPED_TRACE(window);
    expect_like_reference({.lengths = {3, 90}, .window = window});
  }
  expect_like_reference({.num_heads = 2, .num_kv_heads = 1, .head_dim = 16, .lengths = {1300}, .window = 530});
  expect_like_reference({.lengths = {3, 90}, .softcap = 2.0F});
  expect_like_reference({.lengths = {3, 90}, .alibi = true});
  expect_like_reference({.num_heads = 5, .num_kv_heads = 5, .head_dim = 24, .lengths = {3, 90}, .alibi = true});
  expect_like_reference({.lengths = {3, 90}, .window = 20, .softcap = 30.0F, .alibi = true});
}

TEST_P(CudaPagedAttention, SeesNothingBeforeTheFirstPosition) {
  for (const std::int32_t first : {1, 2, 15, 16, 35}) {
    SCOPED_TRACE(first);
    expect_like_reference({.lengths = {36, 90, 600}, .first_position = first});
    expect_like_reference({.lengths = {36, 90}, .window = 20, .first_position = first, .alibi = true});
  }
}

TEST_P(CudaPagedAttention, MatchesTheReferenceInChunksOfAnySize) {
  expect_chunks_like_reference({.lengths = {1, 45, 130}});
  expect_chunks_like_reference({.num_heads = 3, .num_kv_heads = 1, .head_dim = 20, .lengths = {90, 31}});
  expect_chunks_like_reference({.num_heads = 2, .num_kv_heads = 1, .head_dim = 128, .lengths = {1100}}, {300});
  expect_chunks_like_reference({.num_heads = 2, .num_kv_heads = 2, .head_dim = 256, .lengths = {600}}, {100});
  expect_chunks_like_reference({.lengths = {150}, .window = 37});
  expect_chunks_like_reference({.num_heads = 2, .num_kv_heads = 1, .head_dim = 16, .lengths = {1200}, .window = 600},
                               {200});
  expect_chunks_like_reference({.lengths = {100}, .softcap = 5.0F, .alibi = true});
}

// The contexts have partitions of each size; the last partition is incomplete.
TEST_P(CudaPagedAttention, GivesADecodeTheSameBitsInAnyBatch) {
  expect_decodes_alike_in_any_batch({.num_heads = 2, .num_kv_heads = 1, .lengths = {1, 700, 130, 1024, 1025, 2500}});
  expect_decodes_alike_in_any_batch({.num_heads = 2, .num_kv_heads = 2, .head_dim = 128, .lengths = {300, 5, 1500}});
  expect_decodes_alike_in_any_batch({.num_heads = 2, .num_kv_heads = 1, .lengths = {90, 1300}, .window = 600});
  expect_decodes_alike_in_any_batch(
      {.num_heads = 3, .num_kv_heads = 1, .lengths = {90, 1300}, .softcap = 5.0F, .alibi = true});
}

TEST_P(CudaPagedAttention, MatchesTheReferenceWithValuesOfAnyMagnitude) {
  AttentionCase c = filled({.head_dim = 64, .lengths = {90, 300}});
  if (c.dtype != DType::int8) return;
  // The scales grow from block to block, and some values are outside the range of float16.
  for (const float factor : {1e-6F, 1.0F, 1e6F}) {
    for (std::int64_t block = 0; block < c.cache.num_blocks; ++block) {
      for (std::int64_t i = 0; i < c.num_kv_heads * c.block_size; ++i) {
        c.cache.value_scales(block)[i] = factor * std::exp2(static_cast<float>(block % 7)) / 127;
      }
    }
    const auto scaled = [&](const PagedAttentionParams& p, bool device) {
      device ? attend_on_device(p) : reference::paged_attention(p);
      for (std::int64_t i = 0; i < p.query_start[p.num_sequences] * c.query_width(); ++i) p.out[i] /= factor;
    };
    const double tolerance = 2e-2;
    for (const std::vector<Rows>& batch : {c.whole_batch(), last_rows(c)}) {
      expect_close(c.attend(batch, [&](const PagedAttentionParams& p) { scaled(p, true); }),
                   c.attend(batch, [&](const PagedAttentionParams& p) { scaled(p, false); }), tolerance, tolerance);
    }
  }
}

TEST_P(CudaPagedAttention, GivesARowTheSameBitsForAnyBlockSize) {
  const auto with_block_size = [&](std::int32_t block_size) {
    const AttentionCase c = filled({.block_size = block_size, .lengths = {70, 41}});
    return attend(c, c.whole_batch());
  };
  const std::vector<float> expected = with_block_size(16);
  for (const std::int32_t block_size : {1, 4, 32}) EXPECT_EQ(with_block_size(block_size), expected);
}

TEST_P(CudaPagedAttention, MixesPrefillChunksDecodesAndPadding) {
  const AttentionCase c = filled({.num_heads = 8, .num_kv_heads = 2, .lengths = {600, 20, 1100, 3, 64, 65, 33}});
  const std::vector<Rows> batch = {{0, 599, 600}, {1, 0, 0},   {1, 5, 20},  {2, 1000, 1100}, {3, 0, 3},
                                   {4, 63, 64},   {5, 60, 65}, {6, 31, 33}, {6, 0, 0}};
  expect_like_reference(c, batch);
}

TEST_P(CudaPagedAttention, DoesNothingForAnEmptyBatchAndForPaddingAlone) {
  const AttentionCase c = filled({.lengths = {20, 30}});
  EXPECT_TRUE(attend(c, {}).empty());
  EXPECT_TRUE(attend(c, {{0, 5, 5}, {1, 0, 0}}).empty());
}

TEST_P(CudaPagedAttention, BoundsMayBeLargerThanTheBatch) {
  const AttentionCase c = filled({.lengths = {20, 700, 1100}});
  const auto with_bounds = [&](const std::vector<Rows>& batch, std::int32_t query_len, std::int32_t context_len,
                               std::int64_t tokens) {
    return c.attend(batch, [&](PagedAttentionParams p) {
      p.max_query_len = query_len;
      p.max_context_len = context_len;
      p.num_tokens = tokens;
      attend_on_device(p);
    });
  };
  const std::vector<Rows> decodes = last_rows(c);
  const std::vector<float> expected = attend(c, decodes);
  EXPECT_EQ(with_bounds(decodes, 1, 20000, 3), expected);
  EXPECT_EQ(with_bounds(decodes, 100, 200000, 300), expected);

  const std::vector<Rows> mixed = {{0, 19, 20}, {1, 600, 700}};
  const std::vector<float> like = attend(c, mixed);
  const double tolerance = dtype() == DType::f32 ? 1e-5 : 1e-2;
  expect_close(with_bounds(mixed, 100, 20000, 101), like, tolerance, tolerance);
  expect_close(with_bounds(mixed, 500, 700, 0), like, tolerance, tolerance);
  expect_close(with_bounds(mixed, 101, 701, 300), like, tolerance, tolerance);
}

std::string test_name(const ::testing::TestParamInfo<std::tuple<DType, std::uint64_t>>& info) {
  return std::string(to_string(std::get<0>(info.param))) + "_order_" + std::to_string(std::get<1>(info.param));
}

// The second parameter is the seed of an emulated device's order of blocks and threads.
using Case = std::tuple<DType, std::uint64_t>;
INSTANTIATE_TEST_SUITE_P(Cuda, CudaPagedAttention,
                         ::testing::Values(Case(DType::f32, 7), Case(DType::f16, 0), Case(DType::bf16, 0),
                                           Case(DType::bf16, 7), Case(DType::fp8_e4m3, 7), Case(DType::int8, 0)),
                         test_name);

}  // namespace
}  // namespace pagoda::kernels::cuda
