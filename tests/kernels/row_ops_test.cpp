#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <iterator>
#include <limits>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/reference/reference_ops.hpp"
#include "tests/kernels/op_fixtures.hpp"

namespace pagoda::kernels {
namespace {

using testing_support::expect_close;
using testing_support::random_floats;
using testing_support::TypedArray;

constexpr DType kDTypes[] = {DType::f32, DType::f16, DType::bf16};
constexpr std::int64_t kOddWidths[] = {1, 3, 4, 7, 8, 15, 16, 17, 31, 33, 63, 64, 100, 2049};

class RowOpsTest : public testing_support::OpTest<std::string> {};

TEST_P(RowOpsTest, EmbeddingWidensTheRowsOfTheTokens) {
  for (const DType dtype : kDTypes) {
    for (const std::int64_t hidden : kOddWidths) {
      SCOPED_TRACE(testing::Message() << to_string(dtype) << " " << hidden);
      const TypedArray table(random_floats(11 * hidden, 1), dtype, 2 * size_of(dtype));
      const std::vector<std::int32_t> ids = {0, 10, 3, 3, 7};
      std::vector<float> actual(ids.size() * static_cast<std::size_t>(hidden));
      std::vector<float> expected = actual;
      EmbeddingParams params;
      params.token_ids = ids.data();
      params.num_tokens = static_cast<std::int64_t>(ids.size());
      params.table = {table.data(), dtype, 11, hidden};
      params.out = expected.data();
      reference::embedding(params);
      params.out = actual.data();
      run(params);
      EXPECT_EQ(actual, expected);
    }
  }
}

TEST_P(RowOpsTest, GatheredTokensFromTheVocabularysEndOnAreZero) {
  const std::vector<std::int32_t> table = {4, 9, 10, 11, 0, 2000000000};
  const std::vector<std::int64_t> slots = {5, 3, 2, 1, 0, 0, 4};
  std::vector<std::int32_t> actual(slots.size());
  GatherTokensParams params;
  params.table = table.data();
  params.slots = slots.data();
  params.count = std::ssize(slots);
  params.out = actual.data();
  run(params);
  EXPECT_EQ(actual, (std::vector<std::int32_t>{2000000000, 11, 10, 9, 4, 4, 0}));
  params.vocab = 10;
  run(params);
  EXPECT_EQ(actual, (std::vector<std::int32_t>{0, 0, 0, 9, 4, 4, 0}));
}

TEST_P(RowOpsTest, EmbeddingWidensEveryHalfExactly) {
  // All bit patterns except NaNs, whose payload bits have no meaning.
  std::vector<std::uint16_t> bits(65536);
  std::iota(bits.begin(), bits.end(), std::uint16_t{0});
  for (const DType dtype : {DType::f16, DType::bf16}) {
    std::vector<float> actual(bits.size());
    const std::int32_t id = 0;
    EmbeddingParams params;
    params.token_ids = &id;
    params.num_tokens = 1;
    params.table = {bits.data(), dtype, 1, 65536};
    params.out = actual.data();
    run(params);
    for (std::size_t i = 0; i < bits.size(); ++i) {
      const float expected = dtype == DType::f16 ? to_float(Float16{bits[i]}) : to_float(BFloat16{bits[i]});
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(actual[i])) << i;
      } else {
        ASSERT_EQ(std::bit_cast<std::uint32_t>(actual[i]), std::bit_cast<std::uint32_t>(expected)) << i;
      }
    }
  }
}

/// A table of random integers, including the padding.
struct RandomTable {
  RandomTable(std::int64_t rows, std::int64_t columns, const QuantizedFormat& format)
      : view{nullptr, nullptr, rows, columns, format} {
    std::mt19937 random(5);
    data.resize(static_cast<std::size_t>(view.data_bytes() + 63) / 64);
    for (Line& line : data) {
      for (std::uint8_t& byte : line.bytes) byte = static_cast<std::uint8_t>(random());
    }
    const std::int64_t count = view.panels() * view.panel_scales();
    for (const float scale : random_floats(count, 6)) scales.push_back(to_f16(scale));
    for (const float min : random_floats(format.asymmetric ? count : 0, 7, 20.0F)) mins.push_back(to_f16(min));
    view.data = data.front().bytes;
    view.scales = scales.data();
    if (format.asymmetric) view.mins = mins.data();
    for (std::int64_t i = 0; i < view.factor_bytes(); ++i) factors.push_back(static_cast<std::int8_t>(random()));
    if (format.two_level_scales) view.factors = factors.data();
  }

