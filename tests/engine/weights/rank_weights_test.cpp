#include "engine/weights/rank_weights.hpp"

#include <map>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/models/decoder_config.hpp"
#include "engine/models/rank_slices.hpp"
#include "kernels/reference/element.hpp"
#include "tests/engine/weights/quantized_waves.hpp"

namespace pagoda::weights {
namespace {

using models::DecoderConfig;
using models::RankPlace;
using testing::HasSubstr;

constexpr std::int64_t kHidden = 512;

DecoderConfig config_of(std::int64_t heads, std::int64_t kv_heads, std::int64_t head_dim = 64) {
  DecoderConfig config;
  config.vocab_size = 1001;
  config.hidden_size = kHidden;
  config.intermediate_size = 1280;
  config.attention = {.num_heads = heads, .num_kv_heads = kv_heads, .head_dim = head_dim};
  return config;
}

/// Plain tensors whose elements are all different.
class Numbers final : public WeightSource {
 public:
  Result<WeightTensor> tensor(std::string_view name, const std::vector<std::int64_t>& shape) const override {
    WeightTensor tensor{.name = std::string(name), .dtype = DType::f32, .shape = shape};
    auto& values = values_[tensor.name];
    values.resize(static_cast<std::size_t>(tensor.elements()));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i);
    tensor.data = values.data();
    return tensor;
  }
  bool contains(std::string_view) const override { return true; }

