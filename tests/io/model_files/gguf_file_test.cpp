#include "io/model_files/gguf/gguf_file.hpp"

#include <algorithm>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/model_files/gguf/gguf_parse.hpp"
#include "tests/io/model_files/gguf_writer.hpp"
#include "tests/support/safetensors_file.hpp"
#include "tests/support/temporary_folder.hpp"

namespace pagoda::io {
namespace {

using test::bytes_of;
using test::TemporaryFolder;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using testing::gguf_array;
using testing::gguf_bytes;
using testing::gguf_part_name;
using testing::GgufType;
using testing::GgufWriter;
using ::testing::HasSubstr;
using testing::kGgmlF16;
using testing::kGgmlF32;
using testing::kGgmlQ8_0;
using ::testing::Not;
using ::testing::StartsWith;
using testing::write_gguf_parts;

constexpr auto kMaxInt64 = std::numeric_limits<std::int64_t>::max();
constexpr std::uint64_t kHugeNumber = std::uint64_t{1} << 60;

/// The contents point into `file`.
Result<GgufContents> contents_of(const std::string& file) {
  return parse_gguf(bytes_of(file), "model.gguf");
}

std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// A file with something of everything.
GgufWriter small_file(std::uint32_t version = 3) {
  return GgufWriter(version)
      .add("general.architecture", "llama")
      .add("llama.block_count", 2U)
      .add("tokenizer.ggml.tokens", std::vector<std::string>{"<s>", "a", "bc"})
      .add("tokenizer.ggml.scores", std::vector<float>{0.0F, -1.0F, 0.5F})
      .add("tokenizer.ggml.add_bos_token", true)
      .add_tensor("a", kGgmlF32, {2, 3}, std::string(24, 'a'))
      .add_tensor("b", kGgmlQ8_0, {2, 32}, std::string(68, 'b'));
}

TEST(GgufFile, MetadataAndTensorsOfBothVersionsAreRead) {
  const TemporaryFolder folder;
  for (const std::uint32_t version : {2U, 3U}) {
    const auto path = small_file(version).write(folder.path() / "m.gguf");
    const auto file = GgufFile::open(path);
    ASSERT_TRUE(file) << file.error().message;
    const GgufFile& gguf = **file;
    EXPECT_EQ(gguf.path(), path.string());
    EXPECT_EQ(gguf.num_files(), 1U);
    EXPECT_EQ(gguf.metadata().size(), 5U);
    EXPECT_EQ(gguf.get<std::string_view>("general.architecture").value(), "llama");
    ASSERT_EQ(gguf.tensors().size(), 2U);
    const GgufTensor* b = gguf.tensor("b");
    ASSERT_NE(b, nullptr);
    EXPECT_EQ(b->name, "b");
    EXPECT_EQ(b->type, GgmlType{kGgmlQ8_0});
    EXPECT_THAT(b->shape, ElementsAre(2, 32));
    EXPECT_EQ(b->elements(), 64);
    EXPECT_EQ(text_of(b->data), std::string(68, 'b'));
    EXPECT_EQ(gguf.path_of(*b), path.string());
    EXPECT_EQ(gguf.tensor("c"), nullptr);
    gguf.drop_pages(*b);
    EXPECT_EQ(text_of(b->data), std::string(68, 'b'));
  }
}

TEST(GgufFile, ValuesOfEveryTypeAreRead) {
  const std::string file = GgufWriter()
                               .add<std::uint8_t>("u8", 255)
                               .add<std::int8_t>("i8", -128)
                               .add<std::uint16_t>("u16", 65535)
                               .add<std::int16_t>("i16", -32768)
                               .add<std::uint32_t>("u32", 4294967295U)
                               .add<std::int32_t>("i32", -5)
                               .add<std::uint64_t>("u64", kMaxInt64)
                               .add<std::int64_t>("i64", -kMaxInt64)
                               .add("f32", 0.5F)
                               .add("f64", 1e300)
                               .add("yes", true)
                               .add("no", false)
                               .add("text", std::string("a\0\xff", 3))
                               .bytes();
  const auto parsed = contents_of(file);
  ASSERT_TRUE(parsed) << parsed.error().message;
  const auto integer = [&](const char* key) { return std::get<std::int64_t>(parsed->metadata.at(key)); };
  EXPECT_EQ(integer("u8"), 255);
  EXPECT_EQ(integer("i8"), -128);
  EXPECT_EQ(integer("u16"), 65535);
  EXPECT_EQ(integer("i16"), -32768);
  EXPECT_EQ(integer("u32"), 4294967295);
  EXPECT_EQ(integer("i32"), -5);
  EXPECT_EQ(integer("u64"), kMaxInt64);
  EXPECT_EQ(integer("i64"), -kMaxInt64);
  EXPECT_EQ(std::get<double>(parsed->metadata.at("f32")), 0.5);
  EXPECT_EQ(std::get<double>(parsed->metadata.at("f64")), 1e300);
  EXPECT_TRUE(std::get<bool>(parsed->metadata.at("yes")));
  EXPECT_FALSE(std::get<bool>(parsed->metadata.at("no")));
  EXPECT_EQ(std::get<std::string_view>(parsed->metadata.at("text")), std::string_view("a\0\xff", 3));
}

TEST(GgufFile, ArraysOfEveryTypeAreRead) {
  const std::string file = GgufWriter()
                               .add("u8", std::vector<std::uint8_t>{0, 255})
                               .add("i8", std::vector<std::int8_t>{-1, 1})
                               .add("u16", std::vector<std::uint16_t>{7, 65535})
                               .add("i16", std::vector<std::int16_t>{-7, 7})
                               .add("u32", std::vector<std::uint32_t>{4294967295U})
                               .add("i32", std::vector<std::int32_t>{})
                               .add("u64", std::vector<std::uint64_t>{1, 2, 3})
                               .add("i64", std::vector<std::int64_t>{-kMaxInt64})
                               .add("f32", std::vector<float>{0.25F, -2.0F})
                               .add("f64", std::vector<double>{0.1})
                               .add("bools", std::vector<bool>{true, false, true})
                               .add("texts", std::vector<std::string>{"", "ab"})
                               .bytes();
  const auto parsed = contents_of(file);
  ASSERT_TRUE(parsed) << parsed.error().message;
  const auto integers = [&](const char* key) { return std::get<std::vector<std::int64_t>>(parsed->metadata.at(key)); };
  EXPECT_THAT(integers("u8"), ElementsAre(0, 255));
  EXPECT_THAT(integers("i8"), ElementsAre(-1, 1));
  EXPECT_THAT(integers("u16"), ElementsAre(7, 65535));
  EXPECT_THAT(integers("i16"), ElementsAre(-7, 7));
  EXPECT_THAT(integers("u32"), ElementsAre(4294967295));
  EXPECT_THAT(integers("i32"), ElementsAre());
  EXPECT_THAT(integers("u64"), ElementsAre(1, 2, 3));
  EXPECT_THAT(integers("i64"), ElementsAre(-kMaxInt64));
  EXPECT_THAT(std::get<std::vector<double>>(parsed->metadata.at("f32")), ElementsAre(0.25, -2.0));
  EXPECT_THAT(std::get<std::vector<double>>(parsed->metadata.at("f64")), ElementsAre(0.1));
  EXPECT_THAT(std::get<std::vector<bool>>(parsed->metadata.at("bools")), ElementsAre(true, false, true));
  EXPECT_THAT(std::get<std::vector<std::string_view>>(parsed->metadata.at("texts")), ElementsAre("", "ab"));
}

TEST(GgufFile, AValueIsTakenAsItsTypeOrRefusedWithFileAndKey) {
  const TemporaryFolder folder;
  const auto file = GgufFile::open(GgufWriter()
                                       .add("n", 7)
                                       .add("x", 0.5F)
                                       .add("ns", std::vector<std::int32_t>{1, 2})
                                       .add("s", "text")
                                       .write(folder.path() / "m.gguf"));
  ASSERT_TRUE(file) << file.error().message;
  const GgufFile& gguf = **file;
  EXPECT_EQ(gguf.get<std::int64_t>("n").value(), 7);
  EXPECT_EQ(gguf.get<double>("n").value(), 7.0);
  EXPECT_EQ(gguf.get<double>("x").value(), 0.5);
  EXPECT_THAT(*gguf.get<std::vector<double>>("ns").value(), ElementsAre(1.0, 2.0));
  EXPECT_THAT(*gguf.get<std::vector<std::int64_t>>("ns").value(), ElementsAre(1, 2));
  EXPECT_EQ(gguf.get<bool>("absent").value(), std::nullopt);
  EXPECT_EQ(gguf.find("absent"), nullptr);
  ASSERT_NE(gguf.find("s"), nullptr);

  const auto wrong = gguf.get<std::int64_t>("x");
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().code, ErrorCode::bad_file);
  EXPECT_EQ(wrong.error().message, gguf.path() + ": x must be an integer, not a number");
  EXPECT_EQ(wrong.error().param, "x");
  EXPECT_THAT(gguf.get<std::vector<std::string_view>>("ns").error().message,
              EndsWith(": ns must be an array of strings, not an array of integers"));
  EXPECT_THAT(gguf.get<bool>("n").error().message, EndsWith(": n must be a boolean, not an integer"));
  EXPECT_EQ(gguf.bad("n", "is odd", ErrorCode::unsupported).value().message, gguf.path() + ": n is odd");
  EXPECT_EQ(gguf.bad("n", "is odd", ErrorCode::unsupported).value().code, ErrorCode::unsupported);
}

TEST(GgufFile, AFileWithoutTensorsIsRead) {
  const std::string file = GgufWriter().add("general.architecture", "llama").bytes();
  const auto parsed = contents_of(file);
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_TRUE(parsed->tensors.empty());
  EXPECT_TRUE(contents_of(GgufWriter().bytes()));
}

TEST(GgufFile, DataFollowTheAlignmentOfTheFile) {
  for (const std::uint32_t alignment : {8U, 64U, 4096U, 1U << 20}) {
    const std::string file = GgufWriter()
                                 .align(alignment)
                                 .add_tensor("a", kGgmlF16, {3}, "aAaAaA")
                                 .add_tensor("b", kGgmlF16, {1}, "bB")
                                 .bytes();
    const auto parsed = contents_of(file);
    ASSERT_TRUE(parsed) << parsed.error().message;
    EXPECT_EQ(text_of(parsed->tensors.at("a").data), "aAaAaA");
    EXPECT_EQ(text_of(parsed->tensors.at("b").data), "bB");
    EXPECT_EQ((parsed->tensors.at("b").data.data() - bytes_of(file).data()) % alignment, 0);
  }
}

TEST(GgufFile, TensorsMayLieInAnyOrderAndWithGaps) {
  const std::string data = std::string(32, 'b') + std::string(96, '.') + std::string(8, 'a') + "behind";
  const std::string file =
      GgufWriter().add_tensor_at("a", kGgmlF32, {2}, 128).add_tensor_at("b", kGgmlF32, {8}, 0).add_data(data).bytes();
  const auto parsed = contents_of(file);
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(text_of(parsed->tensors.at("a").data), std::string(8, 'a'));
  EXPECT_EQ(text_of(parsed->tensors.at("b").data), std::string(32, 'b'));
}

TEST(GgufFile, ATensorHasUpToFourSizesAndWithoutAnyItIsOneNumber) {
  const std::string file = GgufWriter().add_zeros("four", {2, 3, 5, 7}).add_zeros("none", {}).bytes();
  const auto parsed = contents_of(file);
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_THAT(parsed->tensors.at("four").shape, ElementsAre(2, 3, 5, 7));
  EXPECT_THAT(parsed->tensors.at("none").shape, ElementsAre(1));
  EXPECT_EQ(parsed->tensors.at("none").data.size(), 4U);
}

struct BadGguf {
  std::string name;
  std::string file;
  std::string message;
  ErrorCode code = ErrorCode::bad_file;
};

void PrintTo(const BadGguf& bad, std::ostream* out) {
  *out << bad.name;
}

class BadGgufFile : public ::testing::TestWithParam<BadGguf> {};

TEST_P(BadGgufFile, IsRefusedWithOneLineThatNamesFilePlaceAndReason) {
  const auto parsed = contents_of(GetParam().file);
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error().code, GetParam().code);
  EXPECT_THAT(parsed.error().message,
              AllOf(StartsWith("model.gguf: "), HasSubstr(GetParam().message), Not(HasSubstr("\n"))));
}