  struct alignas(64) Line {
    std::uint8_t bytes[64];
  };
  QuantizedMatrix view;
  std::vector<Line> data;
  std::vector<Float16> scales;
  std::vector<Float16> mins;
  std::vector<std::int8_t> factors;
};

TEST_P(RowOpsTest, EmbeddingTakesRowsOfQuantizedTables) {
  constexpr QuantizedFormat kRowFormats[] = {{8, 32},
                                             {8, 16},
                                             {8, 32, true},
                                             {4, 32},
                                             {4, 32, true},
                                             {4, 16, true},
                                             {4, 16},
                                             {8, 128},
                                             {8, 48, true},
                                             {4, 256},
                                             {5, 32},
                                             {5, 96, true},
                                             {6, 16},
                                             {3, 16},
                                             {2, 16, true, false, Codebook::none, true},
                                             {6, 48, true},
                                             {4, 32, false, false, Codebook::iq4_nl},
                                             {4, 64, false, false, Codebook::nf4},
                                             {4, 16, false, false, Codebook::fp4},
                                             {4, 32, true, false, Codebook::none, true},
                                             {5, 32, true, false, Codebook::none, true},
                                             {6, 16, false, false, Codebook::none, true},
                                             {4, 32, false, false, Codebook::iq4_nl, true}};
  const std::vector<std::int32_t> ids = {0, 36, 15, 16, 16, 31};
  for (const QuantizedFormat& format : kRowFormats) {
    if (format.bits < 4 && on_cuda()) continue;
    for (const std::int64_t hidden : kOddWidths) {
      SCOPED_TRACE(testing::Message() << format.bits << " bits, groups of " << format.group_size << " of " << hidden
                                      << (format.asymmetric ? ", asymmetric" : "")
                                      << (format.two_level_scales ? ", two_level_scales" : "") << ", codebook "
                                      << static_cast<int>(format.codebook));
      const RandomTable table(37, hidden, format);
      const std::vector<float> before = random_floats(std::ssize(ids) * hidden, 8);
      for (const bool accumulate : {false, true}) {
        std::vector<float> actual = before;
        std::vector<float> expected = before;
        EmbeddingParams params;
        params.token_ids = ids.data();
        params.num_tokens = std::ssize(ids);
        params.quantized = table.view;
        params.accumulate = accumulate;
        params.out = expected.data();
        reference::embedding(params);
        params.out = actual.data();
        run(params);
        EXPECT_EQ(actual, expected);
      }
    }
  }
}

TEST_P(RowOpsTest, PartsOfATableGiveZerosForTheIdsOfOtherParts) {
  const std::vector<std::int32_t> ids = {0, 6, 7, 11, 12, 19};
  for (const std::int64_t hidden : {5, 64}) {
    const TypedArray plain(random_floats(5 * hidden, 3), DType::bf16, 2);
    const RandomTable quantized(5, hidden, {8, 32});
    for (const bool is_quantized : {false, true}) {
      EmbeddingParams params;
      params.token_ids = ids.data();
      params.num_tokens = std::ssize(ids);
      if (is_quantized) {
        params.quantized = quantized.view;
      } else {
        params.table = {plain.data(), DType::bf16, 5, hidden};
      }
      params.whole_vocab = 20;
      params.first_row = 7;
      std::vector<float> actual(ids.size() * static_cast<std::size_t>(hidden), 1.0F);
      params.out = actual.data();
      if (on_cuda()) {
        EXPECT_FALSE(runner_(params));
        continue;
      }
      run(params);
      EmbeddingParams whole = params;
      whole.whole_vocab = whole.first_row = 0;
      whole.num_tokens = 1;
      for (std::size_t i = 0; i < ids.size(); ++i) {
        std::vector<float> expected(static_cast<std::size_t>(hidden), 0.0F);
        const std::int32_t row = ids[i] - 7;
        whole.token_ids = &row;
        whole.out = expected.data();
        if (row >= 0 && row < 5) run(whole);
        const auto first = actual.begin() + static_cast<std::ptrdiff_t>(i) * hidden;
        EXPECT_EQ(std::vector<float>(first, first + hidden), expected) << "id " << ids[i];
      }
      params.first_row = 16;
      EXPECT_FALSE(runner_(params)) << "rows beyond the whole table";
    }
  }
}