 private:
  mutable std::map<std::string, std::vector<float>> values_;
};

std::vector<float> row_of(const WeightTensor& tensor, std::int64_t row) {
  const std::int64_t columns = tensor.shape.back();
  std::vector<float> values(static_cast<std::size_t>(columns));
  if (tensor.quantized != nullptr) {
    tensor.quantized->dequantize(row, values.data());
    return values;
  }
  for (std::int64_t i = 0; i < columns; ++i) {
    values[static_cast<std::size_t>(i)] = kernels::reference::load(tensor.data, tensor.dtype, row * columns + i);
  }
  return values;
}

RankWeights of_rank(const WeightSource& stored, const DecoderConfig& config, const RankPlace& place,
                    bool keeps_quantized = true) {
  return {stored, place.rank == 0, keeps_quantized,
          [config, place](std::string_view module) { return models::slice_of(config, place, module); }};
}

std::int64_t index(std::int64_t row, std::int64_t columns, std::int64_t column) {
  return row * columns + column;
}

TEST(RankWeights, RowsStayWhereTheyLie) {
  const Numbers stored;
  const DecoderConfig config = config_of(8, 4);
  const auto weights = of_rank(stored, config, {1, 2});
  const auto queries = weights.tensor("layers.0.self_attn.q_proj.weight", {256, kHidden});
  ASSERT_TRUE(queries) << queries.error().message;
  EXPECT_EQ(queries->quantized, nullptr);
  EXPECT_EQ(row_of(*queries, 0).front(), static_cast<float>(index(256, kHidden, 0)));
  const auto keys = weights.tensor("k_proj.weight", {128, kHidden});
  ASSERT_TRUE(keys);
  EXPECT_EQ(row_of(*keys, 127).back(), static_cast<float>(index(255, kHidden, kHidden - 1)));
  const auto bias = weights.tensor("k_proj.bias", {128});
  ASSERT_TRUE(bias);
  EXPECT_EQ(row_of(*bias, 0).front(), 128.0F);
  const auto norm = weights.tensor("layers.0.input_layernorm.weight", {kHidden});
  ASSERT_TRUE(norm);
  EXPECT_EQ(row_of(*norm, 0).back(), 511.0F);
}

TEST(RankWeights, FewerKvHeadsThanRanksAreRepeated) {
  const Numbers stored;
  const DecoderConfig config = config_of(8, 2);
  const std::int64_t first_rows[] = {0, 0, 64, 64};
  for (std::int32_t rank = 0; rank < 4; ++rank) {
    const auto keys = of_rank(stored, config, {rank, 4}).tensor("v_proj.weight", {64, kHidden});
    ASSERT_TRUE(keys) << keys.error().message;
    EXPECT_EQ(row_of(*keys, 0).front(), static_cast<float>(first_rows[rank] * kHidden));
  }
}

TEST(RankWeights, PackedProjectionsAndColumnsAreTakenApart) {
  const Numbers stored;
  const DecoderConfig config = config_of(8, 8);
  const auto weights = of_rank(stored, config, {1, 4});
  const auto packed = weights.tensor("attn.qkv_proj.weight", {3 * 128, kHidden});
  ASSERT_TRUE(packed);
  EXPECT_EQ(row_of(*packed, 0).front(), static_cast<float>(index(128, kHidden, 0)));
  EXPECT_EQ(row_of(*packed, 128).front(), static_cast<float>(index(512 + 128, kHidden, 0)));
  EXPECT_EQ(row_of(*packed, 256).front(), static_cast<float>(index(1024 + 128, kHidden, 0)));
  const auto packed_bias = weights.tensor("attn.qkv_proj.bias", {3 * 128});
  ASSERT_TRUE(packed_bias);
  EXPECT_EQ(row_of(*packed_bias, 0)[128], 640.0F);
  const auto output = weights.tensor("o_proj.weight", {kHidden, 128});
  ASSERT_TRUE(output);
  EXPECT_EQ(row_of(*output, 3).front(), static_cast<float>(index(3, 512, 128)));
  // GPT-2 stores [in, out].
  const auto transposed = weights.tensor("attn.c_attn.weight", {kHidden, 3 * 128});
  ASSERT_TRUE(transposed);
  EXPECT_EQ(row_of(*transposed, 2)[128], static_cast<float>(index(2, 3 * 512, 640)));
  const auto transposed_output = weights.tensor("attn.c_proj.weight", {128, kHidden});
  ASSERT_TRUE(transposed_output);
  EXPECT_EQ(row_of(*transposed_output, 0).front(), static_cast<float>(index(128, kHidden, 0)));
}

TEST(RankWeights, OneRankHasTheBiasOfASum) {
  const Numbers stored;
  const DecoderConfig config = config_of(8, 8);
  EXPECT_EQ(row_of(of_rank(stored, config, {0, 2}).tensor("down_proj.bias", {kHidden}).value(), 0)[7], 7.0F);
  const auto other = of_rank(stored, config, {1, 2});
  EXPECT_EQ(row_of(other.tensor("down_proj.bias", {kHidden}).value(), 0), std::vector<float>(kHidden, 0.0F));
}

/// Whatever the number of ranks, their parts are the whole, and no row or column is there twice.
TEST(RankWeights, ThePartsOfAllRanksAreTheWhole) {
  const Numbers stored;
  for (const std::int32_t count : {2, 3, 4, 5, 7, 64}) {
    const DecoderConfig config = config_of(count * 2, count);
    for (const char* name : {"up_proj", "embed_tokens", "q_proj", "v_proj"}) {
      std::int64_t next = 0;
      for (std::int32_t rank = 0; rank < count; ++rank) {
        const auto slice = models::slice_of(config, {rank, count}, name);
        ASSERT_TRUE(slice);
        ASSERT_EQ(slice->ranges.size(), 1U);
        EXPECT_EQ(slice->ranges.front().begin, next);
        EXPECT_GT(slice->size(), 0) << name << " of rank " << rank << " of " << count;
        next = slice->ranges.front().end;
        if (rank + 1 == count) {
          EXPECT_EQ(next, slice->full_size);
        }
      }
    }
  }
}

TEST(RankWeights, QuantizedMatricesKeepTheirFormat) {
  constexpr std::int64_t kRows = 6;
  const kernels::QuantizedFormat formats[] = {
      {8, 32},
      {.bits = 4, .group_size = 64, .asymmetric = true},
      {.bits = 4, .group_size = 32, .asymmetric = true, .two_level_scales = true},
      {.bits = 6, .group_size = 16}};
  for (const auto& format : formats) {
    const test::QuantizedWaves stored(format);
    const DecoderConfig config = config_of(8, 8, 128);  // 1024 columns behind attention
    const auto part = of_rank(stored, config, {1, 4}).tensor("o_proj.weight", {kRows, 256});
    ASSERT_TRUE(part) << part.error().message;
    ASSERT_NE(part->quantized, nullptr);
    EXPECT_EQ(part->quantized->format(), format);
    const std::int64_t scales_of = format.two_level_scales ? kernels::kTwoLevelColumns : format.group_size;
    std::vector<std::uint8_t> q(256);
    std::vector<Float16> scales(static_cast<std::size_t>(256 / scales_of));
    std::vector<Float16> mins(scales.size());
    std::vector<std::int8_t> factors(static_cast<std::size_t>(256 / format.group_size));
    std::vector<std::int8_t> min_factors(factors.size());
    for (std::int64_t row = 0; row < kRows; ++row) {
      part->quantized->unpack(
          row, {.q = q.data(),
                .scales = scales.data(),
                .mins = format.asymmetric ? mins.data() : nullptr,
                .factors = format.two_level_scales ? factors.data() : nullptr,
                .min_factors = format.two_level_scales && format.asymmetric ? min_factors.data() : nullptr});
      const std::vector<float> plain = row_of(*part, row);
      for (std::int64_t column = 0; column < 256; ++column) {
        const auto i = static_cast<std::size_t>(column);
        const auto group = static_cast<std::size_t>(column / format.group_size);
        const auto scale = static_cast<std::size_t>(column / scales_of);
        float weight = to_float(scales[scale]) * static_cast<float>(format.value_of(q[i]));
        if (format.two_level_scales) weight *= factors[group];
        if (format.asymmetric) {
          weight += to_float(mins[scale]) * (format.two_level_scales ? static_cast<float>(min_factors[group]) : 1.0F);
        }
        EXPECT_EQ(weight, test::QuantizedWaves::weight(format, row, 256 + column)) << row << ", " << column;
        EXPECT_EQ(plain[i], weight);
      }
    }
  }
}

TEST(RankWeights, GroupsOfQuantizedColumnsAreNotCut) {
  const test::QuantizedWaves stored({.bits = 4, .group_size = 128});
  const DecoderConfig config = config_of(8, 8);  // 512 columns behind attention
  const auto part = of_rank(stored, config, {1, 8}).tensor("o_proj.weight", {4, 64});
  ASSERT_FALSE(part);
  EXPECT_EQ(part.error().code, ErrorCode::unsupported);
  EXPECT_EQ(part.error().param, "tensor_parallel_size");
  EXPECT_THAT(part.error().message, HasSubstr("tensor \"o_proj.weight\": 128 columns share a scale"));
  EXPECT_TRUE(of_rank(stored, config, {1, 4}).tensor("o_proj.weight", {4, 128}));
  EXPECT_TRUE(of_rank(stored, config, {1, 8}).tensor("q_proj.weight", {64, 512})) << "rows are cut anywhere";
  const auto dequantized = of_rank(stored, config, {1, 8}, false).tensor("o_proj.weight", {4, 64});
  ASSERT_TRUE(dequantized) << dequantized.error().message;
  EXPECT_FALSE(dequantized->quantized->format());
  EXPECT_EQ(row_of(*dequantized, 3)[5], test::QuantizedWaves::weight({.bits = 4, .group_size = 128}, 3, 64 + 5));
}

/// A matrix of 8-bit floats with a scale for each square of 128.
class Floats8 final : public WeightSource {
 public:
  explicit Floats8(std::int64_t scale_columns) : scale_columns_(scale_columns) {}
  Result<WeightTensor> tensor(std::string_view name, const std::vector<std::int64_t>& shape) const override {
    return WeightTensor{.name = std::string(name),
                        .shape = shape,
                        .quantized = std::make_shared<Rows>(shape.at(0), shape.at(1), scale_columns_)};
  }
  bool contains(std::string_view) const override { return true; }

