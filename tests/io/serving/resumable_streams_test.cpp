#include "io/serving/resumable_streams.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "io/serving/recovered_request.hpp"

namespace pagoda::serving {
namespace {

void add_all(ResumableStream& stream, int num_events, std::size_t num_bytes) {
  for (int i = 0; i < num_events; ++i) stream.add(std::string(num_bytes, 'x'));
  stream.notify_reader();
}

/// Whose client takes nothing.
struct StalledReader final : StreamReader {
  void on_events() override {}
  void on_replaced() override {}
  std::uint64_t next_event() const override { return 0; }
};

struct Reader final : StreamReader {
  explicit Reader(ResumableStream& of) : stream(of) {}
  void on_events() override {
    for (; next < stream.history().next(); ++next) text += stream.history().at(next);
  }
  void on_replaced() override { is_replaced = true; }
  std::uint64_t next_event() const override { return next; }

  ResumableStream& stream;
  std::uint64_t next = 0;
  std::string text;
  bool is_replaced = false;
};

class ResumableStreamsTest : public ::testing::Test {
 protected:
  boost::asio::io_context io_;
};

TEST_F(ResumableStreamsTest, AReaderHasAllThatWasToldFromWhereItWants) {
  ResumableStreams streams({});
  const auto stream = *streams.open(io_, {"a", "1"});
  for (const char* event : {"x", "y", "z"}) stream->add(event);
  Reader reader(*stream);
  reader.next = 1;
  stream->attach(reader);
  stream->notify_reader();
  stream->add("!");
  stream->notify_reader();
  EXPECT_EQ(reader.text, "yz!");
  EXPECT_EQ(streams.find({"a", "1"}), stream);
  EXPECT_EQ(streams.find({"b", "1"}), nullptr) << "of another key";
  EXPECT_EQ(streams.find({"a", "2"}), nullptr);
}

TEST_F(ResumableStreamsTest, WhoComesLaterTakesThePlaceOfWhoWasThere) {
  ResumableStreams streams({});
  const auto stream = *streams.open(io_, {"a", "1"});
  Reader first(*stream);
  Reader second(*stream);
  stream->attach(first);
  stream->attach(second);
  EXPECT_TRUE(first.is_replaced);
  stream->detach(first);  // which is no reader any more
  stream->add("x");
  stream->notify_reader();
  EXPECT_EQ(second.text, "x");
  EXPECT_EQ(first.text, "");
}

TEST_F(ResumableStreamsTest, OneWithoutAReaderIsGivenUpAndOneThatHasEndedForgotten) {
  ResumableStreams streams({.resume_window = 1});
  int num_given_up = 0;
  const auto live = *streams.open(io_, {"a", "live"});
  live->on_give_up([&] { ++num_given_up; });
  const auto read = *streams.open(io_, {"a", "read"});
  read->on_give_up([&] { ++num_given_up; });
  const auto ended = *streams.open(io_, {"a", "ended"});
  ended->on_give_up([&] { ++num_given_up; });
  Reader reader(*read);
  live->await_reader();
  read->await_reader();
  read->attach(reader);
  ended->end();
  EXPECT_EQ(streams.size(), 3U) << "it is kept for a while";
  io_.run();
  EXPECT_EQ(num_given_up, 1);
  EXPECT_EQ(streams.size(), 1U);
  EXPECT_NE(streams.find({"a", "read"}), nullptr);
  read->detach(reader);
  io_.restart();
  io_.run();
  EXPECT_EQ(num_given_up, 2);
  EXPECT_EQ(streams.size(), 0U);
}

TEST_F(ResumableStreamsTest, IdsAreTakenAsLongAsTheirStreamsAreKeptAndThereIsALimit) {
  ResumableStreams streams({.resume_window = 60, .max_resumable_streams = 2});
  const auto first = *streams.open(io_, {"a", "1"});
  EXPECT_EQ(streams.open(io_, {"a", "1"}).error().code, ErrorCode::duplicate_id);
  first->end();
  EXPECT_EQ(streams.open(io_, {"a", "1"}).error().code, ErrorCode::duplicate_id);
  ASSERT_TRUE(streams.open(io_, {"b", "1"}));
  const auto second = *streams.open(io_, {"b", "2"});
  EXPECT_NE(streams.find({"a", "1"}), nullptr);
  second->admitted();
  EXPECT_EQ(streams.find({"a", "1"}), nullptr) << "one that has ended makes room";
  EXPECT_EQ(streams.open(io_, {"b", "3"}).error().code, ErrorCode::queue_full);
  EXPECT_TRUE(streams.open(io_, {"b", "3"}, /*is_recovered=*/true));
  streams.find({"b", "1"})->withdraw();
  EXPECT_EQ(streams.find({"b", "1"}), nullptr);
  ResumableStreams none({.resume_window = 0});
  EXPECT_EQ(none.open(io_, {"a", "1"}).error().param, "resumable");
}

TEST_F(ResumableStreamsTest, EventsHaveABoundAndTheOldestOfWhoGrowsAreDropped) {
  ResumableStreams streams({.resume_buffer_mib = 1});
  const auto other = *streams.open(io_, {"a", "other"});
  other->add("kept");
  const auto ended = *streams.open(io_, {"a", "ended"});
  ended->add(std::string(1000, 'x'));
  ended->end();
  const auto large = *streams.open(io_, {"a", "large"});
  for (int i = 0; i < 300; ++i) add_all(*large, 1, 10'000);
  EXPECT_LE(streams.bytes(), std::size_t{1} << 20U);
  EXPECT_EQ(streams.find({"a", "ended"}), nullptr) << "what has ended goes first";
  EXPECT_EQ(large->history().next(), 300U);
  EXPECT_GT(large->history().first(), 150U);
  EXPECT_EQ(other->history().first(), 0U);
  const auto before = streams.bytes();
  large->withdraw();
  EXPECT_LT(streams.bytes(), before);
  EXPECT_EQ(streams.bytes(), other->history().bytes());
}

TEST_F(ResumableStreamsTest, WhoIsNotAdmittedTakesNobodysPlaceAndTheOldestEndedGoesFirst) {
  ResumableStreams streams({.max_resumable_streams = 2});
  const auto later = *streams.open(io_, {"a", "1"});
  const auto earlier = *streams.open(io_, {"a", "2"});
  earlier->end();
  later->end();
  (*streams.open(io_, {"b", "refused"}))->withdraw();
  EXPECT_EQ(streams.size(), 2U);
  EXPECT_NE(streams.find({"a", "2"}), nullptr);
  (*streams.open(io_, {"b", "taken"}))->admitted();
  EXPECT_EQ(streams.find({"a", "2"}), nullptr);
  EXPECT_NE(streams.find({"a", "1"}), nullptr);
}

TEST_F(ResumableStreamsTest, LargeStreamsTakeNothingFromOthersWhoseReadersKeepUp) {
  ResumableStreams streams({.resume_buffer_mib = 1});
  std::vector<std::shared_ptr<ResumableStream>> large;
  for (const char* id : {"1", "2", "3"}) large.push_back(*streams.open(io_, {"a", id}));
  StalledReader stalled;
  large[0]->attach(stalled);
  large[0]->add(std::string(500'000, 'x'));
  large[0]->end();
  const auto small = *streams.open(io_, {"b", "1"});
  Reader reader(*small);
  small->attach(reader);
  for (int i = 0; i < 100; ++i) {
    add_all(*large[1], 1, 20'000);
    add_all(*large[2], 1, 20'000);
    add_all(*large[0], 1, 20'000);
    for (int j = 0; j < 3; ++j) small->add("event");
    ASSERT_LE(small->history().first(), reader.next) << "it would be cut off";
    small->notify_reader();
    ASSERT_LE(streams.bytes(), std::size_t{1} << 20U);
  }
  EXPECT_EQ(small->history().first(), 0U);
  EXPECT_EQ(reader.text.size(), 300 * std::string_view("event").size());
  EXPECT_GT(large[0]->history().first(), 0U) << "a reader that takes nothing does not hold others up";
  for (const auto& stream : large) EXPECT_GT(stream->history().bytes(), 200'000U) << "they share what there is";
}

TEST_F(ResumableStreamsTest, WhatAReaderHasNotHeardOfIsKeptForIt) {
  ResumableStreams streams({.resume_buffer_mib = 1});
  const auto other = *streams.open(io_, {"a", "1"});
  const auto stream = *streams.open(io_, {"b", "1"});
  Reader reader(*stream);
  stream->attach(reader);
  add_all(*stream, 10, 1000);
  for (int i = 0; i < 30; ++i) stream->add(std::string(100'000, 'x'));  // in one batch
  add_all(*other, 3, 100'000);
  EXPECT_EQ(stream->history().first(), 10U) << "what it has taken goes";
  EXPECT_EQ(stream->history().next(), 40U);
  stream->notify_reader();
  EXPECT_EQ(reader.text.size(), 3'010'000U);
  add_all(*other, 1, 1);
  EXPECT_LE(streams.bytes(), std::size_t{1} << 20U);
}

TEST_F(ResumableStreamsTest, ACancelIsForWhoMakesTheEventsUntilTheEnd) {
  ResumableStreams streams({});
  const auto stream = *streams.open(io_, {"a", "1"});
  const auto held = std::make_shared<int>(0);
  stream->on_cancel([held] { ++*held; });
  stream->cancel();
  EXPECT_EQ(*held, 1);
  stream->end();
  stream->cancel();
  EXPECT_EQ(*held, 1);
  EXPECT_EQ(held.use_count(), 1);
}

TEST(RequestOrigin, IsWhatItsNoteSaysAndAnyOtherTextIsRefused) {
  const RequestOrigin origin{.api = Api::http,
                             .name = {"owner", "id"},
                             .arrival_ms = 123,
                             .timeout_ms = 5,
                             .timing = true,
                             .stream = true,
                             .path = "/v1/completions",
                             .body = "{}",
                             .own_id = "own",
                             .created = 7};
  const auto note = note_of(origin, {.resume_window = 60, .is_recorded = true});
  ASSERT_NE(note, nullptr);
  EXPECT_EQ(note->keep_ms, 60'000);
  const auto read = origin_of(*note);
  ASSERT_TRUE(read);
  EXPECT_EQ(read->name, origin.name);
  EXPECT_EQ(read->body, "{}");
  EXPECT_EQ(read->timeout_ms, 5);
  EXPECT_EQ(note_of(origin, {}), nullptr) << "nothing is recorded";
  for (std::size_t size = 0; size < note->text.size(); ++size) {
    EXPECT_FALSE(origin_of({note->text.substr(0, size), 0}));
  }
  EXPECT_FALSE(origin_of({note->text + "x", 0}));
}

TEST(ResumeConfig, NamesWhatIsOutOfRange) {
  EXPECT_TRUE(ResumeConfig{}.validate().empty());
  const auto problems =
      ResumeConfig{.resume_window = -1, .max_resumable_streams = 0, .resume_buffer_mib = 0}.validate();
  ASSERT_EQ(problems.size(), 3U);
  EXPECT_EQ(problems[0].param, "resume_window");
  EXPECT_EQ(problems[1].param, "max_resumable_streams");
  EXPECT_EQ(problems[2].param, "resume_buffer_mib");
}

}  // namespace
}  // namespace pagoda::serving