TEST_P(RowOpsTest, EmbeddingKeepsTheBoundsOfQuantizedTables) {
  const RandomTable table(20, 40, {8, 32});
  const std::int32_t id = 20;  // the row exists only as padding of the panel
  std::vector<float> out(40, 1.0F);
  EmbeddingParams params;
  params.token_ids = &id;
  params.num_tokens = 1;
  params.quantized = table.view;
  params.out = out.data();
  const Status status = runner_(params);
  ASSERT_EQ(status.has_value(), on_cuda());
  if (!on_cuda()) return;
  for (const float value : out) EXPECT_TRUE(std::isnan(value));
}

/// Expects that `run` writes to narrow rows the rounded values that it writes to `out`. A CPU does not support narrow
/// rows.
template <class Params>
void expect_narrow_rows(Params params, std::int64_t count, bool on_cuda,
                        const std::function<Status(const Params&)>& run) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    std::vector<float> wide(static_cast<std::size_t>(count));
    std::vector<std::uint16_t> narrow(static_cast<std::size_t>(count), 0x7FFF);
    params.out = wide.data();
    params.narrow_out = {};
    ASSERT_TRUE(run(params).has_value());
    params.out = nullptr;
    params.narrow_out = {narrow.data(), dtype};
    const Status status = run(params);
    ASSERT_EQ(status.has_value(), on_cuda);
    if (!on_cuda) {
      EXPECT_EQ(status.error().code, ErrorCode::unsupported);
      continue;
    }
    for (std::size_t i = 0; i < narrow.size(); ++i) {
      ASSERT_EQ(narrow[i], dtype == DType::f16 ? to_f16(wide[i]).bits : to_bf16(wide[i]).bits) << i;
    }
  }
}

TEST_P(RowOpsTest, NormsAndActivationsWriteNarrowRows) {
  constexpr std::int64_t kTokens = 5;
  for (const std::int64_t width : {24, 31, 2049}) {
    SCOPED_TRACE(width);
    const std::vector<float> weight = random_floats(width, 2);
    const std::vector<float> x = random_floats(kTokens * 2 * width, 3, 4.0F);
    RmsNormParams rms;
    rms.x = x.data();
    rms.weight = weight.data();
    rms.num_tokens = kTokens;
    rms.hidden = width;
    expect_narrow_rows<RmsNormParams>(rms, kTokens * width, on_cuda(), [&](const auto& p) { return runner_(p); });
    LayerNormParams layer;
    layer.x = x.data();
    layer.weight = weight.data();
    layer.bias = weight.data();
    layer.num_tokens = kTokens;
    layer.hidden = width;
    expect_narrow_rows<LayerNormParams>(layer, kTokens * width, on_cuda(), [&](const auto& p) { return runner_(p); });
    for (const bool gated : {false, true}) {
      ActivationParams activation;
      activation.x = x.data();
      activation.num_tokens = kTokens;
      activation.width = width;
      activation.gated = gated;
      expect_narrow_rows<ActivationParams>(activation, kTokens * width, on_cuda(),
                                           [&](const auto& p) { return runner_(p); });
    }
  }
}

TEST_P(RowOpsTest, RmsNormMatchesTheReferenceWithAndWithoutAResidualAndAnOffset) {
  for (const DType dtype : kDTypes) {
    for (const std::int64_t hidden : kOddWidths) {
      for (const bool with_residual : {false, true}) {
        SCOPED_TRACE(testing::Message() << to_string(dtype) << " " << hidden << " " << with_residual);
        constexpr std::int64_t kTokens = 19;
        const TypedArray weight(random_floats(hidden, 2), dtype);
        const std::vector<float> x = random_floats(kTokens * hidden, 3, 4.0F);
        const std::vector<float> residual = random_floats(kTokens * hidden, 4, 4.0F);
        RmsNormParams params;
        params.weight = weight.data();
        params.weight_dtype = dtype;
        params.weight_offset = with_residual ? 0.0F : 1.0F;
        params.num_tokens = kTokens;
        params.hidden = hidden;
        const auto normalise = [&](std::vector<float>& out, std::vector<float>& sum, const auto& op) {
          out = x;  // in place
          sum = residual;
          params.x = params.out = out.data();
          params.residual = with_residual ? sum.data() : nullptr;
          op();
        };
        std::vector<float> expected, expected_sum, actual, actual_sum;
        normalise(expected, expected_sum, [&] { reference::rms_norm(params); });
        normalise(actual, actual_sum, [&] { run(params); });
        expect_close(actual, expected, 1e-6, 1e-5);
        EXPECT_EQ(actual_sum, expected_sum);
      }
    }
  }
}

