// What is written as GGUF is read back the same: metadata, tensors, and blocks as what they stand for.

#include "io/model_files/gguf/gguf_model_writer.hpp"

#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/model_files/gguf/gguf_blocks.hpp"
#include "io/model_files/gguf/gguf_weights.hpp"
#include "tests/io/model_files/gguf_writer.hpp"
#include "tests/support/temporary_folder.hpp"

namespace pagoda::io {
namespace {

using testing::gguf_bytes;
using testing::GgufType;
using testing::GgufWriter;
using ::testing::HasSubstr;

constexpr std::uint64_t kWrittenRows = 32;  // two heads of 16
constexpr std::int64_t kWrittenColumns = 64;

/// All types of values, in an order that is not the alphabet's, and a Llama's queries and head.
GgufWriter plain_model() {
  GgufWriter writer;
  writer.add("general.architecture", "llama")
      .add("z.u8", std::uint8_t{200})
      .add("z.i8", std::int8_t{-3})
      .add("z.u16", std::uint16_t{60000})
      .add("z.i16", std::int16_t{-300})
      .add("z.i32", -70000)
      .add("z.u64", std::uint64_t{1} << 40)
      .add("z.i64", -(std::int64_t{1} << 40))
      .add("z.f32", 0.1F)
      .add("z.f64", 0.1)
      .add("z.bool", true)
      .add("z.text", "a\0b")
      .add("z.texts", std::vector<std::string>{"", "\xFF", "c"})
      .add("z.bytes", std::vector<std::uint8_t>{1, 2, 3})
      .add("general.file_type", std::uint32_t{1})
      .add("llama.attention.head_count", std::uint32_t{2})
      .align(64);
  std::string norm(kWrittenColumns * sizeof(float), '\1');
  writer.add_tensor("output_norm.weight", testing::kGgmlF32, {kWrittenColumns}, norm);
  writer.add_tensor("blk.0.attn_q.weight", testing::kGgmlF16, {kWrittenRows, kWrittenColumns},
                    std::string(kWrittenRows * kWrittenColumns * 2, '\2'));
  writer.add_tensor("blk.0.attn_v.weight", testing::kGgmlF16, {kWrittenRows, kWrittenColumns},
                    std::string(kWrittenRows * kWrittenColumns * 2, '\3'));
  return writer;
}

/// Integers, scales and minimums of a matrix [kWrittenRows, kWrittenColumns] in groups of 32.
struct WrittenMatrix {
  std::vector<std::uint8_t> q;
  std::vector<float> scales;
  std::vector<float> mins;

  explicit WrittenMatrix(int bits) {
    std::mt19937 random(7);
    std::normal_distribution<float> value;
    for (std::uint64_t i = 0; i < kWrittenRows * kWrittenColumns; ++i)
      q.push_back(static_cast<std::uint8_t>(random() % (1U << bits)));
    for (std::uint64_t i = 0; i < kWrittenRows * kWrittenColumns / 32; ++i) {
      scales.push_back(to_float(to_f16(value(random))));
      mins.push_back(to_float(to_f16(value(random))));
    }
  }

  float weight(std::size_t i, int bits, bool minimums) const {
    const auto integer = static_cast<float>(q[i]);
    if (minimums) return scales[i / 32] * integer + mins[i / 32];
    return scales[i / 32] * (integer - static_cast<float>(1 << (bits - 1)));
  }
};

std::vector<WrittenModule> modules_of(int bits_of_q, int bits_of_v) {
  return {{"model.layers.0.self_attn.q_proj", kWrittenRows, kWrittenColumns, bits_of_q},
          {"model.layers.0.self_attn.v_proj", kWrittenRows, kWrittenColumns, bits_of_v}};
}

const std::vector<WrittenModule> kModules = modules_of(4, 4);

class GgufModelWriterTest : public ::testing::Test {
 protected:
  GgufModelParts parts() const {
    const auto file = GgufFile::open(plain_model().write(folder_.path() / "plain.gguf"));
    EXPECT_TRUE(file) << file.error().message;
    auto parts = gguf_parts_of_file(*file);
    EXPECT_TRUE(parts) << parts.error().message;
    return std::move(*parts);
  }

  std::filesystem::path out() const { return folder_.path() / "out.gguf"; }

