#include "io/model_files/quantized/quantized_checkpoint.hpp"

#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "io/model_files/hf_config.hpp"
#include "io/model_files/mapped_file.hpp"
#include "io/model_files/safetensors.hpp"
#include "kernels/quantized.hpp"
#include "tests/support/safetensors_file.hpp"
#include "tests/support/temporary_folder.hpp"

namespace pagoda::io {
namespace {

using test::TemporaryFolder;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr std::int64_t kRows = 32;
constexpr std::int64_t kColumns = 32;

const std::filesystem::path kQuantizedData = std::string(PAGODA_SOURCE_DIR) + "/tests/data/quantized";

using Folder = std::unique_ptr<const TemporaryFolder>;

std::string config_text(const std::string& quantization) {
  return R"({"torch_dtype":"float16","quantization_config":)" + quantization + "}";
}

struct Golden {
  std::string name;
  std::string quantization;
  std::optional<kernels::QuantizedFormat> format;
  std::int64_t rows = kRows;
  std::int64_t columns = kColumns;

  /// Of tools/make_quantized_goldens.py.
  std::filesystem::path file() const {
    return kQuantizedData / (columns == kColumns ? "matrices.safetensors" : "wide_matrices.safetensors");
  }
};

/// A folder with the golden and its quantization_config.
Folder golden_folder(const Golden& golden) {
  auto folder = std::make_unique<const TemporaryFolder>();
  std::filesystem::copy(golden.file(), folder->path() / "model.safetensors");
  folder->write("config.json", config_text(golden.quantization));
  return folder;
}

void PrintTo(const Golden& golden, std::ostream* out) {
  *out << golden.name;
}

const std::string kGroup16 = R"({"quant_method":"compressed-tensors","format":"pack-quantized","config_groups":
    {"group_0":{"targets":["Linear"],"weights":{"num_bits":4,"type":"int","strategy":"group","group_size":16}}}})";

std::string compressed(const std::string& format, int bits, const std::string& type) {
  return R"({"quant_method":"compressed-tensors","format":")" + format +
         R"(","config_groups":{"group_0":{"targets":["Linear"],"weights":{"num_bits":)" + std::to_string(bits) +
         R"(,"type":")" + type + R"(","strategy":"channel"}}}})";
}

/// Returns the config with a quantization_status, as older tools write it.
std::string with_status(std::string config, const std::string& status) {
  return config.insert(1, R"("quantization_status":")" + status + "\",");
}

const std::string kBnb4 =
    R"({"quant_method":"bitsandbytes","load_in_4bit":true,"load_in_8bit":false,"bnb_4bit_quant_type":"nf4"})";

const std::vector<Golden> kGoldens{
    {"awq_g16", R"({"quant_method":"awq","bits":4,"group_size":16,"version":"gemm"})", {{4, 16, true}}},
    {"awq_whole", R"({"quant_method":"awq","bits":4,"group_size":-1,"version":"GEMM"})", {{4, 32, true}}},
    {"gptq_4_g16", R"({"quant_method":"gptq","bits":4,"group_size":16,"sym":false})", {{4, 16, true}}},
    {"gptq_4_sym_v2",
     R"({"quant_method":"gptq","bits":4,"group_size":16,"checkpoint_format":"gptq_v2"})",
     {{4, 16, false}}},
    {"gptq_8_g16", R"({"quant_method":"gptq","bits":8,"group_size":16,"sym":false})", {{8, 16, true}}},
    {"gptq_act_order", R"({"quant_method":"gptq","bits":4,"group_size":16,"desc_act":true})", {{4, 16, false}}},
    {"ct_pack_sym", kGroup16, {{4, 16, false}}},
    {"ct_pack_asym", kGroup16, {{4, 16, true}}},
    {"ct_pack_8", compressed("pack-quantized", 8, "int"), {{8, 32, false}}},
    {"ct_int", compressed("int-quantized", 8, "int"), {{8, 32, false}}},
    {"ct_naive", with_status(compressed("naive-quantized", 8, "int"), "frozen"), {{8, 32, false}}},
    {"ct_float", compressed("float-quantized", 8, "float"), std::nullopt},
    {"fp8_tensor", R"({"quant_method":"fp8","activation_scheme":"static"})", std::nullopt},
    {"fp8_block", R"({"quant_method":"fp8","fmt":"e4m3","weight_block_size":[24,20]})", std::nullopt},
    {"fp8_fbgemm", R"({"quant_method":"fbgemm_fp8","activation_scale_ub":1200.0})", std::nullopt},
    {"bnb_int8", R"({"load_in_8bit":true,"load_in_4bit":false})", {{8, 32, false}}},
    {"bnb_nf4", kBnb4, std::nullopt},
    {"bnb_nf4_nested", kBnb4, std::nullopt},
    {"bnb_fp4", kBnb4, std::nullopt},
};

