/// The products on a matrix unit, on an emulated one, so that they are tested on every machine. The tests of the ops
/// run on the unit itself where the machine has one (backend avx512_amx).

#define PAGODA_SIMD emulated_matrix_unit
// clang-format off: the other headers depend on these
#include "kernels/cpu/simd/ints_portable.hpp"
#include "kernels/cpu/simd/matrix_unit_emulated.hpp"
// clang-format on
#include "kernels/cpu/simd/matrix_table.inl.hpp"
#undef PAGODA_SIMD

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu/attention.hpp"
#include "kernels/cpu/isa.hpp"
#include "kernels/cpu/kernel_table.hpp"
#include "kernels/cpu/linear.hpp"
#include "kernels/cpu/quantized_linear.hpp"
#include "kernels/reference/reference_ops.hpp"
#include "tests/kernels/attention_case.hpp"
#include "tests/kernels/op_fixtures.hpp"

namespace pagoda::kernels {
namespace {

/// A weight matrix of any integers that the format has.
class AnyMatrix {
 public:
  AnyMatrix(std::int64_t rows, std::int64_t columns, QuantizedFormat format) {
    view.rows = rows;
    view.columns = columns;
    view.format = format;
    data_.resize(static_cast<std::size_t>(view.data_bytes() + kAlignment));
    scales_.resize(static_cast<std::size_t>(view.scale_bytes() + kAlignment) / sizeof(Float16));
    mins_.resize(scales_.size());
    factors_.resize(static_cast<std::size_t>(view.factor_bytes()));
    for (std::uint8_t& byte : data_) byte = static_cast<std::uint8_t>(random_());
    for (Float16& scale : scales_) scale = to_f16(static_cast<float>(random_() % 64 + 1) / 1024);
    for (Float16& min : mins_) min = to_f16(-static_cast<float>(random_() % 64) / 128);
    for (std::int8_t& factor : factors_) factor = static_cast<std::int8_t>(random_());
    if (format.affine) draw_affine();
    view.data = aligned(data_.data());
    view.scales = aligned(scales_.data());
    if (format.asymmetric) view.mins = aligned(mins_.data());
    if (format.factor_columns() > 0) view.factors = factors_.data();
  }

  QuantizedMatrix view;

 private:
  static constexpr std::uintptr_t kAlignment = 64;

  /// Draws multipliers and offsets whose values are bytes.
  void draw_affine() {
    const unsigned highest = (1U << view.format.bits) - 1;
    for (std::size_t i = 0; i < factors_.size(); ++i) {
      if (i / kQuantizedPanel % 2 == 1) continue;
      const unsigned multiplier = static_cast<unsigned>(random_()) % (255 / highest + 1);
      const unsigned room = 256 - multiplier * highest;
      factors_[i] = static_cast<std::int8_t>(multiplier);
      factors_[i + kQuantizedPanel] = static_cast<std::int8_t>(static_cast<int>(random_() % room) - 128);
    }
  }

  template <class T>
  static const T* aligned(const T* pointer) {
    return reinterpret_cast<const T*>((reinterpret_cast<std::uintptr_t>(pointer) + kAlignment - 1) / kAlignment *
                                      kAlignment);
  }