/// A file whose only key is "k".
std::string key_k(GgufType type, std::string_view value) {
  return GgufWriter().add_raw("k", static_cast<std::uint32_t>(type), value).bytes();
}

/// A file that describes one tensor "w" as lying at the beginning of 64 bytes.
std::string tensor_w(std::uint32_t type, const std::vector<std::uint64_t>& sizes, std::uint64_t offset = 0) {
  return GgufWriter().add_tensor_at("w", type, sizes, offset).add_data(std::string(64, '\0')).bytes();
}

std::string with_alignment(std::uint32_t alignment) {
  return GgufWriter().add("general.alignment", alignment).bytes();
}

std::vector<BadGguf> bad_starts() {
  const std::string big_endian{"GGUF\0\0\0\3\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0", 24};
  return {
      {"Empty", "", "not a GGUF file: 0 bytes are too few"},
      {"ThreeBytes", "GGU", "not a GGUF file: 3 bytes are too few"},
      {"OtherMagic", "ggjt" + std::string(60, '\0'), "not a GGUF file: it begins with \"ggjt\", not with \"GGUF\""},
      {"ControlCharactersInMagic", "\n\r\x01x" + std::string(60, '\0'), R"(it begins with "\x0a\x0d\x01x")"},
      {"OnlyMagic", "GGUF", "ends at byte 4, inside the header: the download is not complete?"},
      {"VersionZero", GgufWriter(0).bytes(), "GGUF version 0 is not supported: only 2 and 3 are"},
      {"VersionOne", GgufWriter(1).bytes(), "GGUF version 1 is not supported: only 2 and 3 are",
       ErrorCode::unsupported},
      {"VersionFour", GgufWriter(4).bytes(), "GGUF version 4 is not supported", ErrorCode::unsupported},
      {"BigEndian", big_endian, "a big-endian GGUF file is not supported", ErrorCode::unsupported},
      {"TooManyTensors", GgufWriter().say_counts(kHugeNumber, 0).bytes(),
       "the header declares 1152921504606846976 tensors, more than the limit of 65536"},
      {"TooManyKeys", GgufWriter().say_counts(0, 65537).bytes(),
       "the header declares 65537 keys, more than the limit of 65536"},
      {"FewerKeysThanSaid", GgufWriter().add("k", 1).say_counts(0, 2).bytes(),
       "ends at byte 41, inside key 2 of 2: the download is not complete?"},
      {"FewerTensorsThanSaid", GgufWriter().add("k", 1).say_counts(65536, 1).bytes(), "inside tensor 1 of 65536"},
  };
}