  test::TemporaryFolder folder_;
};

struct Layout {
  const char* name;
  int bits_of_q;
  int bits_of_v;
  GgufModelWriter::Format format;
  std::uint32_t file_type;
};

class GgufLayouts : public GgufModelWriterTest, public ::testing::WithParamInterface<Layout> {};

TEST_P(GgufLayouts, StandForTheWeightsInTheOrderThatIsRead) {
  const auto [name, bits_of_q, bits_of_v, format, file_type] = GetParam();
  const std::vector<WrittenModule> modules = modules_of(bits_of_q, bits_of_v);
  auto writer = GgufModelWriter::create(out(), parts(), modules, format);
  ASSERT_TRUE(writer) << writer.error().message;
  for (const WrittenModule& module : modules) {
    const WrittenMatrix matrix(module.bits);
    WrittenWeights weights{.q = matrix.q, .scales = matrix.scales, .zeros = {}, .mins = {}};
    if (format.minimums && module.bits == 4) weights.mins = matrix.mins;
    ASSERT_TRUE(writer->write(module, weights));
  }
  ASSERT_TRUE(writer->finish());
  EXPECT_EQ(writer->written_bytes(), static_cast<std::int64_t>(std::filesystem::file_size(out())));

  const auto file = GgufFile::open(out());
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ((*file)->get<std::int64_t>("general.file_type").value(), file_type);
  EXPECT_EQ((*file)->get<std::int64_t>("general.quantization_version").value(), 2);
  const auto weights = GgufWeights::open(*file);
  ASSERT_TRUE(weights) << weights.error().message;
  EXPECT_EQ((*weights)->quantization(), name);
  for (const WrittenModule& module : modules) {
    const WrittenMatrix matrix(module.bits);
    const auto tensor = (*weights)->tensor(module.name + ".weight", {kWrittenRows, kWrittenColumns});
    ASSERT_TRUE(tensor) << tensor.error().message;
    std::vector<float> row(kWrittenColumns);
    for (std::size_t r = 0; r < kWrittenRows; ++r) {
      tensor->quantized->dequantize(static_cast<std::int64_t>(r), row.data());
      for (std::size_t k = 0; k < kWrittenColumns; ++k) {
        ASSERT_EQ(row[k], matrix.weight(r * kWrittenColumns + k, module.bits, format.minimums && module.bits == 4))
            << module.name << r << " " << k;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Types, GgufLayouts,
                         ::testing::Values(Layout{"Q4_0", 4, 4, {false}, 2}, Layout{"Q4_1", 4, 4, {true}, 3},
                                           Layout{"Q8_0", 8, 8, {false}, 7}, Layout{"Q4_1, Q8_0", 4, 8, {true}, 3}),
                         [](const auto& tested) {
                           return std::string(tested.param.name, 4) +
                                  (tested.param.bits_of_q == tested.param.bits_of_v ? "" : "_and_8_bits");
                         });

TEST_F(GgufModelWriterTest, MetadataAndOtherTensorsAreCopiedVerbatim) {
  const auto before = GgufFile::open(plain_model().write(folder_.path() / "plain.gguf"));
  ASSERT_TRUE(before);
  const auto parts = gguf_parts_of_file(*before);
  ASSERT_TRUE(parts) << parts.error().message;
  std::vector<GgufTensorHeader> tensors;
  for (const auto& tensor : parts->tensors) tensors.push_back(tensor.described);
  auto writer = create_gguf_file(out(), parts->metadata, tensors, parts->alignment);
  ASSERT_TRUE(writer) << writer.error().message;
  std::vector<std::byte> memory;
  for (const auto& [described, data] : parts->tensors) ASSERT_TRUE(writer->write(described.name, data(memory)));
  ASSERT_TRUE(writer->finish());
  EXPECT_FALSE(std::filesystem::exists(out().string() + ".part"));

  // Padding behind the last tensor aside.
  const auto read = [](const std::filesystem::path& path) {
    std::ifstream file(path, std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  const std::string expected = read(folder_.path() / "plain.gguf");
  EXPECT_EQ(read(out()).substr(0, expected.size()), expected);
}

TEST_F(GgufModelWriterTest, PartsOfASplitFileBecomeOne) {
  GgufWriter first;
  first.add("general.architecture", "llama").add("llama.attention.head_count", std::uint32_t{2});
  first.add_tensor("b", testing::kGgmlF32, {2}, std::string(8, 'b'));
  GgufWriter second;
  second.add_tensor("a", testing::kGgmlF32, {2}, std::string(8, 'a'));
  const auto file = GgufFile::open(testing::write_gguf_parts(folder_.path(), "m", {first, second}));
  ASSERT_TRUE(file) << file.error().message;
  const auto parts = gguf_parts_of_file(*file);
  ASSERT_TRUE(parts);
  EXPECT_EQ(parts->metadata.size(), 2);
  ASSERT_EQ(parts->tensors.size(), 2);
  EXPECT_EQ(parts->tensors.front().described.name, "b");
}

TEST_F(GgufModelWriterTest, WhatIsNeverFinishedIsRemoved) {
  {
    const auto writer = GgufModelWriter::create(out(), parts(), kModules, {});
    ASSERT_TRUE(writer) << writer.error().message;
    EXPECT_TRUE(std::filesystem::exists(writer->part()));
    EXPECT_TRUE(GgufFile::open(writer->part()));
    EXPECT_FALSE(std::filesystem::exists(out()));
  }
  EXPECT_FALSE(std::filesystem::exists(out().string() + ".part"));
}

TEST_F(GgufModelWriterTest, RefusesPlacesWhereItMayNotWrite) {
  folder_.write("out.gguf", "mine");
  EXPECT_THAT(GgufModelWriter::create(out(), parts(), kModules, {}).error().message, HasSubstr("already exists"));
  const auto nowhere = folder_.path() / "nowhere" / "out.gguf";
  EXPECT_THAT(GgufModelWriter::create(nowhere, parts(), kModules, {}).error().message,
              HasSubstr("its folder does not exist"));
  const auto full = create_gguf_file("/dev/full/x", {}, {});
  ASSERT_FALSE(full);
  EXPECT_THAT(full.error().message, HasSubstr("/dev/full/x.part"));
}

TEST_F(GgufModelWriterTest, RefusesAModuleThatGgufHasNoTensorFor) {
  const auto writer = GgufModelWriter::create(out(), parts(), {{"model.layers.9.mlp.up_proj", 32, 32}}, {});
  ASSERT_FALSE(writer);
  EXPECT_THAT(writer.error().message, HasSubstr("model.layers.9.mlp.up_proj"));
}

}  // namespace
}  // namespace pagoda::io
