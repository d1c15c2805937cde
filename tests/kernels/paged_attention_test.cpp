#include <algorithm>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/reference/reference_ops.hpp"
#include "tests/kernels/attention_case.hpp"
#include "tests/kernels/op_fixtures.hpp"

namespace pagoda::kernels {
namespace {

using testing_support::AttentionCase;
using testing_support::expect_close;
using testing_support::OpRunner;
using testing_support::rounded_to;

class PagedAttentionTest : public testing_support::OpTest<testing_support::BackendAndDType> {
 protected:
  DType dtype() const { return std::get<1>(GetParam()); }

  static std::vector<float> run_on(const OpRunner& runner, const AttentionCase& c,
                                   const std::vector<AttentionCase::Rows>& batch) {
    return c.attend(batch, [&](const PagedAttentionParams& params) {
      const Status status = runner(params);
      ASSERT_TRUE(status.has_value()) << status.error().message;
    });
  }

  AttentionCase filled(AttentionCase c) const {
    c.dtype = dtype();
    c.fill();
    if (rounds()) {
      for (std::vector<float>& query : c.queries) query = rounded_to(DType::bf16, query);
    }
    return c;
  }

  bool rounds() const { return rounds_to_bf16() && dtype() == DType::bf16; }

  void expect_like_reference(const AttentionCase& unfilled) {
    const AttentionCase c = filled(unfilled);
    std::vector<AttentionCase::Rows> decode;
    for (std::size_t s = 0; s < c.lengths.size(); ++s) decode.push_back({s, c.lengths[s] - 1, c.lengths[s]});
    for (const auto& batch : {c.whole_batch(), decode}) {
      const std::vector<float> actual = run_on(runner_, c, batch);
      const std::vector<float> expected =
          c.attend(batch, [](const PagedAttentionParams& p) { reference::paged_attention(p); });
      // Probabilities are rounded too, each by a relative error of up to 2^-9; the error of a sum over values of both
      // signs is smaller.
      const double tolerance = rounds() ? 4e-3 : 1e-5;
      expect_close(actual, expected, tolerance, tolerance);
    }
  }