TEST_P(RowOpsTest, RotaryMatchesTheReferenceInBothStyles) {
  for (const bool interleaved : {false, true}) {
    for (const auto& [head_dim, rotary_dim] : std::vector<std::pair<std::int64_t, std::int64_t>>{
             {2, 2}, {8, 8}, {64, 64}, {80, 32}, {128, 128}, {96, 90}, {40, 6}}) {
      SCOPED_TRACE(testing::Message() << head_dim << " " << rotary_dim << " " << interleaved);
      constexpr std::int64_t kTokens = 7;
      constexpr std::int64_t kMaxPosition = 50;
      const std::vector<std::int32_t> positions = {0, 49, 3, 3, 17, 20, 1};
      const std::vector<float> cos_sin = random_floats(kMaxPosition * rotary_dim, 5);
      RotaryParams params;
      params.positions = positions.data();
      params.num_tokens = kTokens;
      params.num_heads = 3;
      params.num_kv_heads = 2;
      params.head_dim = head_dim;
      params.rotary_dim = rotary_dim;
      params.query_stride = 3 * head_dim + 5;
      params.key_stride = 2 * head_dim + 1;
      params.cos_sin = cos_sin.data();
      params.interleaved = interleaved;
      std::vector<float> expected_query = random_floats(kTokens * params.query_stride, 6);
      std::vector<float> expected_key = random_floats(kTokens * params.key_stride, 7);
      std::vector<float> query = expected_query;
      std::vector<float> key = expected_key;
      params.query = expected_query.data();
      params.key = expected_key.data();
      reference::rotary(params);
      params.query = query.data();
      params.key = key.data();
      run(params);
      expect_close(query, expected_query, 1e-6, 1e-6);
      expect_close(key, expected_key, 1e-6, 1e-6);
    }
  }
}

TEST_P(RowOpsTest, StoreKvWritesTheSlotsAndNothingElse) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::fp8_e4m3, DType::int8}) {
    for (const std::int64_t head_dim : {1, 7, 16, 33, 128}) {
      for (const std::int32_t block_size : {1, 4, 16}) {
        SCOPED_TRACE(testing::Message() << to_string(dtype) << " " << head_dim << " " << block_size);
        KvCacheView cache;
        cache.num_blocks = 16 / block_size + 2;
        cache.block_size = block_size;
        cache.num_kv_heads = 3;
        cache.head_dim = head_dim;
        cache.dtype = dtype;
        cache.block_bytes = 2 * cache.part_bytes() + 32;
        const std::vector<std::int64_t> slots = {0, -1, 15, 7, 3, 8};
        StoreKvParams params;
        params.key_stride = 3 * head_dim + 2;
        params.value_stride = 3 * head_dim;
        std::vector<float> key = random_floats(6 * params.key_stride, 8);
        std::vector<float> value = random_floats(6 * params.value_stride, 9);
        key[0] = std::numeric_limits<float>::infinity();
        value[0] = 1e30F;  // overflows f16 and fp8_e4m3
        std::fill_n(key.begin() + 2 * params.key_stride, head_dim, 0.0F);
        std::fill_n(key.begin() + 3 * params.key_stride, head_dim, -1e-38F);
        params.key = key.data();
        params.value = value.data();
        params.slot_mapping = slots.data();
        params.num_tokens = 6;
        params.cache = cache;
        std::vector<std::byte> expected(static_cast<std::size_t>(cache.block_bytes * cache.num_blocks),
                                        std::byte{0xAB});
        std::vector<std::byte> actual = expected;
        params.cache.base = expected.data();
        reference::store_kv(params);
        params.cache.base = actual.data();
        run(params);
        EXPECT_EQ(actual, expected);
      }
    }
  }
}

