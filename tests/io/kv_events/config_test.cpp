#include "io/kv_events/config.hpp"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace pagoda::kv_events {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

std::string problem(std::string_view json, std::int32_t num_replicas = 1) {
  const auto read = read_config(json, num_replicas);
  if (read) return "";
  EXPECT_EQ(read.error().code, ErrorCode::bad_config);
  EXPECT_EQ(read.error().param, "kv_events_config");
  return read.error().message;
}

TEST(KvEventsConfig, HasTheDefaultsOfVllmButOnThisMachineAlone) {
  const auto config = read_config(R"({"enable_kv_cache_events": true})", 1);
  ASSERT_TRUE(config);
  EXPECT_TRUE(config->is_on);
  EXPECT_EQ(config->endpoint.of_replica(0), "tcp://127.0.0.1:5557");
  EXPECT_TRUE(config->endpoint.is_bound && config->endpoint.is_local);
  EXPECT_TRUE(config->replay_endpoint.empty());
  EXPECT_EQ(config->buffer_steps, 10'000);
  EXPECT_EQ(config->hwm, 100'000);
  EXPECT_EQ(config->max_queue_size, 100'000);
  EXPECT_EQ(config->topic, "");
}

TEST(KvEventsConfig, IsOffUnlessEventsAreEnabledAndHaveAPublisher) {
  for (const char* json : {"{}", R"({"publisher": "zmq"})", R"({"enable_kv_cache_events": false})",
                           R"({"enable_kv_cache_events": true, "publisher": "null"})"}) {
    const auto config = read_config(json, 1);
    ASSERT_TRUE(config) << json;
    EXPECT_FALSE(config->is_on) << json;
  }
  EXPECT_TRUE(read_config(R"({"enable_kv_cache_events": true, "publisher": null, "replay_endpoint": null})", 1)->is_on);
}

TEST(KvEventsConfig, GivesEachReplicaTheNextPort) {
  const auto config = read_config(R"({"enable_kv_cache_events": true, "endpoint": "tcp://*:5557",
                                      "replay_endpoint": "tcp://[::1]:6000"})",
                                  3);
  ASSERT_TRUE(config);
  EXPECT_EQ(config->endpoint.of_replica(0), "tcp://*:5557");
  EXPECT_EQ(config->endpoint.of_replica(2), "tcp://*:5559");
  EXPECT_FALSE(config->endpoint.is_local);
  EXPECT_EQ(config->replay_endpoint.of_replica(1), "tcp://[::1]:6001");
  EXPECT_TRUE(config->replay_endpoint.is_local && config->replay_endpoint.is_version_6);
}

TEST(KvEventsConfig, BindsAddressesAndConnectsToNames) {
  for (const char* bound : {"tcp://*:1", "tcp://0.0.0.0:1", "tcp://10.1.2.3:65535", "tcp://localhost:1", "tcp://[::]:1",
                            "tcp://:::5", "ipc:///tmp/events"})
    EXPECT_TRUE(read_endpoint("endpoint", bound).value().is_bound) << bound;
  const auto named = read_endpoint("endpoint", "tcp://router.example:5557");
  ASSERT_TRUE(named);
  EXPECT_FALSE(named->is_bound || named->is_local);
  EXPECT_EQ(read_endpoint("endpoint", "tcp://localhost:7")->of_replica(0), "tcp://127.0.0.1:7");
  EXPECT_THAT(problem(R"({"replay_endpoint": "tcp://router:1"})"),
              HasSubstr("replay_endpoint must be * or an address of this machine"));
}

TEST(KvEventsConfig, NamesWhatIsWrong) {
  EXPECT_THAT(problem("[]"), HasSubstr("must be a JSON object"));
  EXPECT_THAT(problem("{"), StartsWith("kv_events_config: must be a JSON object: "));
  EXPECT_EQ(problem(R"({"endpont": "x"})"), R"(kv_events_config: unknown key "endpont"; did you mean "endpoint"?)");
  EXPECT_EQ(problem(R"({"publisher": "kafka"})"), R"(kv_events_config: publisher must be zmq or null, not "kafka")");
  EXPECT_EQ(problem(R"({"enable_kv_cache_events": 1})"),
            "kv_events_config: enable_kv_cache_events must be true or false, not 1");
  EXPECT_EQ(problem(R"({"hwm": 0})"), "kv_events_config: hwm must be from 1 to 10000000, not 0");
  EXPECT_EQ(problem(R"({"buffer_steps": -1})"), "kv_events_config: buffer_steps must be from 1 to 10000000, not -1");
  EXPECT_EQ(problem(R"({"max_queue_size": 1.5})"),
            "kv_events_config: max_queue_size must be from 1 to 10000000, not 1.5");
  EXPECT_EQ(problem(R"({"topic": 3})"), "kv_events_config: topic must be a string, not 3");
  for (const char* endpoint : {"", "5557", "tcp://*", "tcp://*:0", "tcp://*:70000", "tcp://*:*", "tcp://:5557",
                               "tcp://a b:1", "tcp://1.2.3:4", "udp://x:1", "inproc://x", "ipc://"}) {
    EXPECT_THAT(problem(R"({"endpoint": ")" + std::string(endpoint) + R"("})"),
                StartsWith(R"(kv_events_config: endpoint must be tcp://HOST:PORT or ipc://PATH, not ")"))
        << endpoint;
  }
}

TEST(KvEventsConfig, RefusesPortsThatReplicasWouldShare) {
  const std::string on = R"({"enable_kv_cache_events": true, )";
  EXPECT_THAT(problem(on + R"("endpoint": "tcp://*:65535"})", 2), HasSubstr("replica 1 would have port 65536"));
  EXPECT_THAT(problem(on + R"("endpoint": "ipc:///tmp/x"})", 2), HasSubstr("each replica has a port of its own"));
  EXPECT_THAT(problem(on + R"("endpoint": "tcp://*:5557", "replay_endpoint": "tcp://*:5558"})", 2),
              HasSubstr("must be at least 2 apart"));
  EXPECT_EQ(problem(on + R"("endpoint": "tcp://*:5557", "replay_endpoint": "tcp://*:5559"})", 2), "");
  EXPECT_EQ(problem(on + R"("endpoint": "tcp://*:5557", "replay_endpoint": "tcp://*:5558"})", 1), "");
}

}  // namespace
}  // namespace pagoda::kv_events
