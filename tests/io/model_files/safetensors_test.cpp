#include "io/model_files/safetensors.hpp"

#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/safetensors_file.hpp"

namespace pagoda::io {
namespace {

using test::bytes_of;
using test::safetensors_file;
using ::testing::HasSubstr;
using ::testing::Not;

Result<SafetensorsHeader> header_of(const std::string& file) {
  return parse_safetensors(bytes_of(file), "model.st");
}

/// A header of one tensor "w" with the given value.
std::string tensor_w(const std::string& value) {
  return "{\"w\":" + value + "}";
}

TEST(Safetensors, ATensorIsDescribedByDtypeShapeAndItsPlaceInTheFile) {
  const std::string header =
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"BF16","shape":[3],"data_offsets":[16,22]},)"
      R"("a":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}}   )";
  const auto parsed = header_of(safetensors_file(header, 22));
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_EQ(parsed->metadata.at("format"), "pt");
  ASSERT_EQ(parsed->tensors.size(), 2U);
  const auto& b = parsed->tensors.at("b");
  EXPECT_EQ(b.dtype, "BF16");
  EXPECT_EQ(b.shape, std::vector<std::int64_t>{3});
  EXPECT_EQ(b.begin, 8 + header.size() + 16);
  EXPECT_EQ(b.end, 8 + header.size() + 22);
}

TEST(Safetensors, EmptyTensorsScalarsAndUnusualDtypesAreRead) {
  const auto parsed = header_of(safetensors_file(
      R"({"e":{"dtype":"F32","shape":[0,7],"data_offsets":[0,0]},"s":{"dtype":"I64","shape":[],"data_offsets":[0,8]},)"
      R"("q":{"dtype":"F4","shape":[4],"data_offsets":[8,10]}})",
      10));
  ASSERT_TRUE(parsed) << parsed.error().message;
  EXPECT_TRUE(parsed->tensors.at("s").shape.empty());
}

TEST(Safetensors, AFileWithoutTensorsIsRead) {
  EXPECT_TRUE(header_of(safetensors_file("{}", 0)));
}

struct BadFile {
  std::string name;
  std::string file;
  std::string message;
};

void PrintTo(const BadFile& bad, std::ostream* out) {
  *out << bad.name;
}

class BadSafetensors : public ::testing::TestWithParam<BadFile> {};

TEST_P(BadSafetensors, IsRefusedWithOneLineThatNamesFileTensorAndReason) {
  const auto parsed = header_of(GetParam().file);
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error().code, ErrorCode::bad_file);
  EXPECT_THAT(parsed.error().message, HasSubstr(GetParam().message));
  EXPECT_THAT(parsed.error().message, ::testing::StartsWith("model.st: "));
  EXPECT_THAT(parsed.error().message, Not(HasSubstr("\n")));
}