 private:
  class Rows final : public QuantizedRows {
   public:
    Rows(std::int64_t rows, std::int64_t columns, std::int64_t scale_columns) : columns_(columns) {
      for (std::int64_t i = 0; i < rows * columns; ++i) bytes_.push_back(static_cast<std::byte>(i % 119));
      floats_ = {.data = bytes_.data(),
                 .scales = {},
                 .scale_rows = 128,
                 .scale_columns = scale_columns == 0 ? columns : scale_columns};
      const std::int64_t num_scales =
          (rows + 127) / 128 * ((columns + floats_.scale_columns - 1) / floats_.scale_columns);
      for (std::int64_t i = 0; i < num_scales; ++i) floats_.scales.push_back(static_cast<float>(1 + i % 5));
    }
    std::optional<kernels::QuantizedFormat> format() const override { return std::nullopt; }
    const Float8Weights* float8() const override { return &floats_; }
    void unpack(std::int64_t, const UnpackedRow&) const override {}
    void dequantize(std::int64_t row, float* to) const override {
      for (std::int64_t i = 0; i < columns_; ++i) to[i] = weight(floats_, row, columns_, i);
    }

   private:
    std::int64_t columns_;
    std::vector<std::byte> bytes_;
    Float8Weights floats_;
  };

  std::int64_t scale_columns_;

