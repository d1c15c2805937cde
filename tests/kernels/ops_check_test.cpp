#include "kernels/ops_check.hpp"

#include <functional>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pagoda::kernels {
namespace {

using testing::HasSubstr;

/// Valid params of every op over small buffers; each test spoils one field.
class OpsCheckTest : public testing::Test {
 protected:
  template <class Params>
  static void expect_refused(Params params, const std::function<void(Params&)>& spoil, const std::string& part) {
    ASSERT_TRUE(check(params).has_value()) << check(params).error().message;
    spoil(params);
    const Status status = check(params);
    ASSERT_FALSE(status.has_value()) << "expected a message about " << part;
    EXPECT_EQ(status.error().code, ErrorCode::internal);
    EXPECT_THAT(status.error().message, HasSubstr(part));
  }

  EmbeddingParams embedding() { return {ids_.data(), 2, {floats_.data(), DType::f32, 8, 4}, floats_.data()}; }

  EmbeddingParams quantized_embedding() {
    EmbeddingParams p = embedding();
    p.table = {};
    p.quantized = {quantized_data_.data(), quantized_scales_.data(), 8, 4, {8, 128}};
    return p;
  }

  RmsNormParams rms_norm() {
    RmsNormParams p;
    p.x = p.out = floats_.data();
    p.weight = floats_.data();
    p.num_tokens = 2;
    p.hidden = 4;
    return p;
  }

  QuantizedLinearParams quantized_linear() {
    QuantizedLinearParams p;
    p.x = p.out = floats_.data();
    p.num_tokens = 2;
    p.in = 4;
    p.weights = quantized_weights_;
    p.out_stride = 8;
    return p;
  }

  QuantizeWeightsParams quantize_weights() {
    return {weights_[0], kInt8Weights, quantized_data_.data(), quantized_scales_.data()};
  }

  LinearParams linear() {
    LinearParams p;
    p.x = p.out = floats_.data();
    p.num_tokens = 2;
    p.in = 4;
    p.weights = weights_;
    p.out_stride = 8;
    return p;
  }

  LoraParams lora() {
    LoraParams p;
    p.x = p.out = floats_.data();
    p.num_tokens = 2;
    p.in = 4;
    p.items = lora_items_;
    p.out_stride = 8;
    return p;
  }

  RotaryParams rotary() {
    RotaryParams p;
    p.positions = ids_.data();
    p.num_tokens = 2;
    p.query = p.key = floats_.data();
    p.query_stride = p.key_stride = 8;
    p.num_heads = p.num_kv_heads = 2;
    p.head_dim = p.rotary_dim = 4;
    p.cos_sin = floats_.data();
    return p;
  }

  KvCacheView cache() {
    KvCacheView view;
    view.base = reinterpret_cast<std::byte*>(floats_.data());
    view.num_blocks = 4;
    view.block_size = 2;
    view.num_kv_heads = 2;
    view.head_dim = 4;
    view.block_bytes = 2 * view.part_bytes();
    return view;
  }

  StoreKvParams store_kv() { return {floats_.data(), floats_.data(), 8, 8, slots_.data(), 2, cache()}; }

  PagedAttentionParams paged_attention() {
    PagedAttentionParams p;
    p.query = floats_.data();
    p.query_stride = 16;
    p.num_heads = 4;
    p.query_start = query_start_.data();
    p.context_len = context_len_.data();
    p.block_tables = block_tables_.data();
    p.max_blocks = 3;
    p.num_sequences = 2;
    p.cache = cache();
    p.out = floats_.data();
    return p;
  }

  ActivationParams activation() {
    ActivationParams p;
    p.x = floats_.data();
    p.num_tokens = 2;
    p.width = 4;
    p.out = floats_.data() + 64;
    return p;
  }

