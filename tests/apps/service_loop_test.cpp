#include "apps/service_loop.hpp"

#include <atomic>
#include <chrono>
#include <csignal>
#include <future>
#include <map>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>

#include <gtest/gtest.h>
#include <unistd.h>

#include "io/json_lines/server.hpp"
#include "pagoda/spawn_engine.hpp"
#include "tests/io/json_lines/test_client.hpp"
#include "tests/pagoda/test_models.hpp"
#include "tests/support/split_memory_device.hpp"

namespace pagoda::apps {
namespace {

using json_lines::TestClient;
using nlohmann::json;

constexpr auto kPatience = std::chrono::seconds(60);
constexpr double kDrainTimeout = 30;

/// What `pagoda serve` runs, on a device that can be made to fail.
class Service : public ::testing::Test {
 protected:
  Service() {
    init_actor_types();
    actors::configure_pool(system_config_, 2);
    system_ = std::make_unique<caf::actor_system>(system_config_);
    EngineConfig config;
    config.model = test::demo_model();
    config.device = "cuda";
    config.enforce_eager = true;
    config.max_num_seqs = 8;
    auto engine = spawn_engine(*system_, config, {.device = device_});
    EXPECT_TRUE(engine) << engine.error().message;
    engine_ = std::move(*engine);
    json_lines::ServerConfig server_config;
    server_config.listen = "127.0.0.1:0";
    serving::ServedModels models({serving::ServedModel{.info = engine_.model, .router = engine_.router}});
    server_ = std::move(*json_lines::Server::start(*system_, std::move(models), server_config));
    std::signal(SIGHUP, SIG_DFL);  // where the tests run under nohup it would stay ignored
    loop_ = std::make_unique<ServiceLoop>(*system_,
                                          ServedEngines{.routers = {engine_.router}, .supervisor = engine_.supervisor},
                                          std::vector<serving::FrontEnd*>{server_.get()}, kDrainTimeout);
    loop_->on_reload([this] {
      if (++reloads_ == 1) throw std::runtime_error("the keys cannot be read");
    });
    exit_code_ = std::async(std::launch::async, [this] { return loop_->run(); });
  }
  ~Service() override {
    if (exit_code_.valid()) ::kill(::getpid(), SIGTERM);
    if (exit_code_.valid()) exit_code_.wait();
    end_engine(engine_);
  }

  static json generate(const std::string& id) {
    return {{"id", id}, {"prompt", "Once upon a time"}, {"max_tokens", 900}, {"ignore_eos", true}};
  }

  std::shared_ptr<test::SplitMemoryDevice> device_ = std::make_shared<test::SplitMemoryDevice>();
  caf::actor_system_config system_config_;
  std::unique_ptr<caf::actor_system> system_;
  EngineHandle engine_;
  std::unique_ptr<json_lines::Server> server_;
  std::unique_ptr<ServiceLoop> loop_;
  std::future<int> exit_code_;
  std::atomic<int> reloads_ = 0;
};

TEST_F(Service, HearsSignalsAlsoAfterAReloadThatThrows) {
  for (const int count : {1, 2}) {
    ::kill(::getpid(), SIGHUP);
    for (int i = 0; i < 2000 && reloads_ < count; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    ASSERT_EQ(reloads_, count);
  }
  ::kill(::getpid(), SIGTERM);
  ASSERT_EQ(exit_code_.wait_for(kPatience), std::future_status::ready);
  EXPECT_EQ(exit_code_.get(), kExitOk);
}

TEST_F(Service, EndsWithAFailureWhenItsDeviceIsLostAndEveryLiveRequestHasBeenTold) {
  TestClient client(server_->port());
  client.send({{"op", "stats"}, {"id", "s"}});
  EXPECT_EQ(client.receive()["health"], "ok");
  constexpr int kRequests = 5;
  for (int i = 0; i < kRequests; ++i) client.send(generate(std::to_string(i)));
  EXPECT_EQ(client.receive()["event"], "delta");
  device_->break_after("pagoda-step", 200, false);
  std::map<std::string, int> errors;
  for (auto event = client.receive(); !event.is_null(); event = client.receive()) {
    if (event["event"] == "delta") continue;
    ASSERT_EQ(event["event"], "error") << event;
    EXPECT_EQ(event["error"]["code"], "internal");
    EXPECT_NE(event["error"]["message"].get<std::string>().find("the device was told to break"), std::string::npos);
    ++errors[event["id"].get<std::string>()];
  }
  EXPECT_FALSE(client.timed_out) << "the connection is closed";
  EXPECT_EQ(errors.size(), static_cast<std::size_t>(kRequests));
  for (const auto& [id, count] : errors) EXPECT_EQ(count, 1) << id;
  ASSERT_EQ(exit_code_.wait_for(kPatience), std::future_status::ready);
  EXPECT_EQ(exit_code_.get(), kExitFailure);
}

TEST_F(Service, EndsWithAFailureWhenItsDeviceIsLostWhileItDrains) {
  TestClient client(server_->port());
  client.send(generate("a"));
  EXPECT_EQ(client.receive()["event"], "delta");
  ::kill(::getpid(), SIGTERM);
  device_->break_after("pagoda-step", 500, false);
  const auto events = client.receive_until_end("a");
  ASSERT_FALSE(events.empty());
  EXPECT_EQ(events.back()["event"], "error");
  ASSERT_EQ(exit_code_.wait_for(kPatience), std::future_status::ready);
  EXPECT_EQ(exit_code_.get(), kExitFailure);
}

TEST_F(Service, TellsWhoeverComesWhileItDrainsThatItDoes) {
  TestClient client(server_->port());
  client.send(generate("a"));
  EXPECT_EQ(client.receive()["event"], "delta");
  ::kill(::getpid(), SIGTERM);
  auto refused = json::object();
  while (refused.value("event", "") != "error") {  // the signal takes its time
    TestClient late(server_->port());
    auto request = generate("late");
    request["max_tokens"] = 1;
    ASSERT_TRUE(late.send(request));
    const auto events = late.receive_until_end("late");
    ASSERT_FALSE(events.empty());
    refused = events.back();
  }
  EXPECT_EQ(refused["error"]["code"], "shutting_down");
  EXPECT_EQ(client.receive_until_end("a").back()["event"], "done");
  ASSERT_EQ(exit_code_.wait_for(kPatience), std::future_status::ready);
  EXPECT_EQ(exit_code_.get(), kExitOk);
}

TEST_F(Service, GoesOnWhenOneStreamOfItsDeviceFails) {
  TestClient client(server_->port());
  auto request = generate("a");
  request["max_tokens"] = 60;
  client.send(request);
  EXPECT_EQ(client.receive()["event"], "delta");
  device_->break_after("pagoda-step", 100, true);
  EXPECT_EQ(client.receive_until_end("a").back()["event"], "done");
  EXPECT_EQ(device_->num_streams_broken(), 1);
  client.send({{"op", "stats"}, {"id", "s"}});
  const auto stats = client.receive();
  EXPECT_EQ(stats["health"], "ok");
  EXPECT_EQ(stats["worker_restarts_total"], 1);
  ::kill(::getpid(), SIGTERM);
  ASSERT_EQ(exit_code_.wait_for(kPatience), std::future_status::ready);
  EXPECT_EQ(exit_code_.get(), kExitOk);
}

}  // namespace
}  // namespace pagoda::apps