 public:
  static float weight(const Float8Weights& floats, std::int64_t row, std::int64_t columns, std::int64_t column) {
    const std::int64_t scales_of_row = (columns + floats.scale_columns - 1) / floats.scale_columns;
    const auto scale =
        static_cast<std::size_t>(row / floats.scale_rows * scales_of_row + column / floats.scale_columns);
    return kernels::reference::load(floats.data, DType::fp8_e4m3, row * columns + column) * floats.scales.at(scale);
  }
};

TEST(RankWeights, EightBitFloatsKeepTheirScales) {
  for (const std::int64_t scale_columns : {std::int64_t{0}, std::int64_t{128}}) {
    const Floats8 stored(scale_columns);
    const DecoderConfig config = config_of(8, 8);
    const auto weights = of_rank(stored, config, {1, 2});
    for (const auto& [name, shape] : std::map<std::string, std::vector<std::int64_t>>{
             {"o_proj.weight", {300, 256}}, {"q_proj.weight", {256, 200}}, {"qkv_proj.weight", {3 * 256, 200}}}) {
      const auto part = weights.tensor(name, shape);
      ASSERT_TRUE(part) << part.error().message;
      ASSERT_NE(part->quantized->float8(), nullptr);
      Float8Weights gathered = *part->quantized->float8();
      std::vector<std::byte> memory(static_cast<std::size_t>(shape[0] * shape[1]));
      EXPECT_EQ(gathered.data == nullptr, bool(gathered.gather));
      if (gathered.gather) {
        gathered.gather(memory.data());
        gathered.data = memory.data();
      }
      const Float8Weights* floats = &gathered;
      for (std::int64_t row = 0; row < shape[0]; ++row) {
        const std::vector<float> plain = row_of(*part, row);
        for (std::int64_t column = 0; column < shape[1]; ++column) {
          EXPECT_EQ(Floats8::weight(*floats, row, shape[1], column), plain[static_cast<std::size_t>(column)]);
        }
      }
    }
  }
  const Floats8 squares(128);
  const auto cut = of_rank(squares, config_of(8, 8), {1, 8}).tensor("q_proj.weight", {64, 200});
  ASSERT_FALSE(cut);
  EXPECT_THAT(cut.error().message, HasSubstr("128 rows share a scale"));
}

TEST(RankSlices, NamesTheNumbersThatRanksDoNotDivide) {
  const auto reason = [](const DecoderConfig& config, std::int32_t ranks, std::int32_t stages = 1) {
    const Status status = models::check_ranks(config, ranks, stages);
    return status ? "" : status.error().message;
  };
  EXPECT_EQ(reason(config_of(8, 2), 4), "");
  EXPECT_THAT(reason(config_of(8, 2), 3), HasSubstr("8 attention heads"));
  EXPECT_THAT(reason(config_of(12, 4), 6), HasSubstr("4 KV heads"));
  DecoderConfig narrow = config_of(64, 64);
  narrow.intermediate_size = 16;
  EXPECT_THAT(reason(narrow, 32), HasSubstr("only 16 columns"));
  DecoderConfig flat = config_of(8, 8);
  flat.layer_shapes.resize(2);
  EXPECT_EQ(reason(flat, 1, 2), "");
  EXPECT_THAT(reason(flat, 1, 3), HasSubstr("only 2 layers"));
}

TEST(RankSlices, StagesHaveAboutTheSameNumberOfWeights) {
  DecoderConfig config;  // TinyLlama 1.1B
  config.attention = {.num_heads = 32, .num_kv_heads = 4, .head_dim = 64};
  config.hidden_size = 2048;
  config.intermediate_size = 5632;
  config.vocab_size = 32000;
  config.layer_shapes.resize(22);
  const auto layers = [&](std::int32_t stage, std::int32_t num_stages) {
    return models::layers_of_stage(config, {.stage = stage, .num_stages = num_stages});
  };
  EXPECT_EQ(layers(0, 1), (Range{0, 22}));
  EXPECT_EQ(layers(0, 2), (Range{0, 12})) << "the head is as large as one and a half layers";
  EXPECT_EQ(layers(1, 2), (Range{12, 22}));
  EXPECT_EQ(layers(2, 3), (Range{16, 22}));
  config.vocab_size = 10'000'000;
  for (std::int32_t stage = 0; stage < 3; ++stage) EXPECT_EQ(layers(stage + 1, 4).size(), 1) << "at least one layer";
  EXPECT_EQ(layers(0, 4), (Range{0, 19}));
  for (std::int32_t stage = 0; stage < 22; ++stage) EXPECT_EQ(layers(stage, 22), (Range{stage, stage + 1}));
}

TEST(RankSlices, TheMlpIsDividedBetweenGroupsOf256ColumnsWherePossible) {
  EXPECT_EQ(models::mlp_columns_of_rank(8960, {0, 2}), (Range{0, 18 * 256}));
  EXPECT_EQ(models::mlp_columns_of_rank(8960, {1, 2}), (Range{18 * 256, 8960}));
  EXPECT_EQ(models::mlp_columns_of_rank(300, {1, 3}), (Range{100, 200}));
}

}  // namespace
}  // namespace pagoda::weights