TEST_P(RowOpsTest, StoreKvRoundsEveryFloatToFp8AsTheReferenceDoes) {
  // The inputs are every fp8_e4m3 value, the midpoint between it and the next one, floats close to these, larger
  // values, and NaN.
  std::vector<float> values;
  for (std::uint8_t bits = 0; bits < 0x7E; ++bits) {
    const float value = to_float(Float8E4M3{bits});
    const float middle = value + (to_float(Float8E4M3{static_cast<std::uint8_t>(bits + 1)}) - value) / 2;
    for (const float x : {value, middle}) {
      for (const float near : {x, std::nextafter(x, -1.0F), std::nextafter(x, 1e30F)}) {
        values.push_back(near);
        values.push_back(-near);
      }
    }
  }
  for (const float x : {448.0F, 464.0F, 464.1F, 1e30F, std::numeric_limits<float>::infinity(),
                        std::numeric_limits<float>::quiet_NaN()}) {
    values.push_back(x);
    values.push_back(-x);
  }
  const auto count = static_cast<std::int64_t>(values.size());
  std::vector<std::byte> memory(static_cast<std::size_t>(2 * (count + 16)));
  const std::int64_t slot = 0;
  StoreKvParams params;
  params.key = params.value = values.data();
  params.key_stride = params.value_stride = count;
  params.slot_mapping = &slot;
  params.num_tokens = 1;
  params.cache = {memory.data(), static_cast<std::int64_t>(memory.size()), 1, 1, 1, count, DType::fp8_e4m3};
  run(params);
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(std::to_integer<int>(memory[i]), to_fp8_e4m3(values[i]).bits) << values[i];
  }
}

TEST_P(RowOpsTest, StoreKvSaturatesInFloat16) {
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  constexpr std::uint16_t kMaxFloat16 = 0x7BFF;
  for (const std::int64_t head_dim : {1, 4, 7, 8, 16, 33}) {
    for (const float x : {65504.0F, 65519.0F, 65520.0F, 70000.0F, 1e30F, kInfinity}) {
      SCOPED_TRACE(testing::Message() << head_dim << " " << x);
      const auto count = static_cast<std::size_t>(head_dim);
      const std::vector<float> key(count, x);
      const std::vector<float> value(count, -x);
      std::vector<std::uint16_t> cache(2 * count);
      const std::int64_t slot = 0;
      StoreKvParams params;
      params.key = key.data();
      params.value = value.data();
      params.key_stride = params.value_stride = head_dim;
      params.slot_mapping = &slot;
      params.num_tokens = 1;
      params.cache = {reinterpret_cast<std::byte*>(cache.data()), 4 * head_dim, 1, 1, 1, head_dim, DType::f16};
      run(params);
      std::vector<std::uint16_t> expected(count, kMaxFloat16);
      expected.resize(2 * count, kMaxFloat16 | 0x8000U);
      EXPECT_EQ(cache, expected);
    }
  }
}

TEST_P(RowOpsTest, StoreKvKeepsNanInFloat16) {
  constexpr std::int64_t kHeadDim = 19;  // vectors of every length, and a rest
  const std::vector<float> nans(kHeadDim, std::numeric_limits<float>::quiet_NaN());
  std::vector<Float16> cache(2 * kHeadDim);
  const std::int64_t slot = 0;
  StoreKvParams params;
  params.key = params.value = nans.data();
  params.key_stride = params.value_stride = kHeadDim;
  params.slot_mapping = &slot;
  params.num_tokens = 1;
  params.cache = {reinterpret_cast<std::byte*>(cache.data()), 4 * kHeadDim, 1, 1, 1, kHeadDim, DType::f16};
  run(params);
  EXPECT_TRUE(std::ranges::all_of(cache, [](Float16 x) { return std::isnan(to_float(x)); }));
}

TEST_P(RowOpsTest, ActivationsMatchTheReferenceOverTheirWholeRange) {
  std::vector<float> x = {0.0F, -0.0F, 1e-30F, -1e-30F, 1e4F, -1e4F, 88.0F, -88.0F, 90.0F, -90.0F, 200.0F, -200.0F};
  for (float v = -20.0F; v < 20.0F; v += 0.0137F) x.push_back(v);
  const auto width = static_cast<std::int64_t>(x.size());
  for (const Activation activation : {Activation::silu, Activation::gelu, Activation::gelu_tanh, Activation::relu}) {
    SCOPED_TRACE(static_cast<int>(activation));
    std::vector<float> actual(x.size());
    std::vector<float> expected(x.size());
    ActivationParams params;
    params.x = x.data();
    params.num_tokens = 1;
    params.width = width;
    params.activation = activation;
    params.gated = false;
    params.out = expected.data();
    reference::activation(params);
    params.out = actual.data();
    run(params);
    expect_close(actual, expected, 1e-7, 2e-6);
  }
}

