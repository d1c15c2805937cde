#pragma once

#include <chrono>
#include <memory>
#include <thread>

#include <gtest/gtest.h>

#include "io/json_lines/server.hpp"
#include "io/serving/session.hpp"
#include "tests/io/json_lines/fake_router.hpp"
#include "tests/io/json_lines/test_client.hpp"

namespace pagoda::json_lines {

/// A server on a free port in front of a fake router.
class ServerTest : public testing::Test {
 protected:
  ServerTest() : system_(configured()) { router_ = spawn_fake_router(system_, counts_); }

  ~ServerTest() override {
    server_.reset();
    caf::anon_send_exit(router_, caf::exit_reason::user_shutdown);
  }

  void start(ServerConfig config = {}, std::shared_ptr<const chat::ChatPrompts> chat = nullptr) {
    config.listen = "127.0.0.1:0";
    if (config.close_grace_ms == ServerConfig{}.close_grace_ms) config.close_grace_ms = 3000;
    auto server = Server::start(system_, fake_model(std::move(chat)), std::move(config), telemetry_);
    ASSERT_TRUE(server.has_value()) << server.error().message;
    server_ = std::move(*server);
  }

  serving::ServedModels fake_model(std::shared_ptr<const chat::ChatPrompts> chat = nullptr) const {
    serving::ServedModel model{.info = {}, .router = router_, .chat = std::move(chat)};
    model.info.name = "fake";
    return serving::ServedModels({std::move(model)});
  }

  TestClient client(int receive_buffer_bytes = 0) { return TestClient(server_->port(), receive_buffer_bytes); }

  static nlohmann::json generate(const std::string& id, const std::string& prompt, std::int64_t max_tokens = 3) {
    return {{"id", id}, {"prompt", prompt}, {"max_tokens", max_tokens}};
  }

  /// True as soon as `condition()` holds, false when it does not for a long time.
  template <class Condition>
  static bool eventually(Condition condition) {
    for (int i = 0; i < 2000; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return false;
  }

  caf::actor_system_config& configured() {
    serving::init_actor_types();
    actors::configure_pool(system_config_, 2);
    return system_config_;
  }

  caf::actor_system_config system_config_;
  caf::actor_system system_;
  std::shared_ptr<FakeRouterCounts> counts_ = std::make_shared<FakeRouterCounts>();
  actors::RequestRouterActor router_;
  std::shared_ptr<serving::Telemetry> telemetry_ = std::make_shared<serving::Telemetry>();
  std::unique_ptr<Server> server_;
};

}  // namespace pagoda::json_lines
