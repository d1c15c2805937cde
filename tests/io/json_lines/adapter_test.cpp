// Adapters of requests, and the ops that change them.

#include <filesystem>

#include <gmock/gmock.h>
#include <unistd.h>

#include "tests/io/json_lines/server_fixture.hpp"

namespace pagoda::json_lines {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using serving::ServedAdapters;
using testing::HasSubstr;

class LineAdapters : public ServerTest {
 protected:
  LineAdapters() { fs::create_directories(root_ / "new"); }
  ~LineAdapters() override {
    server_.reset();
    fs::remove_all(root_);
  }

  /// The fake router knows "sql" and "poet".
  void start_with_adapters() {
    serving::ServedModel model{.info = {}, .router = router_};
    model.info.name = "fake";
    model.adapters = std::make_shared<ServedAdapters>(
        std::vector<ServedAdapters::Adapter>{{0, "sql", "/adapters/sql"}, {0, "poet", "/adapters/poet"}},
        root_.string());
    serving::ServedModel other{.info = {}, .router = router_};
    other.info.name = "other";
    ServerConfig config;
    config.listen = "127.0.0.1:0";
    config.keys = *serving::make_key_ring({}, {"admin"});
    auto server = Server::start(system_, serving::ServedModels({std::move(model), std::move(other)}), std::move(config),
                                telemetry_);
    ASSERT_TRUE(server.has_value()) << server.error().message;
    server_ = std::move(*server);
  }

  static json answer_to(TestClient& c, const json& line) {
    c.send(line);
    return c.receive();
  }
  json done(TestClient& c, json members) {
    members.update({{"id", "g"}, {"prompt", "p"}, {"max_tokens", 2}});
    c.send(members);
    return c.receive_until_end("g").back();
  }
  std::string text_of(TestClient& c, const json& members) {
    const auto last = done(c, members);
    return last["event"] == "done" ? last["outputs"][0]["text"].get<std::string>() : last.dump();
  }

  const fs::path root_ = fs::canonical(fs::temp_directory_path()) / ("line-adapters-" + std::to_string(::getpid()));
};

TEST_F(LineAdapters, AreNamedByRequests) {
  start_with_adapters();
  auto c = client();
  EXPECT_EQ(text_of(c, {{"model", "fake"}}), "w0 w1 ");
  EXPECT_EQ(text_of(c, {{"model", "fake"}, {"adapter", "sql"}}), "sql0 sql1 ");
  EXPECT_EQ(text_of(c, {{"adapter", "poet"}}), "poet0 poet1 ");
  EXPECT_EQ(text_of(c, {{"model", "poet"}}), "poet0 poet1 ");
  EXPECT_EQ(text_of(c, {{"model", "poet"}, {"adapter", "poet"}}), "poet0 poet1 ");
  EXPECT_EQ(done(c, {{"model", "poet"}, {"adapter", "sql"}})["error"]["param"], "adapter");
  EXPECT_EQ(done(c, {{"model", "fake"}, {"adapter", 1}})["error"]["param"], "adapter");
  const auto unknown = done(c, {{"model", "fake"}, {"adapter", "sqll"}});
  EXPECT_EQ(unknown["error"]["code"], "unknown_adapter");
  EXPECT_EQ(unknown["error"]["param"], "adapter");
  EXPECT_EQ(unknown["error"]["message"], "there is no adapter `sqll`. Did you mean `sql`? Adapters: `sql`, `poet`");
  EXPECT_EQ(done(c, {{"model", "fake"}, {"adapter", "nobody"}})["error"]["message"],
            "there is no adapter `nobody`. Adapters: `sql`, `poet`");
  const auto no_model = done(c, {{"model", "sqll"}})["error"];
  EXPECT_EQ(no_model["param"], "model");
  EXPECT_THAT(no_model["message"].get<std::string>(), HasSubstr("Did you mean `sql`?"));
  EXPECT_EQ(done(c, {{"adapter", "sqll"}})["error"]["param"], "model");
}

TEST_F(LineAdapters, AreLoadedListedAndUnloaded) {
  start_with_adapters();
  auto c = client();
  const json load{{"op", "load_adapter"}, {"id", "l"}, {"model", "fake"}, {"name", "new"}, {"path", "new"}};
  EXPECT_EQ(answer_to(c, load)["error"]["code"], "unauthorized");
  EXPECT_EQ(answer_to(c, {{"op", "auth"}, {"key", "admin"}})["event"], "ok");
  EXPECT_EQ(answer_to(c, load), (json{{"event", "ok"}, {"id", "l"}}));
  EXPECT_EQ(text_of(c, {{"adapter", "new"}}), "new0 new1 ");
  EXPECT_EQ(answer_to(c, {{"op", "adapters"}, {"id", "a"}, {"model", "fake"}}),
            (json{{"event", "adapters"},
                  {"id", "a"},
                  {"adapters",
                   {{{"name", "sql"}, {"path", "/adapters/sql"}},
                    {{"name", "poet"}, {"path", "/adapters/poet"}},
                    {{"name", "new"}, {"path", (root_ / "new").string()}}}}}));
  EXPECT_EQ(answer_to(c, load)["error"]["param"], "name");
  const json unload{{"op", "unload_adapter"}, {"id", "u"}, {"model", "fake"}, {"name", "new"}};
  EXPECT_EQ(answer_to(c, unload)["event"], "ok");
  EXPECT_EQ(answer_to(c, unload)["error"]["code"], "unknown_adapter");
  EXPECT_EQ(done(c, {{"model", "fake"}, {"adapter", "new"}})["error"]["code"], "unknown_adapter");
  auto wrong = load;
  wrong["path"] = "../new";
  EXPECT_THAT(answer_to(c, wrong)["error"]["message"].get<std::string>(), testing::StartsWith("path must be below"));
  wrong["path"] = "new";
  wrong["name"] = "other";
  EXPECT_EQ(answer_to(c, wrong)["error"]["param"], "name");
  wrong["model"] = "other";
  EXPECT_THAT(answer_to(c, wrong)["error"]["message"].get<std::string>(), HasSubstr("--enable-lora"));
  EXPECT_EQ(answer_to(c, {{"op", "adapters"}, {"model", "other"}})["adapters"], json::array());
  EXPECT_EQ(answer_to(c, {{"op", "load_adapter"}, {"model", "fake"}, {"name", "x"}})["error"]["param"], "path");
}

}  // namespace
}  // namespace pagoda::json_lines