TEST_P(RowOpsTest, ActivationsPropagateNan) {
  const std::vector<float> x = {std::numeric_limits<float>::quiet_NaN(), 1.0F};
  for (const Activation activation : {Activation::silu, Activation::gelu, Activation::gelu_tanh}) {
    std::vector<float> out(2);
    ActivationParams params;
    params.x = x.data();
    params.num_tokens = 1;
    params.width = 2;
    params.activation = activation;
    params.gated = false;
    params.out = out.data();
    run(params);
    EXPECT_TRUE(std::isnan(out[0]));
    EXPECT_FALSE(std::isnan(out[1]));
  }
}

TEST_P(RowOpsTest, ScaleMultipliesAndSoftcapBoundsEveryValue) {
  for (const std::int64_t width : kOddWidths) {
    for (const float softcap : {0.0F, 0.5F, 30.0F}) {
      SCOPED_TRACE(testing::Message() << width << " " << softcap);
      constexpr std::int64_t kRows = 7;
      std::vector<float> actual = random_floats(kRows * width, 14, 2000.0F);
      std::vector<float> expected = actual;
      ScaleParams params{.x = expected.data(), .num_rows = kRows, .width = width, .factor = 0.3F, .softcap = softcap};
      reference::scale(params);
      params.x = actual.data();
      run(params);
      expect_close(actual, expected, 1e-7, 2e-6);
      const auto within = [=](float v) { return std::abs(v) <= softcap; };
      EXPECT_EQ(std::ranges::all_of(actual, within), softcap > 0.0F);
    }
  }
}

TEST_P(RowOpsTest, GatedActivationMultipliesByTheSecondHalf) {
  for (const std::int64_t width : kOddWidths) {
    SCOPED_TRACE(width);
    constexpr std::int64_t kTokens = 9;
    const std::vector<float> x = random_floats(kTokens * 2 * width, 12, 3.0F);
    std::vector<float> actual(static_cast<std::size_t>(kTokens * width));
    std::vector<float> expected = actual;
    ActivationParams params;
    params.x = x.data();
    params.num_tokens = kTokens;
    params.width = width;
    params.out = expected.data();
    reference::activation(params);
    params.out = actual.data();
    run(params);
    expect_close(actual, expected, 1e-6, 2e-6);
  }
}

TEST_P(RowOpsTest, ActivationWorksInPlaceWhenItIsNotGated) {
  std::vector<float> x = random_floats(5 * 33, 13);
  std::vector<float> expected(x.size());
  ActivationParams params;
  params.x = x.data();
  params.num_tokens = 5;
  params.width = 33;
  params.gated = false;
  params.out = expected.data();
  reference::activation(params);
  params.out = x.data();
  run(params);
  expect_close(x, expected, 1e-7, 2e-6);
}

TEST_P(RowOpsTest, GatherRowsCopiesRowsInTheGivenOrder) {
  const std::vector<float> x = random_floats(10 * 37, 14);
  const std::vector<std::int32_t> rows = {9, 0, 4, 4, 2};
  for (const std::int64_t width : {1, 37}) {
    SCOPED_TRACE(width);
    std::vector<float> actual(rows.size() * static_cast<std::size_t>(width));
    std::vector<float> expected = actual;
    GatherRowsParams params{x.data(), rows.data(), std::ssize(rows), width, expected.data()};
    reference::gather_rows(params);
    params.out = actual.data();
    run(params);
    EXPECT_EQ(actual, expected);
  }
}

TEST_P(RowOpsTest, MoveBlocksMovesInTheOrderOfTheLists) {
  for (const std::int64_t block_bytes : {1, 100, 65536, 300001}) {
    SCOPED_TRACE(block_bytes);
    const std::vector<float> random = random_floats((6 * block_bytes + 3) / 4, 15);
    std::vector<std::byte> expected(static_cast<std::size_t>(6 * block_bytes));
    std::memcpy(expected.data(), random.data(), expected.size());
    std::vector<std::byte> actual = expected;
    // Block 0 is overwritten after it was read, and block 3 is read after it was written.
    const std::vector<std::int32_t> from = {0, 1, 3, 5};
    const std::vector<std::int32_t> to = {3, 0, 2, 5};
    MoveBlocksParams params{expected.data(), expected.data(), block_bytes, from, to};
    reference::move_blocks(params);
    params.from_base = params.to_base = actual.data();
    run(params);
    EXPECT_EQ(actual, expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, RowOpsTest, testing::ValuesIn(testing_support::all_backends()),
                         testing_support::backend_name);

}  // namespace
}  // namespace pagoda::kernels