  std::mt19937 random_{7};
  std::vector<std::uint8_t> data_;
  std::vector<Float16> scales_;
  std::vector<Float16> mins_;
  std::vector<std::int8_t> factors_;
};

/// Adds the product and biases to an output whose rows are longer than the results.
std::vector<float> product_of(const CpuKernels& kernels, const std::vector<QuantizedMatrix>& weights,
                              const std::vector<float>& x, std::int64_t num_tokens, int num_threads = 2) {
  ThreadPool threads(num_threads);
  static ScratchPool scratch;
  QuantizedLinearParams params;
  const std::vector<float> bias = testing_support::random_floats(1000, 5);
  std::vector<const void*> biases;
  for (const QuantizedMatrix& weight : weights) {
    params.out_stride += weight.rows;
    biases.push_back(biases.empty() ? nullptr : bias.data());
  }
  params.out_stride += 3;
  std::vector<float> out(static_cast<std::size_t>(num_tokens * params.out_stride), -1.0F);
  params.biases = biases;
  params.accumulate = true;
  params.x = x.data();
  params.num_tokens = num_tokens;
  params.in = weights.front().columns;
  params.weights = weights;
  params.out = out.data();
  EXPECT_TRUE(cpu_quantized_linear(kernels, threads, scratch, params).has_value());
  return out;
}

CpuKernels with_emulated_unit() {
  CpuKernels kernels = portable_kernels();
  kernels.matrix = emulated_matrix_unit::kMatrixTable;
  kernels.matrix.min_quantized_rows = 1;
  kernels.matrix.min_quantized_group = 1;
  return kernels;
}

struct MatrixUnitFormat {
  const char* name;
  QuantizedFormat format;
};

class MatrixUnit : public testing::TestWithParam<MatrixUnitFormat> {};

TEST_P(MatrixUnit, MultipliesQuantizedWeightsToTheSameBits) {
  const CpuKernels kernels = with_emulated_unit();
  for (const std::int64_t columns : {16, 100, 272, 700}) {
    const AnyMatrix weights(100, columns, GetParam().format);
    const AnyMatrix more(37, columns, GetParam().format);
    for (const std::int64_t num_tokens : {1, 16, 17, 31, 33, 70}) {
      SCOPED_TRACE(testing::Message() << num_tokens << " rows, " << columns << " columns");
      const std::vector<float> x = testing_support::random_floats(num_tokens * columns, 3);
      const std::vector<QuantizedMatrix> both = {weights.view, more.view};
      EXPECT_EQ(product_of(kernels, both, x, num_tokens), product_of(portable_kernels(), both, x, num_tokens));
    }
  }
}

TEST_P(MatrixUnit, MultipliesSeveralBlocksOfRowsBySeveralBands) {
  constexpr std::int64_t kTokens = 545;
  constexpr std::int64_t kColumns = 80;
  const AnyMatrix weights(600, kColumns, GetParam().format);
  const AnyMatrix more(21, kColumns, GetParam().format);
  const std::vector<QuantizedMatrix> both = {weights.view, more.view};
  const std::vector<float> x = testing_support::random_floats(kTokens * kColumns, 3);
  EXPECT_EQ(product_of(with_emulated_unit(), both, x, kTokens, 1), product_of(portable_kernels(), both, x, kTokens));
}

TEST_P(MatrixUnit, TakesColumnsOfXInAnOrder) {
  if (GetParam().format.rotated) return;  // rotated formats have no column order
  constexpr std::int64_t kTokens = 40;
  constexpr std::int64_t kColumns = 300;
  AnyMatrix weights(50, kColumns, GetParam().format);
  std::vector<std::int32_t> order;
  for (std::int32_t k = 0; k < kColumns; ++k) order.push_back(static_cast<std::int32_t>(k * 7 % kColumns));
  weights.view.order = order.data();
  const std::vector<float> x = testing_support::random_floats(kTokens * kColumns, 3);
  EXPECT_EQ(product_of(with_emulated_unit(), {weights.view}, x, kTokens),
            product_of(portable_kernels(), {weights.view}, x, kTokens));
}

INSTANTIATE_TEST_SUITE_P(
    Formats, MatrixUnit,
    testing::Values(
        MatrixUnitFormat{"int8", kInt8Weights}, MatrixUnitFormat{"int4", kInt4Weights},
        MatrixUnitFormat{"int6", kInt6Weights},
        MatrixUnitFormat{"q4_k", {.bits = 4, .group_size = 32, .asymmetric = true, .two_level_scales = true}},
        MatrixUnitFormat{"q8_0", {8, 32}}, MatrixUnitFormat{"q4_0", kPlainInt4Weights},
        MatrixUnitFormat{"int8_asymmetric_groups_of_48", {8, 48, true}},
        MatrixUnitFormat{"int6_groups_of_240", {6, 240}}, MatrixUnitFormat{"int4_groups_of_80", {4, 80}},
        MatrixUnitFormat{"int8_groups_of_112", {8, 112}}, MatrixUnitFormat{"int4_groups_of_144", {4, 144, true}},
        MatrixUnitFormat{"int8_groups_of_208", {8, 208}},
        MatrixUnitFormat{"int8_asymmetric_groups_of_256", {8, 256, true}},
        MatrixUnitFormat{"int2_groups_of_16", {2, 16, true}}, MatrixUnitFormat{"int3", {3, 64}},
        MatrixUnitFormat{"q5_k", {.bits = 5, .group_size = 32, .asymmetric = true, .two_level_scales = true}},
        MatrixUnitFormat{"q6_k", {.bits = 6, .group_size = 16, .two_level_scales = true}},
        MatrixUnitFormat{"nf4", {.bits = 4, .group_size = 256, .codebook = Codebook::nf4}}),
    [](const testing::TestParamInfo<MatrixUnitFormat>& format) { return std::string(format.param.name); });

/// A linear layer with bfloat16 weights in parts.
struct Bf16Layer {
  std::int64_t in = 0;
  std::vector<std::int64_t> out_features = {};
  bool has_biases = false;
  bool accumulates = false;

