#include "io/kv_events/publisher.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_folder.hpp"

namespace pagoda::kv_events {
namespace {

using testing::HasSubstr;

class KvEventPublisher : public testing::Test {
 protected:
  void SetUp() override {
    if (!Publisher::in_build()) GTEST_SKIP() << "built without ZeroMQ";
  }
  Config config() const {
    Config config;
    config.is_on = true;
    config.endpoint = *read_endpoint("endpoint", "ipc://" + (folder_.path() / "events").string());
    config.replay_endpoint = *read_endpoint("replay_endpoint", "ipc://" + (folder_.path() / "replay").string());
    return config;
  }
  static memory::KvEventBatch batch(std::size_t num_tokens = 1) {
    memory::KvEventBatch batch{.block_size = 1, .window = 0, .events = {}};
    batch.events.emplace_back(
        memory::BlocksStored{std::vector<memory::ReportedHash>(num_tokens, 1), std::nullopt, TokenIds(num_tokens), 0});
    return batch;
  }

  test::TemporaryFolder folder_;
};

TEST_F(KvEventPublisher, SendsWhatWaitsBeforeItStops) {
  auto publisher = Publisher::start(config(), 1);
  ASSERT_TRUE(publisher) << publisher.error().message;
  for (int i = 0; i < 200; ++i) (*publisher)->publish(0, batch());
  (*publisher)->publish(0, {});  // nothing has changed
  (*publisher)->stop();
  (*publisher)->publish(0, batch());
  EXPECT_EQ((*publisher)->counts(0).published, 200);
  EXPECT_EQ((*publisher)->counts(0).dropped, 0);
}

TEST_F(KvEventPublisher, DropsAndCountsBatchesThatFindTheQueueFull) {
  Config small = config();
  small.max_queue_size = 1;
  auto publisher = Publisher::start(small, 1);
  ASSERT_TRUE(publisher) << publisher.error().message;
  std::vector<memory::KvEventBatch> batches(50, batch(50'000));
  for (auto& one : batches) (*publisher)->publish(0, std::move(one));
  (*publisher)->stop();
  const auto counts = (*publisher)->counts(0);
  EXPECT_EQ(counts.published + counts.dropped, 50);
  EXPECT_GE(counts.published, 1);
  EXPECT_GE(counts.dropped, 1) << "to encode 50,000 tokens takes longer than to hand them over";
  std::string text;
  metrics::PrometheusText metrics(text);
  (*publisher)->write(metrics);
  EXPECT_THAT(text,
              HasSubstr("pagoda:kv_event_batches_dropped_total{replica=\"0\"} " + std::to_string(counts.dropped)));
}

TEST_F(KvEventPublisher, NamesAnEndpointThatCannotBeBound) {
  Config bad = config();
  bad.endpoint = *read_endpoint("endpoint", "ipc:///no/such/folder/events");
  const auto publisher = Publisher::start(bad, 1);
  ASSERT_FALSE(publisher);
  EXPECT_EQ(publisher.error().code, ErrorCode::io_failed);
  EXPECT_THAT(publisher.error().message,
              HasSubstr("kv_events_config: cannot bind endpoint ipc:///no/such/folder/events"));
}

TEST(KvEventPublisherOfABuildWithoutZmq, SaysWhatToInstall) {
  if (Publisher::in_build()) GTEST_SKIP() << "built with ZeroMQ";
  const auto publisher = Publisher::start({}, 1);
  ASSERT_FALSE(publisher);
  EXPECT_EQ(publisher.error().code, ErrorCode::unsupported);
  EXPECT_THAT(publisher.error().message, HasSubstr("libzmq3-dev"));
}

}  // namespace
}  // namespace pagoda::kv_events
