#include "io/journal/journal_lock.hpp"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/journal/journal_file.hpp"
#include "tests/support/temporary_folder.hpp"

namespace pagoda::io {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kBytes = 1 << 20;

class JournalLockTest : public ::testing::Test {
 protected:
  /// Whether a file that is mapped into this process has the name.
  static bool is_mapped(const std::string& path) {
    std::ifstream maps("/proc/self/maps");
    for (std::string line; std::getline(maps, line);) {
      if (line.ends_with(" " + path)) return true;
    }
    return false;
  }

  test::TemporaryFolder folder_;
  std::string path_ = (folder_.path() / "journal").string();
};

TEST_F(JournalLockTest, ASecondServerIsRefusedWithTheProcessOfTheFirst) {
  auto first = JournalFile::create(path_, kBytes, "first");
  ASSERT_TRUE(first) << first.error().message;
  (*first)->append(1, std::as_bytes(std::span("live", 4)));
  const auto refuse = [&](const Error& error, const std::string& param) {
    EXPECT_EQ(error.code, ErrorCode::bad_config);
    EXPECT_EQ(error.param, param);
    EXPECT_THAT(error.message, HasSubstr(path_ + " is in use by process " + std::to_string(::getpid()) + ";"));
  };
  for (const bool later : {false, true}) {
    const auto second = JournalFile::create(path_, kBytes, "second", {.takes_place_later = later});
    ASSERT_FALSE(second);
    refuse(second.error(), "journal");
  }
  const auto recovery = JournalLock::take(path_, "recover");
  ASSERT_FALSE(recovery);
  refuse(recovery.error(), "recover");
  EXPECT_FALSE(std::filesystem::exists(path_ + ".1")) << "the live server's journal was moved";
  EXPECT_EQ(read_journal(path_)->segments.at(0).records.size(), 2U);
  first->reset();
  EXPECT_FALSE(std::filesystem::exists(path_ + JournalLock::kSuffix));
  EXPECT_TRUE(JournalFile::create(path_, kBytes, "second"));
}

TEST_F(JournalLockTest, AProcessThatIsKilledLeavesNoLock) {
  const pid_t child = fork();
  if (child == 0) {
    const auto lock = JournalLock::take(path_);
    kill(getpid(), SIGKILL);
  }
  ASSERT_EQ(waitpid(child, nullptr, 0), child);
  EXPECT_TRUE(std::filesystem::exists(path_ + JournalLock::kSuffix));
  EXPECT_FALSE(JournalLock::is_held(path_));
  const auto lock = JournalLock::take(path_);
  ASSERT_TRUE(lock) << lock.error().message;
  EXPECT_TRUE(JournalLock::is_held(path_));
}

TEST_F(JournalLockTest, GoesWithTheJournalFromRecoveryToItsPlace) {
  auto lock = JournalLock::take(path_, "recover");
  ASSERT_TRUE(lock);
  auto journal = JournalFile::create(path_, kBytes, "", {.takes_place_later = true, .lock = *lock});
  ASSERT_TRUE(journal) << journal.error().message;
  *lock = nullptr;
  EXPECT_FALSE(JournalFile::create(path_, kBytes, ""));
  ASSERT_TRUE((*journal)->take_place());
  EXPECT_TRUE(JournalLock::is_held(path_));
  journal->reset();
  EXPECT_FALSE(JournalLock::is_held(path_));
}

TEST_F(JournalLockTest, AnEngineWaitsForOneOfItsOwnProcessThatIsEnding) {
  auto lock = JournalLock::take(path_);
  ASSERT_TRUE(lock);
  std::thread ending([held = std::move(*lock)]() mutable {
    std::this_thread::sleep_for(std::chrono::milliseconds(200));
    held.reset();
  });
  EXPECT_TRUE(JournalLock::take(path_, "journal", 60'000));
  ending.join();
}

TEST_F(JournalLockTest, CannotBeMadeWhereThereIsNoFolder) {
  const auto lock = JournalLock::take((folder_.path() / "no" / "folder").string());
  ASSERT_FALSE(lock);
  EXPECT_EQ(lock.error().code, ErrorCode::bad_config);
  EXPECT_THAT(lock.error().message, HasSubstr("cannot make"));
}

TEST_F(JournalLockTest, DoesNotEmptyTheFileThatALinkLeadsTo) {
  const auto other = folder_.path() / "other";
  std::ofstream(other) << "text";
  std::filesystem::create_symlink(other, path_ + JournalLock::kSuffix);
  const auto lock = JournalLock::take(path_);
  ASSERT_FALSE(lock);
  EXPECT_EQ(lock.error().code, ErrorCode::bad_config);
  EXPECT_EQ(std::filesystem::file_size(other), 4U);
}

TEST_F(JournalLockTest, AJournalIsMappedToBeReadAndCopiedWhileAServerWritesIt) {
  auto journal = JournalFile::create(path_, kBytes, "");
  ASSERT_TRUE(journal);
  {
    const auto live = read_journal(path_);
    const std::vector<std::byte> before(live->bytes.begin(), live->bytes.end());
    (*journal)->append(1, std::as_bytes(std::span("more", 4)));
    EXPECT_TRUE(std::ranges::equal(live->bytes, before));
  }
  journal->reset();
  EXPECT_FALSE(is_mapped(path_));
  {
    const auto contents = read_journal(path_);
    ASSERT_TRUE(contents);
    EXPECT_TRUE(is_mapped(path_));
    EXPECT_EQ(contents->segments.at(0).records.size(), 2U);
  }
  EXPECT_FALSE(is_mapped(path_));
}

TEST_F(JournalLockTest, WhoHasTheLockMapsTheJournalToReadIt) {
  ASSERT_TRUE(JournalFile::create(path_, kBytes, ""));
  const auto lock = JournalLock::take(path_, "recover");
  ASSERT_TRUE(lock);
  const auto contents = read_journal(path_, Records::of_resumable_requests, lock->get());
  ASSERT_TRUE(contents);
  EXPECT_TRUE(is_mapped(path_));
}

TEST_F(JournalLockTest, OfAJournalInAReadOnlyFolderIsNotNeededToReadIt) {
  std::filesystem::permissions(folder_.path(), static_cast<std::filesystem::perms>(0555));
  const pid_t child = fork();
  if (child == 0) {
    constexpr uid_t kNobody = 65534;
    if (::geteuid() == 0 && ::seteuid(kNobody) != 0) _exit(3);
    const auto lock = JournalLock::take_to_read(path_, "recover");
    if (!lock || *lock != nullptr) _exit(1);
    _exit(JournalLock::take(path_, "recover") ? 2 : 0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  std::filesystem::permissions(folder_.path(), static_cast<std::filesystem::perms>(0755));
  const auto held = JournalLock::take(path_);
  ASSERT_TRUE(held);
  const auto second = JournalLock::take_to_read(path_, "recover");
  ASSERT_FALSE(second);
  EXPECT_THAT(second.error().message, HasSubstr("is in use"));
}

}  // namespace
}  // namespace pagoda::io
