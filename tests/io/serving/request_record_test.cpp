#include "io/serving/request_record.hpp"

#include <chrono>
#include <filesystem>
#include <thread>

#include <gtest/gtest.h>

#include "io/metrics/prometheus_text.hpp"
#include "io/serving/access_log.hpp"

namespace pagoda::serving {
namespace {

constexpr std::string_view kTrace = "0af7651916cd43dd8448eb211c80319c";
constexpr std::string_view kSpan = "b7ad6b7169203331";

std::string parent(std::string_view version, std::string_view flags, std::string_view more = {}) {
  return std::string(version) + "-" + std::string(kTrace) + "-" + std::string(kSpan) + "-" + std::string(flags) +
         std::string(more);
}

RequestResult result(FinishReason reason, std::int64_t tokens, double ttft_ms) {
  RequestResult result;
  result.outputs.emplace_back().finish_reason = reason;
  result.usage = {.prompt_tokens = 4, .completion_tokens = tokens, .cached_tokens = 1};
  result.timing.queue_ms = 1;
  result.timing.ttft_ms = ttft_ms;
  return result;
}

TEST(TraceParent, is_read_from_its_header) {
  const auto read = TraceParent::parse(parent("00", "01"));
  ASSERT_TRUE(read);
  EXPECT_EQ(read->trace_id, kTrace);
  EXPECT_EQ(read->span_id, kSpan);
  EXPECT_TRUE(read->sampled);
  EXPECT_FALSE(TraceParent::parse(parent("00", "00"))->sampled);
  EXPECT_FALSE(TraceParent::parse(parent("00", "a2"))->sampled);
  EXPECT_TRUE(TraceParent::parse(parent("00", "0f"))->sampled);
  EXPECT_TRUE(TraceParent::parse(parent("cc", "01", "-what-will-be")));
  EXPECT_TRUE(TraceParent::parse(parent("cc", "01")));
}

TEST(TraceParent, is_absent_where_the_header_is_none) {
  const auto good = parent("00", "01");
  for (std::size_t size = 0; size < good.size(); ++size) EXPECT_FALSE(TraceParent::parse(good.substr(0, size))) << size;
  for (const auto& bad : {parent("ff", "01"), parent("00", "01", "-more"), parent("cc", "01", "more"),
                          parent("0g", "01"), parent("00", "zz"), good + " "}) {
    EXPECT_FALSE(TraceParent::parse(bad)) << bad;
  }
  auto upper = good;
  upper[4] = 'A';
  EXPECT_FALSE(TraceParent::parse(upper));
  EXPECT_FALSE(TraceParent::parse("00-00000000000000000000000000000000-b7ad6b7169203331-01"));
  EXPECT_FALSE(TraceParent::parse("00-0af7651916cd43dd8448eb211c80319c-0000000000000000-01"));
}

TEST(GenerationRecord, adds_up_several_prompts) {
  GenerationRecord record;
  record.completion_tokens = 3;  // streamed
  record.done(result(FinishReason::stop, 5, 20), 3);
  EXPECT_EQ(record.completion_tokens, 5);
  EXPECT_EQ(record.finish_reason, "stop");
  record.done(result(FinishReason::length, 2, 10));
  record.done(result(FinishReason::stop, 1, 30));
  EXPECT_EQ(record.completion_tokens, 8);
  EXPECT_EQ(record.cached_tokens, 3);
  EXPECT_EQ(record.num_sequences, 3);
  EXPECT_EQ(record.finish_reason, "length");
  EXPECT_DOUBLE_EQ(*record.ttft_ms, 10);
}

TEST(AccessLog, escapes_what_clients_name) {
  RequestRecord record{.request_id = "a\"b\\", .client = "[::1]:5", .method = "GET", .route = "/v1/models/{id*}"};
  record.time = std::chrono::system_clock::time_point(std::chrono::milliseconds(1'700'000'000'007));
  record.status = 200;
  record.total_ms = 1.5;
  EXPECT_EQ(
      AccessLog::line(record),
      R"({"time":"2023-11-14T22:13:20.007Z","request_id":"a\"b\\","client":"[::1]:5","api":"http","method":"GET",)"
      R"("route":"/v1/models/{id*}","status":200,"total_ms":1.500})");
  record.route = {};
  record.is_cut = true;
  record.generation.emplace().model = "m";
  EXPECT_EQ(
      AccessLog::line(record),
      R"({"time":"2023-11-14T22:13:20.007Z","request_id":"a\"b\\","client":"[::1]:5","api":"http","method":"GET",)"
      R"("route":null,"status":200,"cut":true,"model":"m","prompt_tokens":0,"cached_tokens":0,)"
      R"("completion_tokens":0,"queue_ms":null,"ttft_ms":null,"finish_reason":null,"total_ms":1.500})");
}

TEST(AccessLog, counts_lines_that_a_full_disk_does_not_take) {
  if (!std::filesystem::exists("/dev/full")) GTEST_SKIP();
  const auto log = AccessLog::open("/dev/full");
  ASSERT_TRUE(log);
  const auto has_dropped = [&](int count) {
    std::string out;
    metrics::PrometheusText text(out);
    (*log)->write(text);
    return out.find("\npagoda:access_log_dropped_total " + std::to_string(count) + "\n") != std::string::npos;
  };
  EXPECT_TRUE(has_dropped(0));
  for (int i = 0; i < 3; ++i) (*log)->on_end(RequestRecord{.request_id = std::to_string(i)});
  for (int i = 0; i < 2000 && !has_dropped(3); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_TRUE(has_dropped(3));
}

}  // namespace
}  // namespace pagoda::serving