  /// Expects the same bits from a whole prefill, from chunks, token by token, and with other thread counts.
  void expect_same_bits_in_any_split(const AttentionCase& unfilled) {
    const AttentionCase c = filled(unfilled);
    const std::vector<float> whole = run_on(runner_, c, c.whole_batch());
    const OpRunner one_thread(backend(), 1);
    EXPECT_EQ(run_on(one_thread, c, c.whole_batch()), whole);

    std::int64_t first_row = 0;
    for (std::size_t s = 0; s < c.lengths.size(); ++s) {
      const auto expected = [&](std::int64_t first, std::int64_t end) {
        return std::vector<float>(whole.begin() + (first_row + first) * c.query_width(),
                                  whole.begin() + (first_row + end) * c.query_width());
      };
      for (const std::int64_t chunk : {1, 7, 64, 100, 300}) {
        SCOPED_TRACE(testing::Message() << "sequence " << s << " in chunks of " << chunk);
        // Token by token is slow for long sequences, so only every 37th token is computed.
        const std::int64_t step = chunk == 1 && c.lengths[s] > 200 ? 37 : chunk;
        for (std::int64_t first = 0; first < c.lengths[s]; first += step) {
          const std::int64_t end = std::min(c.lengths[s], first + chunk);
          ASSERT_EQ(run_on(runner_, c, {{s, first, end}}), expected(first, end)) << "from " << first;
        }
      }
      const std::int64_t last = c.lengths[s] - 1;
      EXPECT_EQ(run_on(one_thread, c, {{s, last, last + 1}}), expected(last, last + 1));
      first_row += c.lengths[s];
    }
  }
};

TEST_P(PagedAttentionTest, MatchesTheReferenceForShortAndLongSequences) {
  expect_like_reference({.lengths = {1, 2, 15, 16, 17, 33, 64}});
  expect_like_reference({.head_dim = 16, .lengths = {511, 512, 513, 700}});
}

TEST_P(PagedAttentionTest, MatchesTheReferenceForAnyBlockSize) {
  for (const std::int32_t block_size : {1, 3, 4, 16, 32, 50}) {
    SCOPED_TRACE(block_size);
    expect_like_reference({.block_size = block_size, .lengths = {7, 61}});
  }
}

TEST_P(PagedAttentionTest, MatchesTheReferenceForAnyHeadDimension) {
  for (const std::int64_t head_dim : {1, 8, 24, 64, 80, 96, 128, 200, 600}) {
    SCOPED_TRACE(head_dim);
    expect_like_reference({.head_dim = head_dim, .lengths = {5, 40}});
  }
}

TEST_P(PagedAttentionTest, MatchesTheReferenceForAnyGroupingOfHeads) {
  expect_like_reference({.num_heads = 3, .num_kv_heads = 3, .lengths = {5, 40}});
  expect_like_reference({.num_heads = 14, .num_kv_heads = 2, .lengths = {5, 40}});
  expect_like_reference({.num_heads = 71, .num_kv_heads = 1, .head_dim = 16, .lengths = {5, 40}});
}

TEST_P(PagedAttentionTest, MatchesTheReferenceWithWindowSoftcapAndAlibi) {
  for (const std::int32_t window : {1, 5, 16, 40, 600}) {
    SCOPED_TRACE(window);
    expect_like_reference({.lengths = {3, 90}, .window = window});
  }
  expect_like_reference({.head_dim = 16, .lengths = {1300}, .window = 530});
  expect_like_reference({.lengths = {3, 90}, .softcap = 2.0F});
  expect_like_reference({.lengths = {3, 90}, .alibi = true});
  expect_like_reference({.num_heads = 5, .num_kv_heads = 5, .head_dim = 24, .lengths = {3, 90}, .alibi = true});
  expect_like_reference({.num_heads = 6, .head_dim = 16, .lengths = {1300}, .alibi = true});
  expect_like_reference({.lengths = {3, 90}, .window = 20, .softcap = 30.0F, .alibi = true});
}

TEST_P(PagedAttentionTest, SeesNothingBeforeTheFirstPosition) {
  for (const std::int32_t first : {1, 2, 15, 16, 35}) {
    SCOPED_TRACE(first);
    expect_like_reference({.lengths = {36, 90, 600}, .first_position = first});
    expect_like_reference({.lengths = {36, 90}, .window = 20, .first_position = first, .alibi = true});
  }
}

TEST_P(PagedAttentionTest, GivesARowTheSameBitsInPrefillChunksAndDecode) {
  expect_same_bits_in_any_split({.lengths = {1, 45, 130}});
  expect_same_bits_in_any_split({.num_heads = 3, .num_kv_heads = 1, .head_dim = 20, .lengths = {90, 31}});
  expect_same_bits_in_any_split({.num_heads = 2, .num_kv_heads = 1, .head_dim = 16, .lengths = {1200}});
}

TEST_P(PagedAttentionTest, GivesARowTheSameBitsInAnySplitWithWindowSoftcapAndAlibi) {
  expect_same_bits_in_any_split({.lengths = {150}, .window = 37});
  expect_same_bits_in_any_split({.num_heads = 2, .num_kv_heads = 1, .head_dim = 16, .lengths = {1200}, .window = 600});
  expect_same_bits_in_any_split({.lengths = {100}, .softcap = 5.0F, .alibi = true});
  expect_same_bits_in_any_split(
      {.num_heads = 5, .num_kv_heads = 5, .head_dim = 16, .lengths = {600, 31}, .alibi = true});
}

TEST_P(PagedAttentionTest, GivesARowTheSameBitsForAnyBlockSize) {
  const auto with_block_size = [&](std::int32_t block_size) {
    const AttentionCase c = filled({.block_size = block_size, .lengths = {70, 41}});
    return run_on(runner_, c, c.whole_batch());
  };
  const std::vector<float> expected = with_block_size(16);
  for (const std::int32_t block_size : {1, 4, 32}) EXPECT_EQ(with_block_size(block_size), expected);
}

TEST_P(PagedAttentionTest, GivesARowTheSameBitsWhateverElseIsInTheBatch) {
  const AttentionCase c = filled({.head_dim = 16, .lengths = {600, 20, 1100, 3, 64, 65, 33, 90, 12}});
  const std::vector<float> together = run_on(runner_, c, c.whole_batch());
  std::int64_t first_row = 0;
  for (std::size_t s = 0; s < c.lengths.size(); ++s) {
    const std::vector<float> expected(together.begin() + first_row * c.query_width(),
                                      together.begin() + (first_row + c.lengths[s]) * c.query_width());
    EXPECT_EQ(run_on(runner_, c, {{s, 0, c.lengths[s]}}), expected);
    first_row += c.lengths[s];
  }
}

TEST_P(PagedAttentionTest, GivesADecodedRowTheSameBitsWhateverElseIsDecoded) {
  // One long sequence, several of similar length, and a long one among short ones: threads divide each of these in a
  // different way.
  const std::vector<std::vector<std::int64_t>> contexts = {
      {700}, {70, 66, 64, 71, 65, 67, 72, 68, 63, 69}, {700, 3, 64, 65, 33, 1}};
  struct Shape {
    std::int64_t heads_per_kv, head_dim;
    std::int32_t window;
    bool alibi;
  };
  for (const Shape& shape : {Shape{1, 128, 0, false}, Shape{3, 64, 0, true}, Shape{4, 80, 0, false},
                             Shape{8, 144, 600, false}, Shape{9, 64, 0, false}}) {
    for (const std::vector<std::int64_t>& lengths : contexts) {
      SCOPED_TRACE(testing::Message() << shape.heads_per_kv << " heads per KV head, " << lengths.size()
                                      << " sequences");
      const AttentionCase c = filled({.num_heads = 3 * shape.heads_per_kv,
                                      .num_kv_heads = 3,
                                      .head_dim = shape.head_dim,
                                      .lengths = lengths,
                                      .window = shape.window,
                                      .alibi = shape.alibi});
      std::vector<AttentionCase::Rows> batch;
      std::vector<float> expected;
      for (std::size_t s = 0; s < lengths.size(); ++s) {
        batch.push_back({s, lengths[s] - 1, lengths[s]});
        const std::vector<float> chunk =
            run_on(runner_, c, {{s, std::max<std::int64_t>(0, lengths[s] - 9), lengths[s]}});
        expected.insert(expected.end(), chunk.end() - c.query_width(), chunk.end());
      }
      for (const int num_threads : {1, 2, 5}) {
        EXPECT_EQ(run_on(OpRunner(backend(), num_threads), c, batch), expected) << num_threads << " threads";
      }
    }
  }
}

TEST_P(PagedAttentionTest, DoesNothingForAnEmptyBatchAndForSequencesWithoutRows) {
  const AttentionCase c = filled({.lengths = {20, 30}});
  EXPECT_TRUE(run_on(runner_, c, {}).empty());
  const auto with_empty = run_on(runner_, c, {{0, 5, 5}, {1, 29, 30}});
  EXPECT_EQ(with_empty, run_on(runner_, c, {{1, 29, 30}}));
}

INSTANTIATE_TEST_SUITE_P(Devices, PagedAttentionTest,
                         testing::Combine(testing::ValuesIn(testing_support::cpu_backends()),
                                          testing_support::kAllKvDTypes),
                         testing_support::backend_and_dtype_name);

}  // namespace
}  // namespace pagoda::kernels
