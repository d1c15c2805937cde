// Journals that another version left, and what is no journal: what is read of them, what is said, and that nothing is
// lost.

#include "pagoda/recovery.hpp"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <spdlog/sinks/ostream_sink.h>
#include <spdlog/spdlog.h>

#include "engine/journal/recorded_output.hpp"
#include "io/config_file.hpp"
#include "io/journal/journal_file.hpp"
#include "io/model_files/model_files.hpp"
#include "io/model_files/model_fingerprint.hpp"
#include "io/serving/resume_config.hpp"
#include "tests/pagoda/test_models.hpp"
#include "tests/support/temporary_folder.hpp"

namespace pagoda {
namespace {

using ::testing::HasSubstr;

// Places in the header.
constexpr std::size_t kFormatAt = 8;
constexpr std::size_t kNumSegmentsAt = 12;
constexpr std::size_t kLayoutAt = 24;
constexpr std::size_t kResumableLayoutAt = 296;

/// A journal file whose follower has not written any state yet.
class LateFollower final : public journal::Journal {
 public:
  explicit LateFollower(std::shared_ptr<io::JournalFile> file) : file_(std::move(file)) {}

  std::uint64_t segment() const override { return file_->segment(); }
  bool append(std::uint64_t segment, std::span<const std::byte> record) override {
    return file_->append(segment, record);
  }
  bool append_state(std::uint64_t segment, std::span<const std::byte> record) override {
    return file_->append_state(segment, record);
  }
  bool follows(const journal::CoreId&) const override { return true; }
  void begin_segment_if_full() override { file_->begin_segment_if_full(); }

 private:
  std::shared_ptr<io::JournalFile> file_;
};

void bring(journal::RecordedOutput& output, TokenId token, RequestId id = 1) {
  StepOutputs step;
  step.outputs.emplace_back().request = id;
  step.outputs.back().token.emplace().token = token;
  output.process(step, 1000);
}

/// A journal with one resumable request that has brought two tokens.
class RecoveryOfJournals : public ::testing::Test {
 protected:
  RecoveryOfJournals() { config_.model = test::demo_model(); }

  void SetUp() override { write(io::to_text(config_)); }

  void write(const std::string& setup) {
    std::filesystem::remove(path_);
    const auto file =
        io::JournalFile::create(path_, 1 << 20, setup, {.model = io::model_fingerprint(config_.model).value()});
    ASSERT_TRUE(file) << file.error().message;
    journal::RecordedOutput output(io::load_tokenizer(config_.model).value(), *file);
    begin(output);
  }

  static void begin(journal::RecordedOutput& output, RequestId id = 1, const std::string& name = "mine") {
    serving::RequestOrigin origin;
    origin.name.id = name;
    auto spec = std::make_shared<RequestSpec>();
    spec->id = id;
    spec->prompt = std::make_shared<const TokenIds>(TokenIds{5, 6, 7});
    spec->sampling.max_tokens = 10;
    spec->stream = true;
    spec->resume = serving::note_of(origin, {.is_recorded = true});
    ASSERT_NE(spec->resume, nullptr);
    ASSERT_TRUE(output.open(spec));
    for (const TokenId token : {300, 301}) bring(output, token, id);
  }