constexpr std::int64_t kWide = 256;

std::string awq(int group_size) {
  return R"({"quant_method":"awq","bits":4,"version":"gemm","group_size":)" + std::to_string(group_size) + "}";
}
std::string gptq(int bits, int group_size, bool is_v2 = false) {
  return R"({"quant_method":"gptq","bits":)" + std::to_string(bits) + R"(,"group_size":)" + std::to_string(group_size) +
         (is_v2 ? R"(,"checkpoint_format":"gptq_v2"})" : "}");
}

const std::vector<Golden> kWideGoldens{
    {"awq_g32", awq(32), {{4, 32, true}}, 8, kWide},
    {"awq_g64", awq(64), {{4, 64, true}}, 8, kWide},
    {"awq_g128", awq(128), {{4, 128, true}}, 8, kWide},
    {"gptq_4_g32", gptq(4, 32), {{4, 32, true}}, 32, kWide},
    {"gptq_4_g64_v2", gptq(4, 64, true), {{4, 64, true}}, 32, kWide},
    {"gptq_4_g128", gptq(4, 128), {{4, 128, false}}, 32, kWide},
    {"gptq_4_whole", gptq(4, -1), {{4, 256, true}}, 32, kWide},
    {"gptq_4_act_order_asym", gptq(4, 128), {{4, 128, true}}, 32, kWide},
    {"gptq_8_g128_v2", gptq(8, 128, true), {{8, 128, false}}, 32, kWide},
    {"gptq_8_whole", gptq(8, -1), {{8, 256, false}}, 32, kWide},
    {"gptq_8_act_order", gptq(8, 32), {{8, 32, false}}, 32, kWide},
    {"gptq_8_act_order_asym", gptq(8, 64), {{8, 64, true}}, 32, kWide},
    {"ct_pack_g32", compressed("pack-quantized", 4, "int"), {{4, 32, false}}, 8, kWide},
    {"ct_pack_g64", compressed("pack-quantized", 4, "int"), {{4, 64, true}}, 32, kWide},
    {"ct_pack_g128", compressed("pack-quantized", 4, "int"), {{4, 128, false}}, 8, kWide},
    {"ct_w8a16_g128", compressed("pack-quantized", 8, "int"), {{8, 128, false}}, 8, kWide},
    {"ct_w8a16_g64_asym", compressed("pack-quantized", 8, "int"), {{8, 64, true}}, 32, kWide},
    {"ct_int_asym", compressed("int-quantized", 8, "int"), {{8, 256, true}}, 8, kWide},
    {"ct_mxfp4",
     compressed("mxfp4-pack-quantized", 4, "float"),
     {{.bits = 4, .group_size = 32, .codebook = kernels::Codebook::e2m1}},
     8,
     kWide},
    {"fp8_block_128", R"({"quant_method":"fp8","fmt":"e4m3","weight_block_size":[128,128]})", std::nullopt, 136, kWide},
};

class QuantizedGoldens : public ::testing::TestWithParam<Golden> {};

/// Rows of the matrix as the program that made the tensors dequantises them: the first ones, or of a wide matrix some
/// from the first to the last in equal steps.
std::vector<float> expected_rows(const Golden& golden) {
  const auto file = MappedFile::open(golden.file()).value();
  const auto header = parse_safetensors(file.bytes(), file.path()).value();
  const auto& entry = header.tensors.at(golden.name + ".expected");
  std::vector<float> values((entry.end - entry.begin) / sizeof(float));
  std::memcpy(values.data(), file.bytes().data() + entry.begin, entry.end - entry.begin);
  return values;
}