std::vector<BadGguf> bad_keys() {
  const std::string no_items;
  return {
      {"KeyTwice", GgufWriter().add("k", 1).add("k", 2).bytes(), "key \"k\": it occurs twice"},
      {"EmptyKey", GgufWriter().add("", 1).bytes(), "key 1 of 1: its name is empty"},
      {"LongKey", GgufWriter().add(std::string(65536, 'k'), 1).bytes(),
       "key 1 of 1: its name of 65536 bytes is longer than the limit of 65535"},
      {"KeyNotUtf8", GgufWriter().add("k\xff", 1).bytes(), "key 1 of 1: its name is not UTF-8"},
      {"ControlCharactersInKey", GgufWriter().add("a\nb", 1).add("a\nb", 1).bytes(),
       R"(key "a\x0ab": it occurs twice)"},
      {"HugeKey", GgufWriter().say_counts(0, 1).bytes() + gguf_bytes(kHugeNumber),
       "key 1 of 1: what follows byte 32 makes the header longer than the limit of 100000000 bytes"},
      {"UnknownType", key_k(GgufType{13}, no_items), "key \"k\": unknown value type 13"},
      {"UnknownItemType", key_k(GgufType::array, gguf_array(GgufType{4000000000}, 0, "")),
       "key \"k\": unknown value type 4000000000"},
      {"ArrayOfArrays", key_k(GgufType::array, gguf_array(GgufType::array, 1, gguf_array(GgufType::u8, 0, ""))),
       "key \"k\": an array of arrays is not allowed"},
      {"BooleanTwo", key_k(GgufType::boolean, "\x02"), "key \"k\": a boolean must be 0 or 1, not 2"},
      {"BooleanItem", key_k(GgufType::array, gguf_array(GgufType::boolean, 2, "\x01\xff")),
       "key \"k\": a boolean must be 0 or 1, not 255"},
      {"LargeInteger", GgufWriter().add("k", std::uint64_t{1} << 63).bytes(),
       "key \"k\": 9223372036854775808 is more than the limit of 9223372036854775807"},
      {"LargeItem", GgufWriter().add("k", std::vector<std::uint64_t>{0, ~0ULL}).bytes(),
       "key \"k\": 18446744073709551615 is more than the limit"},
      {"HugeString", key_k(GgufType::string, gguf_bytes(~0ULL)),
       "key \"k\": what follows byte 45 makes the header longer than the limit of 100000000 bytes"},
      {"StringBehindEnd", key_k(GgufType::string, gguf_bytes(std::uint64_t{3}) + "ab"),
       "ends at byte 47, inside key \"k\": the download is not complete?"},
      {"HugeArray", key_k(GgufType::array, gguf_array(GgufType::u8, ~0ULL, "abc")), "key \"k\": what follows byte 49"},
      {"ArrayWhoseBytesOverflow", key_k(GgufType::array, gguf_array(GgufType::i64, std::uint64_t{1} << 61, "abc")),
       "key \"k\": what follows byte 49"},
      {"ArrayBehindEnd", key_k(GgufType::array, gguf_array(GgufType::f64, 12'000'000, "abc")),
       "ends at byte 52, inside key \"k\""},
      {"ManyStringsBehindEnd", key_k(GgufType::array, gguf_array(GgufType::string, 12'000'000, gguf_bytes(0ULL))),
       "ends at byte 57, inside key \"k\""},
      {"StringOfArrayBehindEnd", key_k(GgufType::array, gguf_array(GgufType::string, 1, gguf_bytes(1ULL))),
       "ends at byte 57, inside key \"k\""},
      {"AlignmentZero", with_alignment(0), "key \"general.alignment\": 0 is not a power of two from 8 to 1048576"},
      {"AlignmentFour", with_alignment(4), "key \"general.alignment\": 4 is not a power of two"},
      {"AlignmentOdd", with_alignment(33), "key \"general.alignment\": 33 is not a power of two"},
      {"AlignmentHuge", with_alignment(1U << 21), "key \"general.alignment\": 2097152 is not a power of two"},
      {"AlignmentNegative", GgufWriter().add("general.alignment", -32).bytes(), "-32 is not a power of two"},
      {"AlignmentIsText", GgufWriter().add("general.alignment", "32").bytes(),
       "key \"general.alignment\": it must be an integer"},
  };
}

