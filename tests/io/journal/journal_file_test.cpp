#include "io/journal/journal_file.hpp"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <random>
#include <sstream>
#include <string>
#include <thread>
#include <utility>

#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "io/version.hpp"
#include "tests/support/temporary_folder.hpp"

namespace pagoda::io {
namespace {

constexpr std::int64_t kSmall = 4 * (64 << 10) + 4096;

std::vector<std::byte> record_of(const std::string& text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

std::string record_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::vector<std::byte> bytes_of(const std::string& path) {
  const auto contents = read_journal(path);
  EXPECT_TRUE(contents) << contents.error().message;
  return {contents->bytes.begin(), contents->bytes.end()};
}

class JournalFileTest : public ::testing::Test {
 protected:
  std::shared_ptr<JournalFile> make(std::int64_t bytes = kSmall) {
    auto journal = JournalFile::create(path_, bytes, "the setup");
    EXPECT_TRUE(journal) << journal.error().message;
    return *journal;
  }
  /// Without the record that each segment begins with.
  static std::vector<std::string> texts(const JournalContents::Segment& segment) {
    std::vector<std::string> texts;
    for (std::size_t i = 1; i < segment.records.size(); ++i) texts.push_back(record_text(segment.records[i]));
    return texts;
  }

  test::TemporaryFolder folder_;
  std::string path_ = (folder_.path() / "journal").string();
};

TEST_F(JournalFileTest, GivesBackWhatWasAppendedWhileItIsOpenAndLater) {
  auto journal = make();
  EXPECT_TRUE(journal->append(1, record_of("one")));
  EXPECT_TRUE(journal->append(1, record_of("a second record")));
  EXPECT_FALSE(journal->append(2, record_of("of a segment that has not begun")));
  for (int i = 0; i < 2; ++i) {
    const auto contents = read_journal(path_);
    ASSERT_TRUE(contents) << contents.error().message;
    EXPECT_EQ(contents->version, version());
    EXPECT_EQ(contents->num_damaged, 0);
    ASSERT_EQ(contents->segments.size(), 1U);
    EXPECT_EQ(contents->segments[0].number, 1U);
    EXPECT_NE(record_text(contents->segments[0].records.at(0)).find("the setup"), std::string::npos);
    EXPECT_EQ(texts(contents->segments[0]), (std::vector<std::string>{"one", "a second record"}));
    journal.reset();
  }
}

TEST_F(JournalFileTest, KeepsTheLastSegmentsInAFileOfFixedSize) {
  const auto journal = make();
  const auto size = std::filesystem::file_size(path_);
  int written = 0;
  while (journal->segment() < 9) {
    ASSERT_TRUE(journal->append(journal->segment(), record_of("record " + std::to_string(written++))));
    journal->begin_segment_if_full();
  }
  const auto contents = read_journal(path_);
  ASSERT_TRUE(contents);
  EXPECT_EQ(std::filesystem::file_size(path_), size);
  EXPECT_EQ(contents->num_damaged, 0);
  ASSERT_EQ(contents->segments.size(), 4U);
  std::vector<std::string> kept;
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(contents->segments[i].number, 6 + i);
    EXPECT_EQ(contents->segments[i].follows_gap, i == 0);
    for (const auto& text : texts(contents->segments[i])) kept.push_back(text);
  }
  ASSERT_GT(kept.size(), 1000U);
  for (std::size_t i = 0; i < kept.size(); ++i) {
    EXPECT_EQ(kept[i], "record " + std::to_string(static_cast<std::size_t>(written) - kept.size() + i));
  }
}

TEST_F(JournalFileTest, KeepsTheJournalThatWasThere) {
  make()->append(1, record_of("what the process that crashed has left"));
  const auto journal = make();
  const auto before = read_journal(path_ + ".1");
  ASSERT_TRUE(before) << before.error().message;
  EXPECT_EQ(texts(before->segments.at(0)), std::vector<std::string>{"what the process that crashed has left"});
  EXPECT_TRUE(texts(read_journal(path_)->segments.at(0)).empty());
}

TEST_F(JournalFileTest, WhatWasRecordedOutlivesAProcessThatIsKilled) {
  const pid_t child = fork();
  if (child == 0) {
    const auto journal = make();
    for (int i = 0; i < 100; ++i) journal->append(1, record_of(std::to_string(i)));
    kill(getpid(), SIGKILL);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFSIGNALED(status));
  const auto contents = read_journal(path_);
  ASSERT_TRUE(contents) << contents.error().message;
  const auto found = texts(contents->segments.at(0));
  ASSERT_EQ(found.size(), 100U);
  EXPECT_EQ(found.back(), "99");
}

TEST_F(JournalFileTest, ARecordThatIsNotWholeEndsItsSegment) {
  auto journal = make();
  for (const char* text : {"first", "second", "third"}) journal->append(1, record_of(text));
  journal.reset();
  auto contents = read_journal(path_);
  ASSERT_TRUE(contents);
  std::vector bytes(contents->bytes.begin(), contents->bytes.end());
  const auto* second = contents->segments.at(0).records.at(2).data();
  bytes[static_cast<std::size_t>(second - contents->bytes.data())] ^= std::byte{1};
  const auto damaged = parse_journal(bytes, "journal");
  ASSERT_TRUE(damaged);
  EXPECT_EQ(damaged->num_damaged, 1);
  EXPECT_EQ(texts(damaged->segments.at(0)), std::vector<std::string>{"first"});
}

TEST_F(JournalFileTest, ASegmentBehindADamagedOneIsBehindAGap) {
  auto journal = make();
  while (journal->segment() < 3) {
    journal->append(journal->segment(), record_of("record"));
    journal->begin_segment_if_full();
  }
  journal.reset();
  const auto contents = read_journal(path_);
  ASSERT_TRUE(contents);
  std::vector bytes(contents->bytes.begin(), contents->bytes.end());
  const auto* record = contents->segments.at(0).records.at(1).data();
  bytes[static_cast<std::size_t>(record - contents->bytes.data())] ^= std::byte{1};
  const auto damaged = parse_journal(bytes, "journal");
  ASSERT_TRUE(damaged);
  std::vector<bool> behind_gap;
  for (const auto& segment : damaged->segments) behind_gap.push_back(segment.follows_gap);
  EXPECT_EQ(behind_gap, (std::vector{true, true, false}));
}

TEST_F(JournalFileTest, ARecordThatDoesNotFitEndsItsSegmentAndTheNextBegins) {
  const auto journal = make();
  for (int i = 0; i < 100; ++i) journal->append(1, record_of("small"));
  EXPECT_TRUE(journal->append(1, std::vector<std::byte>(64 << 10)));
  EXPECT_TRUE(journal->append(1, record_of("what would not make sense without it")));
  journal->begin_segment_if_full();
  EXPECT_EQ(journal->segment(), 3U);  // the gap says that something is missing
  const auto contents = read_journal(path_);
  ASSERT_TRUE(contents);
  EXPECT_EQ(contents->num_damaged, 0);
  EXPECT_EQ(texts(contents->segments.at(0)).size(), 100U);
  EXPECT_TRUE(contents->segments.at(1).follows_gap);
}

TEST_F(JournalFileTest, AStateThatLeavesNoRoomForRecordsIsLeftOut) {
  const auto journal = make();
  std::vector<std::byte> state(60 << 10);
  state[0] = std::byte{1};  // the scheduler's
  EXPECT_TRUE(journal->append_state(1, state));
  EXPECT_TRUE(journal->append(1, record_of("what came to pass")));
  EXPECT_FALSE(journal->append_state(2, state)) << "that segment has not begun";
  state.resize(30 << 10);
  EXPECT_TRUE(journal->append_state(1, state));
  const auto contents = read_journal(path_);
  ASSERT_TRUE(contents);
  ASSERT_EQ(contents->segments.size(), 1U);
  EXPECT_EQ(texts(contents->segments.at(0)),
            (std::vector<std::string>{"what came to pass", record_text(std::span(state))}));
  EXPECT_EQ(journal->segment(), 1U);
}

TEST_F(JournalFileTest, ManyThreadsMayAppend) {
  const auto journal = make();
  std::vector<std::thread> threads;
  for (char name : {'a', 'b', 'c', 'd'}) {
    threads.emplace_back([&, name] {
      for (int i = 0; i < 200; ++i) journal->append(1, record_of(name + std::to_string(i)));
    });
  }
  for (auto& thread : threads) thread.join();
  const auto contents = read_journal(path_);
  ASSERT_TRUE(contents);
  EXPECT_EQ(contents->num_damaged, 0);
  std::map<char, int> next;
  for (const auto& text : texts(contents->segments.at(0))) {
    EXPECT_EQ(text.substr(1), std::to_string(next[text.front()]++));
  }
  EXPECT_EQ(next, (std::map<char, int>{{'a', 200}, {'b', 200}, {'c', 200}, {'d', 200}}));
}

constexpr std::size_t kFormatAt = 8;
constexpr std::size_t kSegmentBytesAt = 16;
constexpr std::size_t kLayoutAt = 24;
constexpr std::size_t kVersionAt = 32;
constexpr std::size_t kResumableLayoutAt = 296;
constexpr std::size_t kBehindHeader = 304;

/// The message where all records of `bytes` are wanted, and where only those of resumable requests are.
std::pair<std::string, std::string> refusals(const std::vector<std::byte>& bytes) {
  const auto refusal = [&](Records wanted) {
    const auto contents = parse_journal(bytes, "journal", wanted);
    return contents ? std::string() : contents.error().message;
  };
  return {refusal(Records::all), refusal(Records::of_resumable_requests)};
}

TEST_F(JournalFileTest, OfABuildThatHasOtherRecordsIsReadForResumableRequestsAlone) {
  make()->append(1, record_of("one"));
  auto bytes = bytes_of(path_);
  bytes[kLayoutAt] ^= std::byte{1};
  const auto [all, resumable] = refusals(bytes);
  EXPECT_NE(all.find("it was written by a program of version " + std::string(version())), std::string::npos) << all;
  EXPECT_EQ(resumable, "");
  const auto contents = parse_journal(bytes, "journal", Records::of_resumable_requests);
  EXPECT_EQ(texts(contents->segments.at(0)), std::vector<std::string>{"one"});

  bytes[kLayoutAt] ^= std::byte{1};
  bytes[kResumableLayoutAt] ^= std::byte{1};
  EXPECT_EQ(refusals(bytes).first, "");
  EXPECT_NE(refusals(bytes).second.find("another layout"), std::string::npos);
}

TEST_F(JournalFileTest, OfABuildBeforeTheLayoutOfResumableRequestsIsReadWhereAllRecordsAreAlike) {
  make()->append(1, record_of("one"));
  auto bytes = bytes_of(path_);
  std::fill(bytes.begin() + kResumableLayoutAt, bytes.begin() + kBehindHeader, std::byte{0});
  EXPECT_EQ(refusals(bytes), std::pair(std::string(), std::string()));
  bytes[kLayoutAt] ^= std::byte{1};
  EXPECT_NE(refusals(bytes).first, "");
  EXPECT_NE(refusals(bytes).second, "");
}

TEST_F(JournalFileTest, OfAnotherFormatSaysWhichAndWhoWroteIt) {
  make();
  auto bytes = bytes_of(path_);
  bytes[kFormatAt] = std::byte{8};
  const std::string other = "9.8.7";
  bytes[kVersionAt] = static_cast<std::byte>(other.size());
  std::memcpy(bytes.data() + kVersionAt + 4, other.data(), other.size());
  const auto [all, resumable] = refusals(bytes);
  EXPECT_EQ(all, resumable);
  EXPECT_EQ(all,
            "journal is a journal of format 8, but this program reads format 7: it was written by a program of version "
            "9.8.7, but this program is version " +
                std::string(version()));
  std::memset(bytes.data() + kVersionAt, 0xFF, 200);
  EXPECT_NE(refusals(bytes).first.find("of unknown version"), std::string::npos);
}

TEST_F(JournalFileTest, SaysWhoWroteItWithoutCharactersThatNoVersionHas) {
  make();
  auto bytes = bytes_of(path_);
  const std::string version = "1.2\x1b[2J\xff\n";
  bytes[kVersionAt] = static_cast<std::byte>(version.size());
  std::memcpy(bytes.data() + kVersionAt + 4, version.data(), version.size());
  EXPECT_EQ(parse_journal(bytes, "journal")->version, "1.2[2J");
}

/// Inserting each before those that were read would take minutes.
TEST_F(JournalFileTest, WithAnyNumberOfSetupsIsReadInTime) {
  const auto journal = make(std::int64_t{64} << 20);
  const auto setup = journal::header_of(journal::Source::setup, journal::kState);
  constexpr std::size_t kMany = 500'000;
  for (std::size_t i = 0; i < kMany; ++i) journal->append(1, setup);
  const auto contents = read_journal(path_);
  ASSERT_TRUE(contents);
  EXPECT_EQ(contents->segments.at(0).records.size(), kMany + 1);
  EXPECT_EQ(setup_of(*contents)->config, "the setup");
}

TEST_F(JournalFileTest, TheLargestOneThatAConfigAllowsIsRead) {
  make()->append(1, record_of("text"));
  constexpr std::uint64_t kSegmentBytes = std::uint64_t{1} << 38U;
  std::fstream file(path_, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(kSegmentBytesAt);
  for (unsigned i = 0; i < 8; ++i) file.put(static_cast<char>(kSegmentBytes >> (8 * i)));
  file.close();
  std::filesystem::resize_file(path_, 4096 + 4 * kSegmentBytes);
  const auto contents = read_journal(path_);
  ASSERT_TRUE(contents) << contents.error().message;
  EXPECT_EQ(texts(contents->segments.at(0)), std::vector<std::string>{"text"});
}

TEST_F(JournalFileTest, LeavesNoFileWhereMemoryCannotMapIt) {
  const pid_t child = fork();
  if (child == 0) {
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlim_t now = pages * static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
    const rlimit limit{now + (rlim_t{8} << 20U), RLIM_INFINITY};
    ::setrlimit(RLIMIT_AS, &limit);
    _exit(JournalFile::create(path_, std::int64_t{64} << 20, "") ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(JournalFileTest, WhoseHeaderWasNeverWrittenIsEmpty) {
  for (const std::size_t size : {std::size_t{0}, std::size_t{3}, std::size_t{100'000}}) {
    std::vector<std::byte> bytes(size);
    if (size > kFormatAt) bytes[kFormatAt] = std::byte{3};  // what comes before the magic
    const auto contents = parse_journal(bytes, "journal");
    ASSERT_TRUE(contents) << contents.error().message;
    EXPECT_TRUE(contents->segments.empty());
  }
}

TEST_F(JournalFileTest, ThatCannotBeReadIsKeptBesideThoseThatRestartsPushOut) {
  const auto write = [&](const std::string& text) { std::ofstream(path_) << text; };
  const auto text_at = [](const std::string& path) {
    std::ifstream file(path);
    return std::string(std::istreambuf_iterator<char>(file), {});
  };
  write("first");
  for (int i = 0; i < 2; ++i) EXPECT_EQ(keep_unreadable(path_).value(), path_ + ".unread");
  EXPECT_FALSE(std::filesystem::exists(path_ + ".unread.1"));
  EXPECT_EQ(text_at(path_), "first") << "it stays until another takes its place";
  for (int i = 0; i < 5; ++i) make();
  EXPECT_EQ(text_at(path_ + ".unread"), "first");
  std::filesystem::remove(path_);
  write("second");
  EXPECT_TRUE(keep_unreadable(path_));
  EXPECT_EQ(text_at(path_ + ".unread"), "second");
  EXPECT_EQ(text_at(path_ + ".unread.1"), "first");
  EXPECT_FALSE(keep_unreadable((folder_.path() / "nothing").string()));
}

TEST_F(JournalFileTest, KeepsThreeJournalsThatNobodyElseMayRead) {
  for (int i = 0; i < 6; ++i) make()->append(1, record_of(std::to_string(i)));
  for (int i = 1; i <= 3; ++i) {
    const auto kept = read_journal(path_ + "." + std::to_string(i));
    ASSERT_TRUE(kept);
    EXPECT_EQ(texts(kept->segments.at(0)), std::vector<std::string>{std::to_string(5 - i)});
  }
  EXPECT_FALSE(std::filesystem::exists(path_ + ".4"));
  EXPECT_EQ(std::filesystem::status(path_).permissions(),
            std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
  EXPECT_FALSE(JournalFile::create("/dev/null", kSmall, ""));
}

TEST_F(JournalFileTest, LogsThatACoreIsNoLongerRecordedBecauseItsCopyDiverged) {
  const auto journal = make();
  journal::Recorder recorder(journal, journal::Source::scheduler, [](Encoder&) {});
  std::ostringstream log;
  const auto logger = spdlog::default_logger();
  spdlog::set_default_logger(
      std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(log)));
  recorder.stop_diverged();
  spdlog::set_default_logger(logger);
  EXPECT_FALSE(recorder.is_on());
  EXPECT_NE(log.str().find("the scheduler is no longer recorded"), std::string::npos) << log.str();
}

TEST_F(JournalFileTest, NamesWhatIsNoJournal) {
  EXPECT_EQ(read_journal(path_).error().code, ErrorCode::io_failed);
  std::ofstream(path_) << "something else";
  const auto other = read_journal(path_);
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, ErrorCode::bad_file);
  EXPECT_EQ(other.error().message, path_ + " is not a journal");
  make()->append(1, record_of("x"));
  auto bytes = bytes_of(path_);
  bytes.resize(bytes.size() / 2);
  EXPECT_NE(parse_journal(bytes, "half").error().message.find("truncated"), std::string::npos);
  EXPECT_FALSE(JournalFile::create(path_, 1000, ""));
  EXPECT_FALSE(JournalFile::create((folder_.path() / "no" / "folder").string(), kSmall, ""));
}

TEST_F(JournalFileTest, AnyBytesAreAJournalOrAnError) {
  auto journal = make();
  for (int i = 0; i < 50; ++i) journal->append(1, record_of("record " + std::to_string(i)));
  journal.reset();
  const auto right = bytes_of(path_);
  std::mt19937_64 random(7);
  for (int i = 0; i < 400; ++i) {
    auto bytes = right;
    for (auto changes = 1 + random() % 4; changes > 0; --changes) {
      bytes[random() % (i % 2 == 0 ? 64 : 6000)] = static_cast<std::byte>(random());
    }
    if (random() % 8 == 0) bytes.resize(random() % bytes.size());
    const auto contents = parse_journal(bytes, "bytes");
    if (contents) {
      EXPECT_LE(contents->segments.size(), 4U);
    }
    parse_journal(std::move(bytes), "bytes", Records::of_resumable_requests);
  }
}

}  // namespace
}  // namespace pagoda::io