/// The row in the arithmetic of kernels::QuantizedMatrix.
std::vector<float> computed_row(const weights::QuantizedRows& rows, std::int64_t row, std::int64_t columns,
                                std::vector<float>& steps) {
  const auto format = *rows.format();
  const auto groups = static_cast<std::size_t>((columns + format.group_size - 1) / format.group_size);
  std::vector<std::uint8_t> q(static_cast<std::size_t>(columns));
  std::vector<Float16> scales(groups);
  std::vector<Float16> mins(groups);
  rows.unpack(row, {q.data(), scales.data(), format.asymmetric ? mins.data() : nullptr});
  std::vector<float> weights(q.size());
  steps.resize(q.size());
  const auto order = rows.order();
  for (std::size_t k = 0; k < q.size(); ++k) {
    const std::size_t group = k / static_cast<std::size_t>(format.group_size);
    EXPECT_LT(q[k], 1 << format.bits);
    const std::size_t column = order.empty() ? k : static_cast<std::size_t>(order[k]);
    steps[column] = to_float(scales[group]);
    const float min = format.asymmetric ? to_float(mins[group]) : 0.0F;
    weights[column] = steps[column] * static_cast<float>(format.value_of(q[k])) + min;
  }
  return weights;
}

TEST_P(QuantizedGoldens, AreReadAsTheProgramThatMadeThemReadsThem) {
  const auto& golden = GetParam();
  const auto folder = golden_folder(golden);
  const auto weights = open_folder_weights(folder->path());
  ASSERT_TRUE(weights) << weights.error().message;
  ASSERT_TRUE((*weights)->contains(golden.name + ".weight"));
  const auto tensor = (*weights)->tensor(golden.name + ".weight", {golden.rows, golden.columns});
  ASSERT_TRUE(tensor) << tensor.error().message;
  ASSERT_NE(tensor->quantized, nullptr);
  EXPECT_EQ(tensor->dtype, DType::f16);
  EXPECT_EQ(tensor->quantized->format(), golden.format);

  const auto expected = expected_rows(golden);
  const auto num_rows = std::ssize(expected) / golden.columns;
  ASSERT_GE(num_rows, 4);
  const std::int64_t step = golden.columns == kColumns ? 1 : (golden.rows - 1) / (num_rows - 1);
  for (std::int64_t i = 0; i < num_rows; ++i) {
    const std::int64_t row = i * step;
    std::vector<float> dequantized(static_cast<std::size_t>(golden.columns));
    tensor->quantized->dequantize(row, dequantized.data());
    std::vector<float> steps;
    const auto computed = golden.format ? computed_row(*tensor->quantized, row, golden.columns, steps) : dequantized;
    for (std::int64_t k = 0; k < golden.columns; ++k) {
      const auto at = static_cast<std::size_t>(k);
      const float weight = expected[static_cast<std::size_t>(i * golden.columns + k)];
      // Two roundings where the program multiplies in another order.
      EXPECT_NEAR(dequantized[at], weight, std::abs(weight) * 0x1p-22F) << row << ", " << k;
      if (!golden.format) continue;
      // The scale's rounding to float16, and the minimum's: up to 2^bits steps of it.
      const float rounding = std::abs(weight) * 0x1p-11F;
      const float of_min =
          golden.format->asymmetric ? steps[at] * static_cast<float>(1 << golden.format->bits) / 2048 : 0;
      EXPECT_NEAR(computed[at], weight, rounding + of_min) << row << ", " << k;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Formats, QuantizedGoldens, ::testing::ValuesIn(kGoldens),
                         [](const auto& named) { return named.param.name; });
INSTANTIATE_TEST_SUITE_P(WideFormats, QuantizedGoldens, ::testing::ValuesIn(kWideGoldens),
                         [](const auto& named) { return named.param.name; });

/// One tensor of a file that a test makes.
struct Part {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::string data;
};

template <class T>
std::string bytes(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

Folder folder_of(const std::string& quantization, const std::vector<Part>& parts) {
  auto header = nlohmann::json::object();
  std::string data;
  for (const auto& part : parts) {
    header[part.name] = {
        {"dtype", part.dtype}, {"shape", part.shape}, {"data_offsets", {data.size(), data.size() + part.data.size()}}};
    data += part.data;
  }
  auto folder = std::make_unique<const TemporaryFolder>();
  folder->write("model.safetensors", test::safetensors_file(header.dump(), 0) + data);
  folder->write("config.json", config_text(quantization));
  return folder;
}

const std::string kGptq = R"({"quant_method":"gptq","bits":4,"group_size":16})";

std::vector<Part> gptq_parts(std::vector<std::int32_t> group_of = std::vector<std::int32_t>(16)) {
  return {{"m.qweight", "I32", {2, 8}, std::string(64, '\0')},
          {"m.qzeros", "I32", {1, 1}, bytes<std::uint32_t>({0x77777777U})},
          {"m.scales", "F16", {1, 8}, std::string(16, '\0')},
          {"m.g_idx", "I32", {16}, bytes(group_of)}};
}

void expect_bad(const Folder& folder, const std::string& reason) {
  const auto weights = open_folder_weights(folder->path());
  ASSERT_TRUE(weights) << weights.error().message;
  const auto tensor = (*weights)->describe("m.weight", {8, 16});
  ASSERT_FALSE(tensor);
  EXPECT_EQ(tensor.error().code, ErrorCode::bad_file);
  EXPECT_THAT(tensor.error().message, AllOf(HasSubstr(reason), HasSubstr("model.safetensors"), Not(HasSubstr("\n"))));
}

TEST(QuantizedCheckpoint, TensorsThatDoNotFitAreRefusedByName) {
  expect_bad(folder_of(kGptq, {{"m.qweight", "I32", {2, 8}, std::string(64, '\0')}}),
             "tensor \"m.qzeros\": is missing");
  auto parts = gptq_parts();
  parts[0].shape = {8, 2};
  expect_bad(folder_of(kGptq, parts),
             "tensor \"m.qweight\": shape [8, 2] does not fit the config, which asks for [2, 8]");
  parts = gptq_parts();
  parts[0].dtype = "F32";
  expect_bad(folder_of(kGptq, parts), "tensor \"m.qweight\": dtype F32 is not I32");
  parts = gptq_parts();
  parts[2].dtype = "I16";
  expect_bad(folder_of(kGptq, parts), "tensor \"m.scales\": dtype I16 is not F16, BF16, F32");
  std::vector<std::int32_t> group_of(16);
  group_of[3] = 1;
  expect_bad(folder_of(kGptq, gptq_parts(group_of)), "tensor \"m.g_idx\": column 3 is of group 1 of 1");
  group_of[3] = -7;
  expect_bad(folder_of(kGptq, gptq_parts(group_of)), "tensor \"m.g_idx\": column 3 is of group -7 of 1");
}

TEST(QuantizedCheckpoint, GroupsThatAreNotThereAreRefused) {
  const std::string scale = bytes(std::vector<float>(24, 1.0F));
  const std::string kInt = compressed("int-quantized", 8, "int");
  const Part weight{"m.weight", "I8", {8, 16}, std::string(128, '\1')};
  expect_bad(folder_of(kInt, {weight, {"m.weight_scale", "F32", {8, 3}, scale}}),
             "tensor \"m.weight_scale\": 3 scales do not divide the 16 columns of a row");
  expect_bad(folder_of(kInt, {weight, {"m.weight_scale", "F32", {8, 0}, ""}}), "0 scales do not divide");
  expect_bad(folder_of(kInt, {weight}), "tensor \"m.weight_scale\": is missing");
}

TEST(QuantizedCheckpoint, StateOfFourBitsMustBeWhatItSays) {
  const auto parts = [](const std::string& state) {
    return std::vector<Part>{
        {"m.weight", "U8", {64, 1}, std::string(64, '\0')},
        {"m.weight.absmax", "F32", {2}, std::string(8, '\0')},
        {"m.weight.quant_map", "F32", {16}, std::string(64, '\0')},
        {"m.weight.quant_state.bitsandbytes__nf4", "U8", {static_cast<std::int64_t>(state.size())}, state}};
  };
  expect_bad(folder_of(kBnb4, parts("[]")), "is not a JSON object in bytes");
  expect_bad(folder_of(kBnb4, parts("{")), "is not a JSON object in bytes");
  expect_bad(folder_of(kBnb4, parts("{}")), "blocksize: is missing");
  expect_bad(folder_of(kBnb4, parts(R"({"blocksize":0})")), "blocksize: must be 1 to");
  expect_bad(folder_of(kBnb4, parts(R"({"blocksize":64,"shape":[16,8]})")), "shape: [16,8] does not fit the config");
  expect_bad(folder_of(kBnb4, parts(R"({"blocksize":64,"shape":[[16],8]})")),
             "shape: an array does not fit the config");
  expect_bad(folder_of(kBnb4, parts("{\"shape\":" + std::string(1'000'000, '['))), "is not a JSON object in bytes");
  expect_bad(folder_of(kBnb4, parts(R"({"blocksize":16})")), "absmax\": shape [2] does not fit");
}

TEST(QuantizedCheckpoint, AFileOfItsOwnSaysHowTheModelIsQuantised) {
  const auto load = [](const std::string& config, const char* name, const std::string& quantization) {
    test::TemporaryFolder folder;
    folder.write("config.json", config);
    folder.write(name, quantization);
    return load_quantization_config(folder.path());
  };
  const std::string kAutoGptq = R"({"bits":8,"group_size":64,"desc_act":true,"sym":true,"damp_percent":0.01})";
  const auto gptq = load(R"({"torch_dtype":"float16"})", "quantize_config.json", kAutoGptq);
  ASSERT_TRUE(gptq && *gptq);
  EXPECT_EQ((*gptq)->name, "GPTQ int8");
  EXPECT_EQ((*gptq)->group_size, 64);
  EXPECT_TRUE((*gptq)->zeros_lack_one);
  EXPECT_EQ((*gptq)->dtype, DType::f16);
  const auto awq =
      load("{}", "quant_config.json", R"({"zero_point":true,"q_group_size":32,"w_bit":4,"version":"GEMM"})");
  ASSERT_TRUE(awq && *awq);
  EXPECT_EQ((*awq)->name, "AWQ int4");
  EXPECT_EQ((*awq)->group_size, 32);
  // What config.json says comes first.
  const auto own = load(config_text(R"({"quant_method":"awq","bits":4})"), "quantize_config.json", kAutoGptq);
  ASSERT_TRUE(own && *own);
  EXPECT_EQ((*own)->name, "AWQ int4");
  const auto wrong = load("{}", "quantize_config.json", R"({"bits":3})");
  ASSERT_FALSE(wrong);
  EXPECT_THAT(wrong.error().message, AllOf(HasSubstr("quantize_config.json: bits: 3 bits are not supported")));
  EXPECT_FALSE(load("{}", "quantize_config.json", "[]"));
}

TEST(QuantizedCheckpoint, ScalesThatFloat16CannotHoldAreUsedDequantised) {
  const auto has_format = [](float scale) {
    const auto folder = folder_of(compressed("int-quantized", 8, "int"),
                                  {{"m.weight", "I8", {1, 16}, std::string(16, '\5')},
                                   {"m.weight_scale", "F32", {1, 1}, bytes(std::vector<float>{scale})}});
    const auto weights = open_folder_weights(folder->path()).value();
    const auto tensor = weights->describe("m.weight", {1, 16}).value();
    float row[16];
    tensor.quantized->dequantize(0, row);
    EXPECT_EQ(row[7], 5.0F * scale);
    return tensor.quantized->format().has_value();
  };
  EXPECT_TRUE(has_format(0.1F));
  EXPECT_TRUE(has_format(65504.0F));
  EXPECT_TRUE(has_format(0x1p-14F));
  EXPECT_TRUE(has_format(0x1p-23F));    // exact though subnormal
  EXPECT_FALSE(has_format(1.001e-5F));  // subnormal and rounded
  EXPECT_FALSE(has_format(1e-9F));      // nothing
  EXPECT_FALSE(has_format(1e6F));       // infinite
}

/// A matrix of MXFP4 [2, 64] with all 16 floats in each group; the last group has the exponent `last`.
Folder microscaled_folder(std::uint8_t last, const std::string& last_group) {
  std::string packed;
  for (int group = 0; group < 3; ++group) {
    for (int i = 0; i < 16; ++i) packed.push_back(static_cast<char>(i | (15 - i) << 4));
  }
  const std::string exponents{'\x7f', '\x80', '\x7c', static_cast<char>(last)};
  return folder_of(
      compressed("mxfp4-pack-quantized", 4, "float"),
      {{"m.weight_packed", "U8", {2, 32}, packed + last_group}, {"m.weight_scale", "U8", {2, 2}, exponents}});
}

/// Of compressed-tensors: pack_fp4_to_uint8 and compress_mx_scale.
TEST(QuantizedCheckpoint, FloatsOfFourBitsThatShareAPowerOfTwoAreReadAndKept) {
  constexpr std::array<float, 16> kFloats{0, 0.5, 1, 1.5, 2, 3, 4, 6, 0, -0.5, -1, -1.5, -2, -3, -4, -6};
  const std::string zeros(16, '\x80');
  for (const auto& [last, last_group, is_kept] :
       {std::tuple(std::uint8_t{126}, std::string(16, '\x21'), true), std::tuple(std::uint8_t{255}, zeros, true),
        std::tuple(std::uint8_t{60}, std::string(16, '\x21'), false)}) {
    const auto folder = microscaled_folder(last, last_group);
    const auto weights = open_folder_weights(folder->path()).value();
    const auto tensor = weights->tensor("m.weight", {2, 64});
    ASSERT_TRUE(tensor) << tensor.error().message;
    EXPECT_EQ(weights->facts().num_parameters, 128);
    ASSERT_EQ(tensor->quantized->format().has_value(), is_kept);
    for (std::int64_t row = 0; row < 2; ++row) {
      std::array<float, 64> dequantized{};
      tensor->quantized->dequantize(row, dequantized.data());
      std::array<std::uint8_t, 64> q{};
      std::array<Float16, 2> scales{};
      if (is_kept) tensor->quantized->unpack(row, {q.data(), scales.data()});
      for (std::size_t k = 0; k < 64; ++k) {
        const std::size_t i = k % 32;
        const bool is_last = row == 1 && k >= 32;
        const std::array<int, 4> exponents{0, 1, -3, last - 127};
        const std::size_t place = !is_last ? (i % 2 == 0 ? i / 2 : 15 - i / 2) : i % 2 == 0 ? 1 : 2;
        const float weight = is_last && last_group == zeros
                                 ? 0.0F
                                 : std::ldexp(kFloats[place], exponents[static_cast<std::size_t>(row) * 2 + k / 32]);
        EXPECT_EQ(dequantized[k], weight) << row << ", " << k;
        if (!is_kept) continue;
        const auto value = static_cast<float>(tensor->quantized->format()->value_of(q[k]));
        EXPECT_EQ(to_float(scales[k / 32]) * value, weight) << row << ", " << k;
      }
    }
  }
}

TEST(QuantizedCheckpoint, PowersOfTwoBeyondFloat32AreRefused) {
  for (const auto exponent : {std::uint8_t{254}, std::uint8_t{255}}) {
    const auto folder = microscaled_folder(exponent, std::string(16, '\x21'));
    const auto tensor = open_folder_weights(folder->path()).value()->describe("m.weight", {2, 64});
    ASSERT_FALSE(tensor);
    EXPECT_THAT(tensor.error().message, HasSubstr("tensor \"m.weight_scale\": has a scale that is not a number"));
  }
}

/// 8-bit floats whose blocks kernels take lie in the file as they are used.
TEST(QuantizedCheckpoint, EightBitFloatsAreGivenToKernelsWithTheirScales) {
  for (const auto& golden : kGoldens) {
    const bool has_whole_rows = golden.name == "ct_float" || golden.name == "fp8_tensor" || golden.name == "fp8_fbgemm";
    if (!has_whole_rows && golden.name != "fp8_block") continue;
    SCOPED_TRACE(golden.name);
    const auto folder = golden_folder(golden);
    const auto weights = open_folder_weights(folder->path()).value();
    const auto tensor = weights->tensor(golden.name + ".weight", {kRows, kColumns}).value();
    const weights::Float8Weights* const kept = tensor.quantized->float8();
    ASSERT_EQ(kept != nullptr, has_whole_rows);  // blocks of 20 columns are not taken
    if (kept == nullptr) continue;
    EXPECT_EQ(kept->scale_columns, kColumns);
    std::vector<float> row(kColumns);
    for (std::int64_t n = 0; n < kRows; ++n) {
      tensor.quantized->dequantize(n, row.data());
      const float scale = kept->scales.at(static_cast<std::size_t>(n / kept->scale_rows));
      for (std::int64_t k = 0; k < kColumns; ++k) {
        const auto bits = std::to_integer<std::uint8_t>(kept->data[n * kColumns + k]);
        ASSERT_EQ(scale * to_float(Float8E4M3{bits}), row[static_cast<std::size_t>(k)]);
      }
    }
  }
}

TEST(QuantizedCheckpoint, TablesOfFourBitsAreKnownCodebooksWhereRowsAreWholeBlocks) {
  const std::vector<float> nf4{-1.0F,         -0.6961928F, -0.52507305F, -0.39491749F, -0.28444138F, -0.18477343F,
                               -0.091050036F, 0.0F,        0.0795803F,   0.1609302F,   0.2461123F,   0.33791524F,
                               0.44070983F,   0.562617F,   0.72295684F,  1.0F};
  const auto open = [](std::vector<float> table, const std::string& state) {
    return folder_of(
        kBnb4, {{"m.weight", "U8", {64, 1}, std::string(64, '\x2f')},
                {"m.weight.absmax", "F32", {2}, bytes(std::vector<float>{0.5F, 0.25F})},
                {"m.weight.quant_map", "F32", {16}, bytes(table)},
                {"m.weight.quant_state.bitsandbytes__nf4", "U8", {static_cast<std::int64_t>(state.size())}, state}});
  };
  const auto folder = open(nf4, R"({"blocksize":64,"shape":[2,64]})");
  const auto weights = open_folder_weights(folder->path()).value();
  const auto tensor = weights->describe("m.weight", {2, 64}).value();
  ASSERT_EQ(tensor.quantized->format(),
            (kernels::QuantizedFormat{.bits = 4, .group_size = 64, .codebook = kernels::Codebook::nf4}));
  std::vector<std::uint8_t> q(64);
  Float16 scale;
  tensor.quantized->unpack(1, {.q = q.data(), .scales = &scale});
  EXPECT_EQ(q[0], 2);
  EXPECT_EQ(q[1], 15);
  std::vector<float> row(64);
  tensor.quantized->dequantize(1, row.data());
  for (std::size_t k = 0; k < row.size(); ++k) {
    // A value's rounding to 112ths, and the scale's to float16.
    EXPECT_NEAR(to_float(scale) * static_cast<float>(tensor.quantized->format()->value_of(q[k])), row[k],
                0.25F * (0.5F / 112 + 1.0F / 2048));
  }
  // A table of other values, and rows that begin within a block.
  auto other = nf4;
  other[3] = -0.41F;
  const auto strange = open(other, R"({"blocksize":64,"shape":[2,64]})");
  EXPECT_FALSE(open_folder_weights(strange->path()).value()->describe("m.weight", {2, 64})->quantized->format());
  const auto crossing = open(nf4, R"({"blocksize":64,"shape":[4,32]})");
  EXPECT_FALSE(open_folder_weights(crossing->path()).value()->describe("m.weight", {4, 32})->quantized->format());
}

TEST(QuantizedCheckpoint, AllTensorsOfAModuleAreTakenWithItsWeight) {
  auto parts = gptq_parts();
  parts.push_back({"m.bias", "F16", {8}, std::string(16, '\0')});
  parts.push_back({"attn.k_scale", "F32", {}, std::string(4, '\0')});
  parts.push_back({"n.weight", "F32", {2}, std::string(8, '\0')});
  const auto folder = folder_of(kGptq, parts);
  const auto weights = open_folder_weights(folder->path()).value();
  ASSERT_TRUE(weights->tensor("m.weight", {8, 16}));
  const auto left = weights->check_all_used({});
  ASSERT_FALSE(left);
  EXPECT_THAT(left.error().message, HasSubstr("tensor \"n.weight\" is not used by "));
  EXPECT_EQ(weights->tensor("n.weight", {2}).value().quantized, nullptr);
  EXPECT_TRUE(weights->check_all_used({}));
  EXPECT_EQ(weights->facts().num_parameters, 8 * 16 + 8 + 2);
  EXPECT_EQ(weights->quantization(), "GPTQ int4");
}

TEST(QuantizedCheckpoint, PackedWeightsOfLinearLayersAreNotTransposed) {
  const auto holds = [](const char* name, const std::string& quantization) {
    const Folder folder = golden_folder({name, quantization, std::nullopt});
    return open_folder_weights(folder->path()).value()->holds_derived(name);
  };
  EXPECT_TRUE(holds("ct_pack_asym", kGroup16));
  EXPECT_FALSE(holds("ct_int", compressed("int-quantized", 8, "int")));
  std::string conv1d = kGroup16;
  conv1d.replace(conv1d.find("[\"Linear\"]"), 10, "[\"Linear\",\"Conv1D\"]");
  EXPECT_FALSE(holds("ct_pack_asym", conv1d));
  EXPECT_TRUE(holds("gptq_4_g16", gptq(4, 16)));
}

TEST(QuantizedCheckpoint, ABiasThatIsNotZeroIsLeft) {
  auto parts = gptq_parts();
  parts.push_back({"m.bias", "F16", {8}, std::string(15, '\0') + '\1'});
  const auto folder = folder_of(kGptq, parts);
  const auto weights = open_folder_weights(folder->path()).value();
  ASSERT_TRUE(weights->tensor("m.weight", {8, 16}));
  EXPECT_THAT(weights->check_all_used({}).error().message, HasSubstr("tensor \"m.bias\" is not used by "));
}

TEST(QuantizationConfig, WhatIsNotBuiltIsRefusedByName) {
  const auto expect_refused = [](const std::string& quantization, const std::string& reason) {
    TemporaryFolder folder;
    folder.write("config.json", config_text(quantization));
    const auto config = load_quantization_config(folder.path());
    ASSERT_FALSE(config) << quantization;
    EXPECT_EQ(config.error().param, "quantization_config");
    EXPECT_THAT(config.error().message, AllOf(HasSubstr("config.json: quantization_config"), HasSubstr(reason)));
  };
  expect_refused("4", "must be an object");
  expect_refused("{}", "quant_method: is missing");
  expect_refused(R"({"quant_method":"spqr"})",
                 "\"spqr\" is not supported (awq, gptq, compressed-tensors, fp8, fbgemm_fp8, bitsandbytes)");
  expect_refused(R"({"quant_method":"awq","version":"gemv"})", "version: \"gemv\" is not supported (gemm)");
  expect_refused(R"({"quant_method":"awq","zero_point":false})", "zero_point: false is not supported");
  expect_refused(R"({"quant_method":"awq","bits":8})", "bits: 8 bits are not supported (4)");
  expect_refused(R"({"quant_method":"gptq","bits":3})", "bits: 3 bits are not supported (4, 8)");
  expect_refused(R"({"quant_method":"gptq","bits":4,"group_size":0})", "group_size: must be -1 or");
  expect_refused(R"({"quant_method":"gptq","checkpoint_format":"marlin"})",
                 "\"marlin\" is not supported (gptq, gptq_v2)");
  expect_refused(R"({"quant_method":"gptq","dynamic":{"-:a":{}}})", "dynamic: other bits for some modules");
  expect_refused(R"({"quant_method":"compressed-tensors","format":"marlin-24"})", "\"marlin-24\" is not supported");
  expect_refused(R"({"quant_method":"compressed-tensors","format":"int-quantized"})",
                 "config_groups: must be an object");
  expect_refused(compressed("pack-quantized", 2, "int"), "num_bits: 2 bits are not supported in format pack-quantized");
  expect_refused(compressed("float-quantized", 8, "int"), "type: \"int\" does not belong to format float-quantized");
  expect_refused(R"({"quant_method":"compressed-tensors","format":"int-quantized","config_groups":{"a":{}},
                     "sparsity_config":{"format":"sparse-24-bitmask"}})",
                 "\"sparse-24-bitmask\" is not supported (dense)");
  expect_refused(R"({"quant_method":"compressed-tensors","format":"int-quantized","config_groups":{"a":{}},
                     "transform_config":{"config_groups":{"u":{"type":"hadamard","apply":[]}}}})",
                 "transform_config: is not supported: only what pagoda quantize writes");
  expect_refused(R"({"quant_method":"fp8","fmt":"e5m2"})", "\"e5m2\" is not supported");
  expect_refused(R"({"quant_method":"fp8","weight_block_size":[128,0]})", "weight_block_size: must be [rows, columns]");
  expect_refused(R"({"quant_method":"bitsandbytes"})", "load_in_4bit: either load_in_4bit or load_in_8bit");
  expect_refused(R"({"load_in_4bit":true,"bnb_4bit_quant_storage":"bfloat16"})",
                 "\"bfloat16\" is not supported (uint8)");
}

TEST(QuantizationConfig, AFolderWithoutOneIsPlain) {
  TemporaryFolder folder;
  folder.write("config.json", R"({"quantization_config":null})");
  EXPECT_FALSE(load_quantization_config(folder.path()).value().has_value());
}

}  // namespace
}  // namespace pagoda::io