std::vector<BadGguf> bad_tensors() {
  const std::string good = GgufWriter().add_zeros("v", {16}).add_zeros("w", {4}).bytes();
  return {
      {"TensorTwice", GgufWriter().add_zeros("w", {1}).add_zeros("w", {1}).bytes(), "tensor \"w\": it occurs twice"},
      {"NoName", GgufWriter().add_zeros("", {1}).bytes(), "tensor 1 of 1: its name is empty"},
      {"LongName", GgufWriter().add_zeros(std::string(257, 'w'), {1}).bytes(),
       "tensor 1 of 1: its name of 257 bytes is longer than the limit of 256"},
      {"NameNotUtf8", GgufWriter().add_zeros("\xc3", {1}).bytes(), "tensor 1 of 1: its name is not UTF-8"},
      {"FiveDimensions", tensor_w(kGgmlF32, {1, 1, 1, 1, 1}),
       "tensor \"w\": 5 dimensions are more than the limit of 4"},
      {"SizeZero", tensor_w(kGgmlF32, {4, 0}), "tensor \"w\": a dimension is 0"},
      {"HugeSize", tensor_w(kGgmlF32, {~0ULL}), "tensor \"w\": its sizes are too large"},
      {"ProductOverflows", tensor_w(kGgmlF32, {1ULL << 32, 1ULL << 31}), "tensor \"w\": its sizes are too large"},
      {"ProductOverflowsToZero", tensor_w(kGgmlF32, {1ULL << 32, 1ULL << 32}), "tensor \"w\": its sizes are too large"},
      {"BytesOverflow", tensor_w(kGgmlF32, {1ULL << 62}), "tensor \"w\": its sizes are too large"},
      {"NoWholeBlocks", tensor_w(kGgmlQ8_0, {33, 32}),
       "tensor \"w\": rows of 33 are not whole blocks of 32, as Q8_0 has them"},
      {"UnknownType", tensor_w(77, {32}), "tensor \"w\": type 77 is not supported: only F32, F16, ",
       ErrorCode::unsupported},
      {"KnownTypeThatIsNotSupported", tensor_w(15, {256}), "tensor \"w\": Q8_K is not supported: only F32, F16, ",
       ErrorCode::unsupported},
      {"Misaligned", tensor_w(kGgmlF32, {1}, 16), "tensor \"w\": its offset 16 is not a multiple of the alignment 32"},
      {"HugeOffset", tensor_w(kGgmlF32, {1}, ~31ULL), "tensor \"w\": its offset 18446744073709551584 is too large"},
      {"EndOverflows", tensor_w(kGgmlF32, {1ULL << 60}, 1ULL << 62),
       "tensor \"w\": its offset 4611686018427387904 is too"},
      {"BehindTheEnd", tensor_w(kGgmlF32, {1}, 64),
       "ends at byte 128, tensor \"w\" needs 132: the download is not complete?"},
      {"OneByteShort", good.substr(0, good.size() - 1), "ends at byte 175, tensor \"w\" needs 176"},
      {"Overlap",
       GgufWriter().add_zeros("v", {16}).add_tensor_at("w", kGgmlF32, {1}, 32).add_data(std::string(64, '\0')).bytes(),
       "tensor \"w\" overlaps tensor \"v\""},
      {"SamePlace",
       GgufWriter().add_zeros("v", {1}).add_tensor_at("w", kGgmlF32, {1}, 0).add_data(std::string(64, '\0')).bytes(),
       " overlaps tensor "},
  };
}

