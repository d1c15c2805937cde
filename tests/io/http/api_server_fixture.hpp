#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "io/http/api_server.hpp"
#include "io/serving/session.hpp"
#include "tests/io/http/test_client.hpp"
#include "tests/io/json_lines/fake_router.hpp"

namespace pagoda::http {

/// All routes on a free port, in front of a fake router. The model's template joins the contents of messages.
class ApiServerTest : public testing::Test {
 protected:
  ApiServerTest() : system_(configured()) { router_ = json_lines::spawn_fake_router(system_, counts_); }

  ~ApiServerTest() override {
    server_.reset();
    end_router();
  }

  void start(ServedModel model = fake_model(), ServerConfig config = {}) {
    config.http = "127.0.0.1:0";
    model.router = router_;
    auto server = ApiServer::start(system_, ServedModels({std::move(model)}), std::move(config));
    ASSERT_TRUE(server.has_value()) << server.error().message;
    server_ = std::move(*server);
  }

  static ServedModel fake_model() {
    ServedModel model;
    model.info.name = "fake";
    constexpr const char* kTemplate = "{% for message in messages %}{{ message.content }}{% endfor %}";
    model.chat = std::make_shared<const chat::ChatPrompts>(chat::ChatPrompts::parse(kTemplate, {}).value());
    return model;
  }

  TestClient client() { return TestClient(server_->port()); }

  /// Each on a connection of its own.
  TestAnswer get(std::string_view path, std::string_view headers = {}) {
    auto c = client();
    c.get(path, headers);
    return c.receive();
  }
  TestAnswer post(std::string_view path, std::string_view body, std::string_view headers = {}) {
    auto c = client();
    c.post(path, body, headers);
    return c.receive();
  }

  /// True as soon as `condition()` holds, false when it does not for a long time.
  template <class Condition>
  static bool eventually(Condition condition) {
    for (int i = 0; i < 4000; ++i) {
      if (condition()) return true;
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
    return false;
  }

  void drain_router() {
    caf::scoped_actor self{system_};
    actors::ask(self, router_, actors::Drain{0}, [](actors::Drained&) {});
  }
  void end_router() { caf::anon_send_exit(router_, caf::exit_reason::user_shutdown); }

  caf::actor_system_config& configured() {
    serving::init_actor_types();
    actors::configure_pool(system_config_, 2);
    return system_config_;
  }

  caf::actor_system_config system_config_;
  caf::actor_system system_;
  std::shared_ptr<json_lines::FakeRouterCounts> counts_ = std::make_shared<json_lines::FakeRouterCounts>();
  actors::RequestRouterActor router_;
  std::unique_ptr<ApiServer> server_;
};

}  // namespace pagoda::http
