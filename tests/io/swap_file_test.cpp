#include "io/swap_file.hpp"

#include <cstring>
#include <filesystem>

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.hpp"

namespace pagoda::io {
namespace {

TEST(SwapFile, HoldsWhatIsWrittenAndLeavesNoName) {
  const test::TemporaryFolder folder;
  constexpr std::size_t kBytes = 1 << 20;
  const auto buffer = map_swap_file(folder.path().string(), kBytes);
  ASSERT_TRUE(buffer) << buffer.error().message;
  ASSERT_EQ(buffer->bytes(), kBytes);
  EXPECT_EQ(buffer->as<char>()[kBytes - 1], 0);
  std::memset(buffer->data(), 7, kBytes);
  EXPECT_EQ(buffer->as<char>()[kBytes - 1], 7);
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(SwapFile, AFolderThatIsNotThereIsNamedWithItsKey) {
  const auto buffer = map_swap_file("/no/such/folder", 4096);
  ASSERT_FALSE(buffer);
  EXPECT_EQ(buffer.error().code, ErrorCode::bad_config);
  EXPECT_EQ(buffer.error().param, "swap_dir");
  EXPECT_NE(buffer.error().message.find("swap_dir"), std::string::npos);
  EXPECT_NE(buffer.error().message.find("/no/such/folder"), std::string::npos);
}

TEST(SwapFile, ADiskThatIsTooSmallSaysWhatToLower) {
  const test::TemporaryFolder folder;
  const auto buffer = map_swap_file(folder.path().string(), std::int64_t{1} << 60);
  ASSERT_FALSE(buffer);
  EXPECT_EQ(buffer.error().param, "swap_dir");
  EXPECT_NE(buffer.error().message.find(folder.path().string()), std::string::npos) << buffer.error().message;
}

}  // namespace
}  // namespace pagoda::io