  std::vector<float> floats_ = std::vector<float>(512);
  std::vector<std::int32_t> ids_ = {1, 7};
  std::vector<std::int64_t> slots_ = {-1, 7};
  std::vector<LoraItem> lora_items_ = {
      {.num_rows = 1, .out_features = 8, .a = floats_.data(), .b = floats_.data(), .rank = 2},
      {.first_row = 1, .num_rows = 1, .out_features = 5, .a = floats_.data(), .b = floats_.data(), .rank = 1}};
  std::vector<WeightMatrix> weights_ = {{floats_.data(), DType::f32, 5, 4}, {floats_.data(), DType::bf16, 3, 4}};
  std::vector<std::uint8_t> quantized_data_ = std::vector<std::uint8_t>(2048);
  std::vector<Float16> quantized_scales_ = std::vector<Float16>(16);
  std::vector<QuantizedMatrix> quantized_weights_ = {
      {quantized_data_.data(), quantized_scales_.data(), 5, 4, kInt8Weights},
      {quantized_data_.data(), quantized_scales_.data(), 3, 4, kInt8Weights}};
  std::vector<std::int32_t> query_start_ = {0, 3, 4};
  std::vector<std::int32_t> context_len_ = {3, 6};
  std::vector<std::int32_t> block_tables_ = {0, 1, 99, 3, 2, 1};
};

TEST_F(OpsCheckTest, RefusesWeightsOfTheTypesOfTheKvCache) {
  for (const DType dtype : {DType::fp8_e4m3, DType::int8}) {
    expect_refused<EmbeddingParams>(
        embedding(), [=](auto& p) { p.table.dtype = dtype; }, "table.dtype must be float32, float16 or bfloat16");
    expect_refused<RmsNormParams>(
        rms_norm(), [=](auto& p) { p.weight_dtype = dtype; }, "rms_norm: weight_dtype");
    expect_refused<LinearParams>(
        linear(), [=](auto& p) { p.bias_dtype = dtype; }, "linear: bias_dtype");
    expect_refused<QuantizeWeightsParams>(
        quantize_weights(), [=](auto& p) { p.from.dtype = dtype; }, "quantize_weights: from.dtype");
    expect_refused<ConvertParams>(
        {floats_.data(), DType::f32, floats_.data(), DType::f16, 3}, [=](auto& p) { p.to_dtype = dtype; },
        "convert: to_dtype");
    expect_refused<LinearParams>(
        linear(), [=, this](auto&) { weights_[1].dtype = dtype; },
        dtype == DType::fp8_e4m3 ? "linear: weight scales must not be null" : "linear: weight dtype");
    weights_[1].dtype = DType::bf16;
  }
}

TEST_F(OpsCheckTest, RefusesAnInt8CacheWhoseScalesAreNotAligned) {
  const auto with_int8 = [](auto& p) {
    p.cache.dtype = DType::int8;
    p.cache.block_bytes = 2 * p.cache.part_bytes();
  };
  expect_refused<StoreKvParams>(
      store_kv(), [&](auto& p) { with_int8(p), p.cache.base += 2; }, "cache.base must be aligned");
  expect_refused<StoreKvParams>(
      store_kv(), [&](auto& p) { with_int8(p), p.cache.block_bytes += 2; },
      "cache.block_bytes must be a multiple of 4");
}

TEST_F(OpsCheckTest, RefusesNullPointers) {
  expect_refused<EmbeddingParams>(
      embedding(), [](auto& p) { p.token_ids = nullptr; }, "embedding: token_ids");
  expect_refused<EmbeddingParams>(
      embedding(), [](auto& p) { p.table.data = nullptr; }, "table.data");
  expect_refused<RmsNormParams>(
      rms_norm(), [](auto& p) { p.weight = nullptr; }, "rms_norm: weight");
  expect_refused<LinearParams>(
      linear(), [](auto& p) { p.x = nullptr; }, "linear: x");
  expect_refused<QuantizedLinearParams>(
      quantized_linear(), [](auto& p) { p.out = nullptr; }, "quantized_linear: out");
  expect_refused<QuantizeWeightsParams>(
      quantize_weights(), [](auto& p) { p.scales = nullptr; }, "quantize_weights: scales");
  expect_refused<QuantizeWeightsParams>(
      quantize_weights(), [](auto& p) { p.format.asymmetric = true; }, "quantize_weights: mins must not be null");
  expect_refused<QuantizeWeightsParams>(
      quantize_weights(), [](auto& p) { p.mins = p.scales; }, "mins must be null in a symmetric format");
  expect_refused<ConvertParams>(
      {floats_.data(), DType::f32, floats_.data(), DType::f16, 3}, [](auto& p) { p.to = nullptr; }, "convert: to");
  expect_refused<RotaryParams>(
      rotary(), [](auto& p) { p.cos_sin = nullptr; }, "rotary: cos_sin");
  expect_refused<StoreKvParams>(
      store_kv(), [](auto& p) { p.value = nullptr; }, "store_kv: value");
  expect_refused<StoreKvParams>(
      store_kv(), [](auto& p) { p.cache.base = nullptr; }, "cache.base");
  expect_refused<PagedAttentionParams>(
      paged_attention(), [](auto& p) { p.block_tables = nullptr; }, "block_tables");
  expect_refused<ActivationParams>(
      activation(), [](auto& p) { p.out = nullptr; }, "activation: out");
}

TEST_F(OpsCheckTest, RefusesQuantizedTablesThatAreNotWhole) {
  const auto refused = [this](const std::function<void(EmbeddingParams&)>& spoil, const std::string& part) {
    expect_refused<EmbeddingParams>(quantized_embedding(), spoil, "embedding: " + part);
  };
  refused([](auto& p) { p.quantized.scales = nullptr; }, "quantized scales");
  refused([](auto& p) { p.quantized.format.asymmetric = true; }, "quantized mins must not be null");
  refused([](auto& p) { p.quantized.mins = p.quantized.scales; }, "quantized mins must be null in a symmetric format");
  refused([](auto& p) { p.quantized.format.bits = 1; }, "bits must be 2 to 6 or 8, not 1");
  refused([](auto& p) { p.quantized.format.group_size = 24; }, "group_size must be a multiple of 16");
  refused([](auto& p) { p.quantized.format.affine = true; }, "an affine format must be rotated and have 4 or 6 bits");
  refused([](auto& p) { p.quantized.format.two_level_scales = true; },
          "bits must be less than 8 in a format with two-level scales, not 8");
  refused([](auto& p) { p.quantized.rows = 0; }, "quantized rows must be at least 1");
  refused([](auto& p) { p.quantized.columns = 0; }, "quantized columns must be at least 1");
  refused([](auto& p) { p.quantized.rows = 7; }, "token_ids[1] must be in [0, 7), not 7");
  refused([this](auto& p) { p.table = embedding().table; }, "table.data must be null");
}

TEST_F(OpsCheckTest, AllowsNullPointersWhenThereIsNothingToDo) {
  EmbeddingParams embedding_params = embedding();
  embedding_params.num_tokens = 0;
  embedding_params.token_ids = nullptr;
  embedding_params.out = nullptr;
  EXPECT_TRUE(check(embedding_params).has_value());
  LinearParams linear_params = linear();
  linear_params.num_tokens = 0;
  linear_params.x = nullptr;
  EXPECT_TRUE(check(linear_params).has_value());
  PagedAttentionParams attention_params = paged_attention();
  attention_params.num_sequences = 0;
  attention_params.query = nullptr;
  EXPECT_TRUE(check(attention_params).has_value());
  EXPECT_TRUE(check(GatherRowsParams{.width = 1}).has_value());
  EXPECT_TRUE(check(MoveBlocksParams{nullptr, nullptr, 1, {}, {}}).has_value());
}

TEST_F(OpsCheckTest, RefusesShapesThatDoNotFit) {
  expect_refused<LinearParams>(
      linear(), [](auto& p) { p.in = 5; }, "columns must be in (5), not 4");
  expect_refused<LinearParams>(
      linear(), [](auto& p) { p.out_stride = 7; }, "out_stride");
  expect_refused<LinearParams>(
      linear(), [](auto& p) { p.weights = {}; }, "number of weights");
  static const void* const one_bias[] = {nullptr};
  expect_refused<LinearParams>(
      linear(), [](auto& p) { p.biases = one_bias; }, "number of biases");
  expect_refused<QuantizedLinearParams>(
      quantized_linear(), [](auto& p) { p.in = 5; }, "columns must be in (5), not 4");
  std::vector<QuantizedMatrix> mixed = quantized_weights_;
  mixed[1].format = QuantizedFormat{4, 32};
  expect_refused<QuantizedLinearParams>(
      quantized_linear(), [&](auto& p) { p.weights = mixed; }, "one format");
  mixed[1].format = {8, 128, true};
  expect_refused<QuantizedLinearParams>(
      quantized_linear(), [&](auto& p) { p.weights = mixed; }, "quantized_linear: weight mins must not be null");
  mixed[1].mins = quantized_scales_.data();
  expect_refused<QuantizedLinearParams>(
      quantized_linear(), [&](auto& p) { p.weights = mixed; }, "all weights must have mins, or none");
  mixed[1].format = kInt8Weights;
  expect_refused<QuantizedLinearParams>(
      quantized_linear(), [&](auto& p) { p.weights = mixed; }, "weight mins must be null in a symmetric format");
  mixed[0].format = {7, 64};
  expect_refused<QuantizedLinearParams>(
      quantized_linear(), [&](auto& p) { p.weights = mixed; }, "bits must be 2 to 6 or 8, not 7");
  expect_refused<QuantizeWeightsParams>(
      quantize_weights(), [](auto& p) { p.format.group_size = 24; }, "group_size must be a multiple of 16");
  expect_refused<RmsNormParams>(
      rms_norm(), [](auto& p) { p.hidden = 0; }, "hidden");
  expect_refused<RotaryParams>(
      rotary(), [](auto& p) { p.rotary_dim = 3; }, "rotary_dim must be even");
  expect_refused<RotaryParams>(
      rotary(), [](auto& p) { p.rotary_dim = 6; }, "at most head_dim (4), not 6");
  expect_refused<RotaryParams>(
      rotary(), [](auto& p) { p.query_stride = 7; }, "query_stride");
  expect_refused<StoreKvParams>(
      store_kv(), [](auto& p) { p.key_stride = 7; }, "key_stride");
  expect_refused<StoreKvParams>(
      store_kv(), [](auto& p) { p.cache.block_bytes -= 1; }, "cache.block_bytes");
  expect_refused<StoreKvParams>(
      store_kv(), [](auto& p) { p.cache.block_size = 0; }, "cache.block_size");
  expect_refused<PagedAttentionParams>(
      paged_attention(), [](auto& p) { p.num_heads = 3; }, "multiple of num_kv_heads");
  expect_refused<PagedAttentionParams>(
      paged_attention(), [](auto& p) { p.window = -1; }, "window");
  expect_refused<PagedAttentionParams>(
      paged_attention(), [](auto& p) { p.first_position = -1; }, "first_position");
  expect_refused<ActivationParams>(
      activation(), [](auto& p) { p.out = const_cast<float*>(p.x); }, "must not be in place");
  expect_refused<ActivationParams>(
      activation(), [](auto& p) { p.num_tokens = -1; }, "num_tokens");
}

TEST_F(OpsCheckTest, RefusesLowRankChangesThatDoNotFit) {
  const std::vector<LoraItem> good = lora_items_;
  const auto item_refused = [&](const std::function<void(LoraItem&)>& spoil, const std::string& part) {
    lora_items_ = good;
    expect_refused<LoraParams>(
        lora(), [&](auto&) { spoil(lora_items_[1]); }, "lora: " + part);
  };
  item_refused([](auto& item) { item.first_row = -1; }, "the rows of an item");
  item_refused([](auto& item) { item.num_rows = 2; }, "the rows of an item must be among the num_tokens (2)");
  item_refused([](auto& item) { item.num_rows = -1; }, "num_rows");
  item_refused([](auto& item) { item.out_features = 0; }, "out_features");
  item_refused([](auto& item) { item.first_column = 4; }, "the columns of an item must be within out_stride (8)");
  item_refused([](auto& item) { item.rank = -1; }, "rank");
  item_refused([](auto& item) { item.a = nullptr; }, "a must not be null");
  item_refused([](auto& item) { item.b = nullptr; }, "b must not be null");
  item_refused([](auto& item) { item.dtype = DType::int8; }, "dtype must be float32, float16 or bfloat16");
  item_refused([this](auto& item) { item.base = floats_.data(), item.base_stride = 4; }, "base_stride");
  lora_items_ = good;
  expect_refused<LoraParams>(
      lora(), [](auto& p) { p.in = 0; }, "lora: in");
  expect_refused<LoraParams>(
      lora(), [](auto& p) { p.x = nullptr; }, "lora: x");
  expect_refused<LoraParams>(
      lora(), [](auto& p) { p.out = nullptr; }, "lora: out");
  expect_refused<LoraParams>(
      lora(), [this](auto& p) { p.token_ids = ids_.data(); }, "lora: x must be null if token_ids are set");
  LoraParams of_tokens = lora();
  of_tokens.x = nullptr;
  of_tokens.token_ids = ids_.data();
  of_tokens.in = 8;
  expect_refused<LoraParams>(
      of_tokens, [](auto& p) { p.in = 7; }, "lora: token_ids[1] must be in [0, 7), not 7");
  lora_items_[0].rank = lora_items_[1].rank = 0;  // without a product, neither a, b nor x are read
  lora_items_[0].a = lora_items_[0].b = lora_items_[1].a = nullptr;
  LoraParams without_products = lora();
  without_products.x = nullptr;
  EXPECT_TRUE(check(without_products).has_value());
}

TEST_F(OpsCheckTest, RefusesTokensSlotsAndBlocksOutOfRange) {
  const auto spoiled = [](auto& values, std::size_t i, auto value) {
    return [&values, i, value](auto&) { values[i] = value; };
  };
  expect_refused<EmbeddingParams>(embedding(), spoiled(ids_, 1, 8), "token_ids[1] must be in [0, 8), not 8");
  ids_ = {-1, 0};
  EXPECT_FALSE(check(embedding()).has_value());
  EXPECT_FALSE(check(rotary()).has_value());
  expect_refused<StoreKvParams>(store_kv(), spoiled(slots_, 1, 8), "slot_mapping[1] must be in [-1, 8), not 8");
  slots_ = {0, -2};
  EXPECT_FALSE(check(store_kv()).has_value());
  expect_refused<PagedAttentionParams>(paged_attention(), spoiled(block_tables_, 4, 4), "not 4");
}

TEST_F(OpsCheckTest, RefusesContextsThatDoNotFitTheirRowsOrTables) {
  context_len_ = {2, 6};
  EXPECT_THAT(check(paged_attention()).error().message, HasSubstr("context_len of sequence 0 must be at least"));
  context_len_ = {3, 7};
  EXPECT_THAT(check(paged_attention()).error().message,
              HasSubstr("context_len of sequence 1 must fit its block table"));
  context_len_ = {3, 6};
  query_start_ = {0, 4, 3};
  EXPECT_FALSE(check(paged_attention()).has_value());
}

TEST_F(OpsCheckTest, IgnoresBlocksThatNoRowSees) {
  block_tables_ = {0, 1, 99, 99, 99, 1};
  PagedAttentionParams p = paged_attention();
  EXPECT_FALSE(check(p).has_value());
  p.window = 2;  // the row of sequence 1 sees positions 4 and 5 only
  EXPECT_TRUE(check(p).has_value());
  p.window = 0;
  p.first_position = 5;
  EXPECT_TRUE(check(p).has_value());
}

TEST_F(OpsCheckTest, RefusesBlockListsOfDifferentLengthsAndNegativeBlocks) {
  const std::vector<std::int32_t> two = {0, 1};
  const std::vector<std::int32_t> one = {0};
  const std::vector<std::int32_t> negative = {0, -1};
  auto* memory = reinterpret_cast<std::byte*>(floats_.data());
  EXPECT_TRUE(check(MoveBlocksParams{memory, memory, 8, two, two}).has_value());
  EXPECT_FALSE(check(MoveBlocksParams{memory, memory, 8, two, one}).has_value());
  EXPECT_FALSE(check(MoveBlocksParams{memory, memory, 8, two, negative}).has_value());
  EXPECT_FALSE(check(MoveBlocksParams{nullptr, memory, 8, two, two}).has_value());
  EXPECT_FALSE(check(MoveBlocksParams{memory, memory, 0, two, two}).has_value());
}

TEST_F(OpsCheckTest, RefusesNegativeRows) {
  const std::vector<std::int32_t> rows = {0, -3};
  EXPECT_THAT(check(GatherRowsParams{floats_.data(), rows.data(), 2, 4, floats_.data()}).error().message,
              HasSubstr("gather_rows: rows[1]"));
}

}  // namespace
}  // namespace pagoda::kernels