const auto kTestName = [](const auto& test) { return test.param.name; };
INSTANTIATE_TEST_SUITE_P(Starts, BadGgufFile, ::testing::ValuesIn(bad_starts()), kTestName);
INSTANTIATE_TEST_SUITE_P(Keys, BadGgufFile, ::testing::ValuesIn(bad_keys()), kTestName);
INSTANTIATE_TEST_SUITE_P(Tensors, BadGgufFile, ::testing::ValuesIn(bad_tensors()), kTestName);

TEST(GgufFile, AMissingFileIsRefusedByName) {
  const TemporaryFolder folder;
  const auto file = GgufFile::open(folder.path() / "none.gguf");
  ASSERT_FALSE(file);
  EXPECT_EQ(file.error().code, ErrorCode::io_failed);
  EXPECT_THAT(file.error().message, HasSubstr("none.gguf: cannot open"));
}

/// Three parts of a model, with one tensor each.
std::vector<GgufWriter> three_parts() {
  return {GgufWriter().add("general.architecture", "llama").add_tensor("a", kGgmlF32, {1}, "aaaa"),
          GgufWriter().add_tensor("b", kGgmlF32, {1}, "bbbb"), GgufWriter().add_tensor("c", kGgmlF32, {1}, "cccc")};
}

TEST(GgufFile, ASplitFileIsReadByTheNameOfItsFirstPart) {
  const TemporaryFolder folder;
  const auto path = write_gguf_parts(folder.path(), "my-model", three_parts());
  EXPECT_EQ(path.filename(), "my-model-00001-of-00003.gguf");
  const auto file = GgufFile::open(path);
  ASSERT_TRUE(file) << file.error().message;
  const GgufFile& gguf = **file;
  EXPECT_EQ(gguf.num_files(), 3U);
  EXPECT_EQ(gguf.path(), path.string());
  EXPECT_EQ(gguf.get<std::string_view>("general.architecture").value(), "llama");
  EXPECT_EQ(gguf.get<std::int64_t>("split.no").value(), 0);
  ASSERT_EQ(gguf.tensors().size(), 3U);
  EXPECT_EQ(text_of(gguf.tensor("a")->data), "aaaa");
  EXPECT_EQ(text_of(gguf.tensor("c")->data), "cccc");
  EXPECT_EQ(gguf.tensor("c")->file, 2U);
  EXPECT_THAT(gguf.path_of(*gguf.tensor("c")), EndsWith("my-model-00003-of-00003.gguf"));
  gguf.drop_pages(*gguf.tensor("c"));
  EXPECT_EQ(text_of(gguf.tensor("c")->data), "cccc");
}

