#include "apps/batch/line_reader.hpp"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

namespace pagoda::apps::batch {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class LineReaderTest : public testing::Test {
 protected:
  ~LineReaderTest() override { std::filesystem::remove(path_); }

  /// Each line with its number; "!" behind one that is too long.
  std::vector<std::string> lines_of(const std::string& text, std::size_t max_bytes = 100) {
    std::ofstream(path_, std::ios::binary) << text;
    auto reader = LineReader::open(path_, max_bytes);
    EXPECT_TRUE(reader.has_value());
    std::vector<std::string> lines;
    for (LineReader::Line line; reader->wait_for_next(line);) {
      lines.push_back(std::to_string(line.number) + ":" + line.text + (line.is_too_long ? "!" : ""));
    }
    EXPECT_EQ(reader->error(), 0);
    return lines;
  }

  std::string path_ = testing::TempDir() + "line_reader_test_" + std::to_string(::getpid());
};

TEST_F(LineReaderTest, SkipsBlankLinesAndCountsThem) {
  EXPECT_THAT(lines_of("a\n\n \t\r\nb\r\nc"), ElementsAre("1:a", "4:b", "5:c"));
  EXPECT_THAT(lines_of(""), IsEmpty());
  EXPECT_THAT(lines_of("\n\n"), IsEmpty());
}

TEST_F(LineReaderTest, CutsLongLinesOffAndGoesOnBehindThem) {
  EXPECT_THAT(lines_of("abcd\nabcde\nf", 4), ElementsAre("1:abcd", "2:abcd!", "3:f"));
  const std::string huge(3 << 20, 'x');
  EXPECT_THAT(lines_of(huge + "\nb\n" + huge, 2), ElementsAre("1:xx!", "2:b", "3:xx!"));
}

TEST_F(LineReaderTest, LinesLongerThanAReadAreWhole) {
  const std::string large(1 << 20, 'y');
  EXPECT_THAT(lines_of(large + "\nb\n", 2 << 20), ElementsAre("1:" + large, "2:b"));
}

TEST_F(LineReaderTest, GivesALineOnceMore) {
  std::ofstream(path_) << "a\nb\n";
  auto reader = LineReader::open(path_, 10);
  ASSERT_TRUE(reader.has_value());
  LineReader::Line line;
  ASSERT_TRUE(reader->wait_for_next(line));
  reader->put_back(line);
  ASSERT_TRUE(reader->wait_for_next(line));
  EXPECT_EQ(line.text, "a");
  ASSERT_TRUE(reader->wait_for_next(line));
  EXPECT_EQ(line.text, "b");
  EXPECT_FALSE(reader->wait_for_next(line));
}

TEST_F(LineReaderTest, NamesAFileThatIsNotThere) {
  const auto reader = LineReader::open("/no/such/file", 10);
  ASSERT_FALSE(reader.has_value());
  EXPECT_EQ(reader.error().code, ErrorCode::io_failed);
}

}  // namespace
}  // namespace pagoda::apps::batch