  std::vector<char> bytes() const {
    std::ifstream file(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
  }
  void replace(const std::vector<char>& bytes) const {
    std::filesystem::remove(path_);  // what is kept may be the same file
    std::ofstream(path_, std::ios::binary).write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  }
  void change(std::size_t at, int value) const {
    auto changed = bytes();
    changed.at(at) = static_cast<char>(changed.at(at) ^ value);
    replace(changed);
  }

  /// How many requests are recovered; -1 for an error. What is logged, or the error, is in `said_`.
  int recover() {
    std::ostringstream log;
    const auto logger = spdlog::default_logger();
    spdlog::set_default_logger(
        std::make_shared<spdlog::logger>("test", std::make_shared<spdlog::sinks::ostream_sink_mt>(log)));
    const auto requests = recover_requests(path_, config_);
    spdlog::set_default_logger(logger);
    said_ = requests ? log.str() : requests.error().message;
    return requests ? static_cast<int>(requests->size()) : -1;
  }

  bool is_kept() const { return std::filesystem::exists(path_ + ".unread"); }

  /// Nothing is recovered, the journal is kept as it was and stays until another takes its place.
  void expect_kept() {
    const auto before = bytes();
    EXPECT_EQ(recover(), 0) << said_;
    EXPECT_THAT(said_, HasSubstr("the file is kept as " + path_ + ".unread"));
    EXPECT_EQ(bytes(), before);
    std::ifstream kept(path_ + ".unread", std::ios::binary);
    EXPECT_EQ(std::vector<char>(std::istreambuf_iterator<char>(kept), {}), before);
  }

  test::TemporaryFolder folder_;
  std::string path_ = (folder_.path() / "journal").string();
  EngineConfig config_;
  std::string said_;
};

TEST_F(RecoveryOfJournals, OfThisBuildGivesItsRequests) {
  EXPECT_EQ(recover(), 1) << said_;
  EXPECT_FALSE(is_kept());
}

TEST_F(RecoveryOfJournals, OfRequestsWithOneNameTheLastIsGiven) {
  std::filesystem::remove(path_);
  const auto file = io::JournalFile::create(path_, 1 << 20, io::to_text(config_),
                                            {.model = io::model_fingerprint(config_.model).value()});
  ASSERT_TRUE(file) << file.error().message;
  journal::RecordedOutput output(io::load_tokenizer(config_.model).value(), *file);
  RequestId id = 0;
  for (const char* name : {"a", "b", "a", "c", "a"}) begin(output, ++id, name);
  bring(output, 302, id);
  const auto requests = recover_requests(path_, config_);
  ASSERT_TRUE(requests) << requests.error().message;
  std::vector<std::string> names;
  for (const auto& request : *requests) names.push_back(request.origin.name.id);
  EXPECT_EQ(names, (std::vector<std::string>{"b", "c", "a"}));
  const auto& last = requests->back().request->progress->sequences.front().result;
  EXPECT_EQ(last.token_ids, (TokenIds{300, 301, 302}));
}

TEST_F(RecoveryOfJournals, WithoutSomeRecordsGivesNoTextWithAHole) {
  std::filesystem::remove(path_);
  const auto file = io::JournalFile::create(path_, 1 << 20, io::to_text(config_),
                                            {.model = io::model_fingerprint(config_.model).value()});
  ASSERT_TRUE(file) << file.error().message;
  journal::RecordedOutput output(io::load_tokenizer(config_.model).value(), std::make_shared<LateFollower>(*file));
  begin(output);
  (*file)->append(1, std::vector<std::byte>(1 << 20, static_cast<std::byte>(journal::Source::scheduler)));
  bring(output, 302);  // nothing more fits the segment
  (*file)->begin_segment_if_full();
  bring(output, 303);
  const auto requests = recover_requests(path_, config_);
  ASSERT_TRUE(requests) << requests.error().message;
  ASSERT_EQ(requests->size(), 1U);
  EXPECT_EQ(requests->front().request->progress->sequences.front().result.token_ids, (TokenIds{300, 301}));
}

TEST_F(RecoveryOfJournals, OfABuildBeforeRecordsOfResumableRequestsHadALayoutGivesThem) {
  auto old = bytes();
  for (std::size_t i = 0; i < 8; ++i) old.at(kResumableLayoutAt + i) = 0;
  replace(old);
  EXPECT_EQ(recover(), 1) << said_;
  EXPECT_FALSE(is_kept());
  change(kLayoutAt, 1);
  expect_kept();
  EXPECT_THAT(said_, HasSubstr("records of another layout: it was written by a program of version "));
}

TEST_F(RecoveryOfJournals, OfABuildWhoseOtherRecordsHaveChangedGivesItsRequests) {
  change(kLayoutAt, 1);
  EXPECT_EQ(recover(), 1) << said_;
  EXPECT_FALSE(is_kept());
}

TEST_F(RecoveryOfJournals, OfABuildWithOtherConfigKeysGivesItsRequests) {
  write(R"({"model": "somewhere", "a_key_of_the_future": {"x": [1]}})");
  EXPECT_EQ(recover(), 1) << said_;
}

TEST_F(RecoveryOfJournals, ThatCannotBeReadAreKept) {
  change(kFormatAt, 8);
  expect_kept();
  EXPECT_THAT(said_, HasSubstr("is a journal of format 15, but this program reads format 7"));
  change(kFormatAt, 8);
  change(kResumableLayoutAt, 1);
  expect_kept();
  change(kResumableLayoutAt, 1);
  change(kNumSegmentsAt, 0x40);
  expect_kept();
  EXPECT_THAT(said_, HasSubstr("its header is damaged"));
  write("no JSON");
  expect_kept();
  EXPECT_THAT(said_, HasSubstr("does not name its engine"));
}

TEST_F(RecoveryOfJournals, ThatCanNeitherBeReadNorKeptAreAnErrorThatSaysWhy) {
  std::ofstream(path_ + ".unread.2") << "a file";
  std::filesystem::create_directories(path_ + ".unread.3/folder");  // the file cannot take its place
  change(kFormatAt, 8);
  const auto before = bytes();
  EXPECT_EQ(recover(), -1);
  EXPECT_THAT(said_, HasSubstr("is a journal of format 15"));
  EXPECT_THAT(said_, HasSubstr("make its folder writable, or start without --recover"));
  EXPECT_EQ(bytes(), before);
}

TEST_F(RecoveryOfJournals, WhatIsNoJournalIsRefusedAndLeftAlone) {
  replace({'s', 'o', 'm', 'e', 't', 'h', 'i', 'n', 'g'});
  EXPECT_EQ(recover(), -1);
  EXPECT_THAT(said_, HasSubstr("is not a journal"));
  EXPECT_FALSE(is_kept());
  replace({});
  EXPECT_EQ(recover(), 0) << said_;
  EXPECT_FALSE(is_kept());
}

TEST_F(RecoveryOfJournals, WithAnyDamageIsReadOrKeptOrRefused) {
  const auto right = bytes();
  std::mt19937 random(3);
  for (int i = 0; i < 150; ++i) {
    auto damaged = right;
    for (auto changes = 1 + random() % 4; changes > 0; --changes) {
      damaged.at(random() % (i % 2 == 0 ? 320 : 6000)) = static_cast<char>(random());
    }
    if (random() % 8 == 0) damaged.resize(random() % damaged.size());
    std::filesystem::remove(path_ + ".unread");
    replace(damaged);
    recover();
    EXPECT_TRUE(std::filesystem::exists(path_));
  }
}

}  // namespace
}  // namespace pagoda
