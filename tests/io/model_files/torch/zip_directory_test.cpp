#include "io/model_files/torch/zip_directory.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/safetensors_file.hpp"
#include "tests/support/torch_file.hpp"

namespace pagoda::io {
namespace {

using test::bytes_of;
using test::little;
using test::zip_file;
using ::testing::HasSubstr;
using ::testing::Not;

/// Replaces bytes at `at` from the first place of `anchor` on.
std::string patched(std::string file, std::string_view anchor, std::size_t at, const std::string& bytes) {
  return file.replace(file.find(anchor) + at, bytes.size(), bytes);
}

constexpr std::string_view kLocal = "PK\x03\x04";
constexpr std::string_view kCentral = "PK\x01\x02";
constexpr std::string_view kEnd = "PK\x05\x06";

std::string two_entries() {
  return zip_file({{"a", "first"}, {"bb", "second one"}});
}

/// The same file with a zip64 end, and the old end saying "see there".
std::string with_zip64_end(const std::string& file, std::uint64_t entries) {
  const auto directory = file.find(kCentral);
  const auto end = file.find(kEnd);
  return file.substr(0, end) + "PK\x06\x06" + little(44, 8) + little(0x2d002d, 4) + little(0, 8) + little(entries, 8) +
         little(entries, 8) + little(end - directory, 8) + little(directory, 8) + "PK\x06\x07" + little(0, 4) +
         little(end, 8) + little(1, 4) + "PK\x05\x06" + little(0, 4) + little(0xffffffff, 4) + little(0xffffffff, 4) +
         little(0xffffffff, 4) + little(0, 2);
}

TEST(ZipDirectory, EntriesAreFoundWhereTheyLie) {
  const auto file = zip_file({{"a", "first"}, {"empty", ""}, {"folder/bb", "second one", 0, 1U << 11}}, 64);
  const auto directory = parse_zip(bytes_of(file), "w.bin");
  ASSERT_TRUE(directory) << directory.error().message;
  ASSERT_EQ(directory->size(), 3U);
  const auto entry = directory->at("folder/bb");
  EXPECT_EQ(file.substr(entry.begin, entry.end - entry.begin), "second one");
  EXPECT_EQ(entry.begin % 64, 0U);
  EXPECT_EQ(directory->at("empty").begin, directory->at("empty").end);
}

TEST(ZipDirectory, AZip64EndIsRead) {
  const auto file = with_zip64_end(two_entries(), 2);
  const auto directory = parse_zip(bytes_of(file), "w.bin");
  ASSERT_TRUE(directory) << directory.error().message;
  EXPECT_EQ(file.substr(directory->at("a").begin, 5), "first");
}

TEST(ZipDirectory, SizesOfAnEntryMayStandInItsZip64Field) {
  const std::string name = "big";
  const std::string extra = little(1, 2) + little(24, 2) + little(4, 8) + little(4, 8) + little(0, 8);
  const std::string local = std::string(kLocal) + little(45, 2) + little(0, 12) + little(0xffffffff, 4) +
                            little(0xffffffff, 4) + little(3, 2) + little(20, 2) + name + little(1, 2) + little(16, 2) +
                            little(4, 8) + little(4, 8) + "data";
  const std::string central = std::string(kCentral) + little(45, 4) + little(0, 12) + little(0xffffffff, 4) +
                              little(0xffffffff, 4) + little(3, 2) + little(28, 2) + little(0, 10) +
                              little(0xffffffff, 4) + name + extra;
  const std::string end = std::string(kEnd) + little(0, 4) + little(1, 2) + little(1, 2) + little(central.size(), 4) +
                          little(local.size(), 4) + little(0, 2);
  const std::string file = local + central + end;
  const auto directory = parse_zip(bytes_of(file), "w.bin");
  ASSERT_TRUE(directory) << directory.error().message;
  EXPECT_EQ(file.substr(directory->at("big").begin, 4), "data");

  std::string without = file;
  without[local.size() + 46 + 3] = '\x02';  // the central field is of another kind now
  EXPECT_THAT(parse_zip(bytes_of(without), "w.bin").error().message, HasSubstr("its zip64 sizes are missing"));
}

TEST(ZipDirectory, SizesMayFollowTheEntry) {
  auto file = zip_file({{"a", "first", 0, 8}});
  file = patched(file, kLocal, 18, little(0, 8));
  EXPECT_TRUE(parse_zip(bytes_of(file), "w.bin"));
}

struct BadZip {
  std::string name;
  std::string file;
  std::string message;
  ErrorCode code = ErrorCode::bad_file;
};

void PrintTo(const BadZip& bad, std::ostream* out) {
  *out << bad.name;
}

class BadZips : public ::testing::TestWithParam<BadZip> {};

TEST_P(BadZips, AreRefusedWithOneLineThatNamesFileAndEntry) {
  const auto parsed = parse_zip(bytes_of(GetParam().file), "w.bin");
  ASSERT_FALSE(parsed);
  EXPECT_EQ(parsed.error().code, GetParam().code);
  EXPECT_THAT(parsed.error().message, HasSubstr(GetParam().message));
  EXPECT_THAT(parsed.error().message, ::testing::StartsWith("w.bin: "));
  EXPECT_THAT(parsed.error().message, Not(HasSubstr("\n")));
}

std::vector<BadZip> bad_zips() {
  const auto good = two_entries();
  // An entry "c" within another.
  const auto hidden =
      std::string(kLocal) + little(0, 14) + little(1, 4) + little(1, 4) + little(1, 2) + little(0, 2) + "c!";
  const auto wide = with_zip64_end(good, 2);
  return {
      {"Empty", "", "no zip directory at the end"},
      {"Text", "this is a text and nothing else",
       "no zip directory at the end: truncated, or not a file of torch.save"},
      {"Comment", good + "!", "no zip directory at the end"},
      {"DeclaredComment", patched(good, kEnd, 20, little(1, 2)), "truncated or ends with a comment"},
      {"Part", patched(good, kEnd, 4, little(1, 2)), "is a part of several"},
      {"BytesBefore", "x" + good, "the zip directory is not at its recorded position"},
      {"DirectoryOffset", patched(good, kEnd, 16, little(7, 4)), "the zip directory is not at its recorded position"},
      {"DirectoryBeyondTheEnd", patched(good, kEnd, 16, little(0xfffffff0, 4)), "not at its recorded position"},
      {"TooFewEntries", patched(good, kEnd, 10, little(1, 2)), "the zip directory is longer than its entries"},
      {"TooManyEntries", patched(good, kEnd, 10, little(3, 2)), "the zip directory is damaged at byte"},
      {"EntryLimit", patched(wide, "PK\x06\x06", 32, little(1000001, 8)),
       "1000001 zip entries are more than the limit"},
      {"Zip64Elsewhere", patched(wide, "PK\x06\x07", 8, little(3, 8)),
       "the end of the zip64 directory is not at its recorded position"},
      {"EndsDisagree", patched(wide, kEnd, 10, little(1, 2)), "ends of the zip directory contradict each other"},
      {"CentralNameTooLong", patched(good, kCentral, 28, little(0xffff, 2)), "the zip directory is damaged at byte"},
      {"CentralSignature", patched(good, kCentral, 0, "QK"), "the zip directory is damaged at byte"},
      {"Twice", zip_file({{"a", "1"}, {"a", "2"}}), "entry \"a\" is in the zip directory twice"},
      {"Deflated", zip_file({{"w/data/0", "xyz", 8}}), "entry \"w/data/0\" is compressed", ErrorCode::unsupported},
      {"Encrypted", zip_file({{"a", "xyz", 0, 1}}), "entry \"a\" is encrypted", ErrorCode::unsupported},
      {"SizesDisagree", patched(good, kCentral, 20, little(4, 4)),
       "its stored size differs from the size of its content"},
      {"LocalName", patched(good, kLocal, 30, "b"), "entry \"a\": its header contradicts the zip directory"},
      {"LocalSize", patched(good, kLocal, 22, little(6, 4)), "entry \"a\": its header contradicts the zip directory"},
      {"LocalMethod", patched(good, kLocal, 8, little(8, 2)), "entry \"a\": its header contradicts the zip directory"},
      {"LocalFlags", patched(good, kLocal, 6, little(1, 2)), "entry \"a\": its header contradicts the zip directory"},
      {"NoSizesAndNoPromise", patched(good, kLocal, 18, little(0, 8)), "its header contradicts the zip directory"},
      {"LocalExtraTooLong", patched(good, kLocal, 28, little(0xffff, 2)), "reaches beyond the end of the file's"},
      {"LocalElsewhere", patched(good, kCentral, 42, little(3, 4)),
       "entry \"a\": there is no header at its recorded position"},
      {"LocalOutside", patched(good, kCentral, 42, little(0x7fffffff, 4)), "its header lies outside"},
      {"Overlap", patched(zip_file({{"a", hidden}, {"c", "!"}}), kCentral, 46 + 1 + 42, little(30 + 1 + 4, 4)),
       "entry \"c\" overlaps entry \"a\""},
  };
}

INSTANTIATE_TEST_SUITE_P(Table, BadZips, ::testing::ValuesIn(bad_zips()),
                         [](const auto& test) { return test.param.name; });

}  // namespace
}  // namespace pagoda::io