  std::vector<std::vector<BFloat16>> weights() const {
    std::vector<std::vector<BFloat16>> parts;
    for (const std::int64_t rows : out_features) {
      std::vector<BFloat16>& part = parts.emplace_back();
      for (const float value : testing_support::random_floats(rows * in, static_cast<std::uint32_t>(rows))) {
        part.push_back(to_bf16(value));
      }
    }
    return parts;
  }

  std::vector<float> multiply(const CpuKernels& kernels, const std::vector<float>& x, std::int64_t num_tokens,
                              const std::vector<std::vector<BFloat16>>& weights) const {
    static ThreadPool threads(2);
    static ScratchPool scratch;
    LinearParams params;
    std::vector<WeightMatrix> matrices;
    std::vector<const void*> biases;
    const std::vector<float> bias = testing_support::random_floats(1000, 5);
    for (std::size_t part = 0; part < weights.size(); ++part) {
      matrices.push_back({.data = weights[part].data(), .dtype = DType::bf16, .rows = out_features[part]});
      biases.push_back(part == 0 ? nullptr : bias.data());
      params.out_stride += out_features[part];
    }
    std::vector<float> out(static_cast<std::size_t>(num_tokens * params.out_stride), 0.5F);
    params.x = x.data();
    params.num_tokens = num_tokens;
    params.in = in;
    params.weights = matrices;
    if (has_biases) params.biases = biases;
    params.out = out.data();
    params.accumulate = accumulates;
    EXPECT_TRUE(cpu_linear(kernels, threads, scratch, params).has_value());
    return out;
  }
};

const Bf16Layer kBf16Layers[] = {{.in = 32, .out_features = {32}},
                                 {.in = 64, .out_features = {17, 1}, .has_biases = true},
                                 {.in = 33, .out_features = {5}, .accumulates = true},
                                 {.in = 1, .out_features = {40}},
                                 {.in = 1030, .out_features = {48, 20}, .has_biases = true, .accumulates = true},
                                 {.in = 512, .out_features = {300}},
                                 {.in = 40, .out_features = {900, 33}, .has_biases = true}};

TEST(MatrixUnitLinear, MultipliesBfloat16WeightsByRoundedRows) {
  const CpuKernels kernels = with_emulated_unit();
  for (const Bf16Layer& layer : kBf16Layers) {
    constexpr std::int64_t kTokens = 3;
    const auto weights = layer.weights();
    std::vector<float> x = testing_support::random_floats(kTokens * layer.in, 9);
    const std::vector<float> actual = layer.multiply(kernels, x, kTokens, weights);
    for (float& value : x) value = to_float(to_bf16(value));
    // With rounded rows, the kernels that multiply in float32 give the same up to the order of the sums.
    const std::vector<float> expected = layer.multiply(portable_kernels(), x, kTokens, weights);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      ASSERT_NEAR(actual[i], expected[i], 1e-5 * std::sqrt(static_cast<double>(layer.in))) << i;
    }
  }
}

TEST(MatrixUnitLinear, GivesTheSameBitsInAnyBatch) {
  const CpuKernels kernels = with_emulated_unit();
  for (const Bf16Layer& layer : kBf16Layers) {
    constexpr std::int64_t kTokens = 261;  // all of them take another way than the first ones
    const auto weights = layer.weights();
    const std::vector<float> x = testing_support::random_floats(kTokens * layer.in, 11);
    const std::vector<float> all = layer.multiply(kernels, x, kTokens, weights);
    for (const std::int64_t num_tokens : {1, 2, 9, 15, 17, 64}) {
      const std::vector<float> some = layer.multiply(kernels, x, num_tokens, weights);
      ASSERT_TRUE(std::equal(some.begin(), some.end(), all.begin())) << layer.in << " columns, " << num_tokens;
    }
  }
}

TEST(MatrixUnitLinear, IsEmulatedToTheLastBit) {
  const Result<CpuIsa> isa = choose_isa("avx512_amx");
  if (!isa) GTEST_SKIP() << isa.error().message;
  const CpuKernels emulated = with_emulated_unit();
  for (const Bf16Layer& layer : kBf16Layers) {
    constexpr std::int64_t kTokens = 261;
    auto weights = layer.weights();
    std::vector<float> x = testing_support::random_floats(kTokens * layer.in, 13);
    // Subnormal numbers, numbers whose products are subnormal or overflow, and infinity.
    const float special[] = {0.0F,    -0.0F,  1e-40F, -3e-39F, 2e-20F,
                             -4e-20F, 1e-38F, 3e38F,  -3e38F,  std::numeric_limits<float>::infinity()};
    for (std::size_t i = 0; i < std::size(special) && i < x.size() / 2; ++i) {
      x[2 * i] = special[i];
      weights[0][(2 * i + 4) % weights[0].size()] = to_bf16(special[i]);
    }
    const std::vector<float> actual = layer.multiply(kernels_for(*isa), x, kTokens, weights);
    const std::vector<float> expected = layer.multiply(emulated, x, kTokens, weights);
    for (std::size_t i = 0; i < expected.size(); ++i) {
      if (std::isnan(expected[i])) {
        ASSERT_TRUE(std::isnan(actual[i])) << i;
      } else {
        ASSERT_EQ(actual[i], expected[i]) << layer.in << " columns, " << i;
      }
    }
  }
}

using testing_support::AttentionCase;

std::vector<AttentionCase> attention_cases() {
  return {{.head_dim = 64, .lengths = {1, 15, 16, 17, 33, 130}},
          {.num_heads = 8, .num_kv_heads = 1, .head_dim = 16, .lengths = {530, 20}},
          {.num_heads = 3, .num_kv_heads = 3, .head_dim = 80, .block_size = 3, .lengths = {70}},
          {.num_heads = 144, .num_kv_heads = 1, .lengths = {70}},
          {.num_heads = 6, .num_kv_heads = 3, .head_dim = 48, .lengths = {600}, .window = 530, .alibi = true},
          {.num_heads = 20, .num_kv_heads = 1, .head_dim = 128, .block_size = 32, .lengths = {40}},
          {.head_dim = 33, .block_size = 50, .lengths = {90}, .window = 20, .alibi = true},
          {.head_dim = 1, .lengths = {90, 36}, .window = 70, .first_position = 16, .softcap = 5.0F}};
}

std::vector<float> attention_of(const CpuKernels& kernels, const AttentionCase& c,
                                const std::vector<AttentionCase::Rows>& rows, int num_threads = 2) {
  ThreadPool threads(num_threads);
  static ScratchPool scratch;
  return c.attend(rows, [&](const PagedAttentionParams& params) {
    EXPECT_TRUE(cpu_paged_attention(kernels, threads, scratch, params).has_value());
  });
}

TEST(MatrixUnitAttention, MatchesTheReferenceForRoundedQueries) {
  for (AttentionCase& c : attention_cases()) {
    c.dtype = DType::bf16;
    c.fill();
    for (std::vector<float>& query : c.queries) query = testing_support::rounded_to(DType::bf16, query);
    const std::vector<float> expected =
        c.attend(c.whole_batch(), [](const PagedAttentionParams& p) { reference::paged_attention(p); });
    // Probabilities are rounded to bfloat16, too.
    testing_support::expect_close(attention_of(with_emulated_unit(), c, c.whole_batch()), expected, 4e-3, 4e-3);
  }
}

TEST(MatrixUnitAttention, GivesARowTheSameBitsInPrefillChunksAndDecode) {
  for (AttentionCase& c : attention_cases()) {
    c.dtype = DType::bf16;
    c.fill();
    const std::vector<float> whole = attention_of(with_emulated_unit(), c, c.whole_batch());
    std::int64_t first_row = 0;
    for (std::size_t s = 0; s < c.lengths.size(); ++s) {
      const std::int64_t length = c.lengths[s];
      for (const std::int64_t rows : {1, 2, 7, 19}) {
        const std::int64_t first = std::max<std::int64_t>(c.first_position, length - rows);
        const std::vector<float> expected(whole.begin() + (first_row + first - c.first_position) * c.query_width(),
                                          whole.begin() + (first_row + length - c.first_position) * c.query_width());
        for (const int num_threads : {1, 3}) {
          EXPECT_EQ(attention_of(with_emulated_unit(), c, {{s, first, length}}, num_threads), expected)
              << c.head_dim << " dimensions, " << rows << " rows of " << length;
        }
      }
      first_row += length - c.first_position;
    }
  }
}

}  // namespace
}  // namespace pagoda::kernels