TEST(GgufFile, EachPartHasAnAlignmentOfItsOwn) {
  const TemporaryFolder folder;
  const auto file = GgufFile::open(write_gguf_parts(
      folder.path(), "m",
      {GgufWriter().align(64), GgufWriter().align(8).add_tensor("b", kGgmlF32, {1}, "bbbb").add_zeros("c", {1})}));
  ASSERT_TRUE(file) << file.error().message;
  EXPECT_EQ(text_of((*file)->tensor("b")->data), "bbbb");
}

TEST(GgufFile, PartsThatWereMergedAgainAreOneFileUnderAnyName) {
  const TemporaryFolder folder;
  for (const std::uint16_t count : {std::uint16_t{0}, std::uint16_t{1}}) {
    const auto file = GgufFile::open(small_file()
                                         .add("split.no", std::uint16_t{0})
                                         .add("split.count", count)
                                         .add("split.tensors.count", 2)
                                         .write(folder.path() / "m.gguf"));
    ASSERT_TRUE(file) << file.error().message;
    EXPECT_EQ((*file)->num_files(), 1U);
  }
}

/// Expects that `path` is refused with these words.
void expect_refused(const std::filesystem::path& path, const std::string& words, ErrorCode code = ErrorCode::bad_file) {
  const auto file = GgufFile::open(path);
  ASSERT_FALSE(file) << words;
  EXPECT_EQ(file.error().code, code);
  EXPECT_THAT(file.error().message, AllOf(HasSubstr(words), Not(HasSubstr("\n"))));
}