std::vector<BadFile> bad_safetensors() {
  const std::string good = R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})";
  std::string huge_length = safetensors_file("{}", 0);
  huge_length[7] = '\x7f';
  return {
      {"Empty", "", "0 bytes are too few for its header length"},
      {"SevenBytes", "1234567", "7 bytes are too few"},
      {"HeaderLongerThanFile", safetensors_file("{}", 0).substr(0, 9),
       "the declared length of the header is 2 bytes, but only 1 bytes follow"},
      {"HugeHeaderLength", huge_length, "but only 2 bytes follow: truncated, or not a safetensors file"},
      {"EmptyHeader", safetensors_file("", 4), "the header is not a JSON object"},
      {"HeaderIsArray", safetensors_file("[]", 0), "the header is not a JSON object"},
      {"HeaderStartsWithSpace", safetensors_file(" {}", 0), "the header is not a JSON object"},
      {"JsonCutShort", safetensors_file(R"({"w":{"dtype":)", 0), "not valid JSON at byte"},
      {"TextBehindJson", safetensors_file("{}x", 0), "not valid JSON at byte 3"},
      {"InvalidUtf8", safetensors_file("{\"\xff\":{}}", 0), "not valid JSON at byte"},
      {"TensorIsNumber", safetensors_file(tensor_w("3"), 0), "tensor \"w\" must not be a number"},
      {"TensorIsArray", safetensors_file(tensor_w("[]"), 0), "tensor \"w\" must not be an array"},
      {"MetadataIsNumber", safetensors_file(R"({"__metadata__":1})", 0), "__metadata__ must not be a number"},
      {"MetadataValueIsNumber", safetensors_file(R"({"__metadata__":{"a":1}})", 0),
       "__metadata__ \"a\" must not be a number"},
      {"MetadataTwice", safetensors_file(R"({"__metadata__":{},"__metadata__":{}})", 0), "\"__metadata__\" twice"},
      {"NestedDeep", safetensors_file(tensor_w(R"({"shape":[[[[1]]]]})"), 0),
       "an entry of \"shape\" must not be an array"},
      {"NestedVeryDeep", safetensors_file(tensor_w(std::string(100000, '[')), 0), "tensor \"w\" must not be an array"},
      {"UnknownKey", safetensors_file(tensor_w(R"({"dtypes":"F32"})"), 0), "\"dtypes\" is not a key of a tensor"},
      {"KeyTwice", safetensors_file(tensor_w(R"({"dtype":"F32","dtype":"F16"})"), 0),
       "tensor \"w\": \"dtype\" is given twice"},
      {"NameTwice", safetensors_file("{\"w\":" + good + ",\"w\":" + good + "}", 8),
       "tensor \"w\" is in the header twice"},
      {"NoDtype", safetensors_file(tensor_w(R"({"shape":[2],"data_offsets":[0,8]})"), 8), "\"dtype\" is missing"},
      {"NoShape", safetensors_file(tensor_w(R"({"dtype":"F32","data_offsets":[0,8]})"), 8), "\"shape\" is missing"},
      {"NoOffsets", safetensors_file(tensor_w(R"({"dtype":"F32","shape":[2]})"), 8), "\"data_offsets\" is missing"},
      {"UnknownDtype", safetensors_file(tensor_w(R"({"dtype":"F31","shape":[2],"data_offsets":[0,8]})"), 8),
       "tensor \"w\": unknown dtype \"F31\""},
      {"DtypeIsNumber", safetensors_file(tensor_w(R"({"dtype":32})"), 0),
       "tensor \"w\": \"dtype\" must not be a number"},
      {"NegativeShape", safetensors_file(tensor_w(R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})"), 8),
       "an entry of \"shape\" must not be a negative number"},
      {"FractionalShape", safetensors_file(tensor_w(R"({"dtype":"F32","shape":[2.0],"data_offsets":[0,8]})"), 8),
       "an entry of \"shape\" must not be a number that is not an integer"},
      {"ShapeOverflow",
       safetensors_file(tensor_w(R"({"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,8]})"), 8),
       "tensor \"w\": the shape is too large"},
      {"ShapeOverflowsTo64Bits",
       safetensors_file(tensor_w(R"({"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,8]})"), 8),
       "tensor \"w\": the shape is too large"},
      {"RankTooHigh",
       safetensors_file(tensor_w(R"({"dtype":"F32","shape":[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1],"data_offsets":[0,4]})"),
                        4),
       "has more than 16 entries"},
      {"HalfAByte", safetensors_file(tensor_w(R"({"dtype":"F4","shape":[3],"data_offsets":[0,1]})"), 1),
       "not a whole number of bytes"},
      {"OneOffset", safetensors_file(tensor_w(R"({"dtype":"F32","shape":[2],"data_offsets":[8]})"), 8),
       "\"data_offsets\" must be [begin, end]"},
      {"OffsetsBackwards", safetensors_file(tensor_w(R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})"), 8),
       "data_offsets [8, 0] end before they begin"},
      {"OutOfRange", safetensors_file(tensor_w(R"({"dtype":"F32","shape":[4],"data_offsets":[0,16]})"), 8),
       "tensor \"w\": data_offsets [0, 16] reach beyond the end of the file, which holds 8 bytes of data"},
      {"SizeMismatch", safetensors_file(tensor_w(R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})"), 8),
       "data_offsets [0, 8] hold 8 bytes, but shape and dtype need 12"},
      {"Overlap", safetensors_file("{\"w\":" + good + R"(,"x":{"dtype":"F32","shape":[2],"data_offsets":[4,12]}})", 12),
       "tensor \"x\" overlaps tensor \"w\""},
      {"SamePlace", safetensors_file("{\"w\":" + good + ",\"x\":" + good + "}", 8),
       "tensor \"x\" overlaps tensor \"w\""},
      {"Hole", safetensors_file("{\"w\":" + good + R"(,"x":{"dtype":"F32","shape":[2],"data_offsets":[12,20]}})", 20),
       "4 bytes before tensor \"x\" belong to no tensor"},
      {"DataBehindLastTensor", safetensors_file(tensor_w(good), 11),
       "3 bytes at the end of the file belong to no tensor"},
      {"ControlCharactersInName", safetensors_file(R"({"a\nb":3})", 0), "tensor \"a\\x0ab\" must not be a number"},
  };
}

INSTANTIATE_TEST_SUITE_P(Table, BadSafetensors, ::testing::ValuesIn(bad_safetensors()),
                         [](const auto& test) { return test.param.name; });

/// What must hold of every header that is believed, whatever the file was.
void expect_sound(const SafetensorsHeader& header, std::size_t file_bytes) {
  for (const auto& [name, entry] : header.tensors) {
    ASSERT_LE(entry.begin, entry.end) << name;
    ASSERT_LE(entry.end, file_bytes) << name;
    for (const auto dimension : entry.shape) ASSERT_GE(dimension, 0) << name;
  }
}

TEST(Safetensors, RandomDamageIsEitherRefusedOrHarmless) {
  const std::string seed_file = safetensors_file(
      R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
      R"("b":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]},"c":{"dtype":"F16","shape":[1,1],"data_offsets":[32,34]}})",
      34);
  const std::string alphabet =
      "{}[]\",:0123456789-.eE \\u\0\xff"
      "F";
  std::mt19937 random(20240501);
  const auto below = [&](std::size_t n) { return std::uniform_int_distribution<std::size_t>(0, n - 1)(random); };
  int refused = 0;
  for (int round = 0; round < 20000; ++round) {
    std::string file = seed_file;
    for (std::size_t edits = 1 + below(4); edits > 0 && !file.empty(); --edits) {
      const std::size_t at = below(file.size());
      switch (below(4)) {
        case 0:
          file[at] = alphabet[below(alphabet.size())];
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
    const auto parsed = header_of(file);
    if (parsed) {
      expect_sound(*parsed, file.size());
    } else {
      ++refused;
      ASSERT_EQ(parsed.error().code, ErrorCode::bad_file);
      ASSERT_EQ(parsed.error().message.find('\n'), std::string::npos) << parsed.error().message;
      ASSERT_LT(parsed.error().message.size(), 600U);
    }
  }
  EXPECT_GT(refused, 10000);
}

}  // namespace
}  // namespace pagoda::io