TEST(GgufFile, AnotherPartThanTheFirstNamesTheFirst) {
  const TemporaryFolder folder;
  write_gguf_parts(folder.path(), "m", three_parts());
  expect_refused(folder.path() / gguf_part_name("m", 1, 3),
                 "m-00002-of-00003.gguf: split.no is that of part 2 of 3: open the first part, m-00001-of-00003.gguf");
}

TEST(GgufFile, PartsUnderOtherNamesAreRefused) {
  const TemporaryFolder folder;
  const auto first = write_gguf_parts(folder.path(), "m", three_parts());
  const auto renamed = folder.path() / "m.gguf";
  std::filesystem::rename(first, renamed);
  expect_refused(renamed, "m.gguf: split.count is 3: the name of the first part must end with -00001-of-00003.gguf");
  std::filesystem::rename(renamed, first);
  std::filesystem::copy_file(folder.path() / gguf_part_name("m", 1, 3), folder.path() / "other.gguf");
  expect_refused(folder.path() / "other.gguf",
                 "split.no is that of part 2 of 3: open the first part, NAME-00001-of-00003.gguf");
  std::filesystem::rename(folder.path() / "other.gguf", folder.path() / gguf_part_name("m", 2, 3));
  expect_refused(first,
                 "m-00003-of-00003.gguf: split.no is that of part 2 of 3, but the file name is that of part 3 of 3");
}

TEST(GgufFile, APartThatIsMissingOrCutShortIsNamed) {
  const TemporaryFolder folder;
  const auto first = write_gguf_parts(folder.path(), "m", three_parts());
  const auto second = folder.path() / gguf_part_name("m", 1, 3);
  std::filesystem::resize_file(second, std::filesystem::file_size(second) - 1);
  expect_refused(first, "m-00002-of-00003.gguf: ends at byte ");
  std::filesystem::remove(second);
  expect_refused(first, "m-00002-of-00003.gguf: cannot open: No such file or directory (part 2 of 3)",
                 ErrorCode::io_failed);
}

/// Writes two parts, the second with keys of its own making in place of what says that it is the second.
std::filesystem::path with_second_part(const TemporaryFolder& folder, const GgufWriter& second) {
  const auto first = write_gguf_parts(folder.path(), "m", {three_parts()[0], GgufWriter().add_zeros("b", {1})});
  second.write(folder.path() / gguf_part_name("m", 1, 2));
  return first;
}

TEST(GgufFile, PartsThatDoNotBelongTogetherAreRefused) {
  const TemporaryFolder folder;
  const auto part = [](std::uint16_t no, std::uint16_t count) {
    return GgufWriter().add("split.no", no).add("split.count", count);
  };
  const auto zeros_b = [&] { return part(1, 2).add_zeros("b", {1}); };
  EXPECT_TRUE(GgufFile::open(with_second_part(folder, zeros_b())));
  expect_refused(with_second_part(folder, small_file()),
                 "split.no is that of part 1 of 1, but the file name is that of part 2 of 2");
  expect_refused(with_second_part(folder, part(0, 2)),
                 "split.no is that of part 1 of 2, but the file name is that of part 2 of 2");
  expect_refused(with_second_part(folder, part(1, 3)),
                 "split.no is that of part 2 of 3, but the file name is that of part 2 of 2");
  expect_refused(with_second_part(folder, part(2, 2)), "split.no must be from 0 to 1, not 2");
  expect_refused(with_second_part(folder, part(1, 2)),
                 "m-00001-of-00002.gguf: split.tensors.count is 2, but the parts have 1 tensors");
  expect_refused(with_second_part(folder, part(1, 2).add_zeros("a", {1})),
                 "m-00002-of-00002.gguf: tensor \"a\" is in " + (folder.path() / "m-00001").string());
  expect_refused(with_second_part(folder, zeros_b().add("general.architecture", "qwen2")),
                 "m-00002-of-00002.gguf: key \"general.architecture\" differs from ");
  expect_refused(with_second_part(folder, zeros_b().add("split.tensors.count", 5)),
                 "m-00002-of-00002.gguf: key \"split.tensors.count\" differs from ");
}

TEST(GgufFile, WhatAFileSaysOfItsPartsIsChecked) {
  const TemporaryFolder folder;
  const auto path = folder.path() / gguf_part_name("m", 0, 2);
  const auto refuse = [&](const GgufWriter& file, const std::string& words) {
    expect_refused(file.write(path), words);
  };
  refuse(GgufWriter().add("split.count", 2), "split.no is missing in a file of 2 parts");
  refuse(GgufWriter().add("split.count", 2).add("split.no", -1), "split.no must be from 0 to 1, not -1");
  refuse(GgufWriter().add("split.count", -1), "split.count must be from 0 to 1024, not -1");
  refuse(GgufWriter().add("split.count", kMaxInt64), "split.count must be from 0 to 1024, not 9223372036854775807");
  refuse(GgufWriter().add("split.count", "2"), "split.count must be an integer, not a string");
  refuse(GgufWriter().add("split.no", 0.5), "split.no must be an integer, not a number");
  refuse(GgufWriter().add("split.tensors.count", true), "split.tensors.count must be an integer, not a boolean");
}

/// What must hold of every file that is believed, and of every refusal.
void expect_sound(const Result<GgufContents>& parsed, std::span<const std::byte> file) {
  if (!parsed) {
    ASSERT_TRUE(parsed.error().code == ErrorCode::bad_file || parsed.error().code == ErrorCode::unsupported);
    ASSERT_THAT(parsed.error().message, AllOf(StartsWith("model.gguf: "), Not(HasSubstr("\n"))));
    ASSERT_LT(parsed.error().message.size(), 600U);
    return;
  }
  for (const auto& [name, tensor] : parsed->tensors) {
    ASSERT_EQ(name, tensor.name);
    ASSERT_FALSE(tensor.shape.empty());
    ASSERT_GT(tensor.elements(), 0);
    ASSERT_GE(tensor.data.data(), file.data());
    ASSERT_LE(tensor.data.data() + tensor.data.size(), file.data() + file.size());
  }
}

TEST(GgufFile, AFileCutShortAnywhereIsRefused) {
  const std::string whole = small_file().bytes();
  ASSERT_TRUE(contents_of(whole));
  for (std::size_t size = 0; size < whole.size(); ++size) {
    // Of just this size, so that a sanitizer sees a read behind it.
    const std::vector<char> file(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(size));
    const auto bytes = std::as_bytes(std::span(file));
    const auto parsed = parse_gguf(bytes, "model.gguf");
    ASSERT_FALSE(parsed) << size;
    expect_sound(parsed, bytes);
    if (size < 4) continue;
    ASSERT_THAT(parsed.error().message,
                AllOf(HasSubstr("ends at byte " + std::to_string(size)), EndsWith(": the download is not complete?")));
  }
}

TEST(GgufFile, RandomDamageIsEitherRefusedOrHarmless) {
  const std::string seed_file = small_file().bytes();
  std::mt19937 random(20240501);
  const auto below = [&](std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random); };
  constexpr std::size_t kRounds = 20000;
  std::size_t refused = 0;
  for (std::size_t round = 0; round < kRounds; ++round) {
    std::string file = seed_file;
    for (std::size_t edits = 1 + below(4); edits > 0 && !file.empty(); --edits) {
      const std::size_t at = below(file.size());
      switch (below(4)) {
        case 0:
          file[at] = static_cast<char>(below(256));
          break;
        case 1:
          file[at] = static_cast<char>(file[at] ^ (1 << below(8)));
          break;
        case 2:
          file.erase(at, 1 + below(8));
          break;
        default:
          file.insert(at, file.substr(below(file.size()), 1 + below(16)));
          break;
      }
    }
    const std::vector<char> exact(file.begin(), file.end());
    const auto bytes = std::as_bytes(std::span(exact));
    const auto parsed = parse_gguf(bytes, "model.gguf");
    ASSERT_NO_FATAL_FAILURE(expect_sound(parsed, bytes));
    if (!parsed) ++refused;
  }
  EXPECT_GT(refused, kRounds / 4);
  EXPECT_LT(refused, kRounds);
}

}  // namespace
}  // namespace pagoda::io
