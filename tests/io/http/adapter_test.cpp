// Adapters that requests name as their models, and the routes that change them.

#include <filesystem>

#include <gmock/gmock.h>
#include <unistd.h>

#include "tests/io/http/api_server_fixture.hpp"

namespace pagoda::http {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using serving::ServedAdapters;
using testing::HasSubstr;

constexpr const char* kAdmin = "Authorization: Bearer admin\r\n";

class Adapters : public ApiServerTest {
 protected:
  Adapters() {
    fs::create_directories(root_ / "new");
    fs::create_directories(root_ / "damaged");
  }
  ~Adapters() override {
    server_.reset();
    fs::remove_all(root_);
  }

  /// The fake router knows "sql" and "poet".
  void start_with_adapters(bool may_change = true) {
    auto model = fake_model();
    model.aliases = {"alias"};
    model.adapters = std::make_shared<ServedAdapters>(
        std::vector<ServedAdapters::Adapter>{{0, "sql", "/adapters/sql"}, {0, "poet", "/adapters/poet"}},
        may_change ? root_.string() : "");
    ServerConfig config;
    config.keys = *serving::make_key_ring({}, {"admin"});
    start(std::move(model), std::move(config));
  }

  json complete(const std::string& members) {
    const auto answer = post("/v1/completions", R"({"prompt": "p", "max_tokens": 2, )" + members + "}");
    auto body = json::parse(answer.body);
    body["status"] = answer.status;
    return body;
  }
  std::string text_of(const std::string& members) {
    const auto body = complete(members);
    return body["status"] == 200 ? body["choices"][0]["text"].get<std::string>() : body.dump();
  }
  TestAnswer load(const std::string& name, const std::string& path, const std::string& more = "") {
    const json body{{"lora_name", name}, {"lora_path", path}};
    auto text = body.dump();
    text.insert(text.size() - 1, more);
    return post("/v1/load_lora_adapter", text, kAdmin);
  }
  TestAnswer unload(const std::string& name) {
    return post("/v1/unload_lora_adapter", json{{"lora_name", name}, {"lora_int_id", 3}}.dump(), kAdmin);
  }
  std::vector<std::string> models() {
    std::vector<std::string> ids;
    const auto list = json::parse(get("/v1/models").body);
    for (const auto& model : list.at("data")) ids.push_back(model.at("id"));
    return ids;
  }

  const fs::path root_ = fs::canonical(fs::temp_directory_path()) / ("http-adapters-" + std::to_string(::getpid()));
};

TEST_F(Adapters, AreNamedAsModels) {
  start_with_adapters();
  EXPECT_EQ(text_of(R"("model": "fake")"), "w0 w1 ");
  EXPECT_EQ(text_of(R"("model": "alias")"), "w0 w1 ");
  EXPECT_EQ(text_of(R"("model": null)"), "w0 w1 ");
  EXPECT_EQ(text_of(R"("model": "sql")"), "sql0 sql1 ");
  EXPECT_EQ(complete(R"("model": "sql")")["model"], "sql");
  EXPECT_EQ(complete(R"("model": "alias")")["model"], "fake");
  const auto unknown = complete(R"("model": "sqll")");
  EXPECT_EQ(unknown["status"], 404);
  EXPECT_EQ(unknown["error"]["code"], "model_not_found");
  EXPECT_EQ(unknown["error"]["param"], "model");
  EXPECT_THAT(unknown["error"]["message"].get<std::string>(), HasSubstr("Did you mean `sql`?"));
  EXPECT_THAT(unknown["error"]["message"].get<std::string>(), HasSubstr("`fake`, `alias`, `sql`, `poet`"));
}

TEST_F(Adapters, AreNamedInEveryApi) {
  start_with_adapters();
  const std::string messages = R"("messages": [{"role": "user", "content": "p"}], "max_tokens": 2)";
  auto body = json::parse(post("/v1/chat/completions", R"({"model": "poet", )" + messages + "}").body);
  EXPECT_EQ(body["choices"][0]["message"]["content"], "poet0 poet1 ");
  EXPECT_EQ(body["model"], "poet");
  body = json::parse(post("/v1/messages", R"({"model": "poet", )" + messages + "}").body);
  EXPECT_EQ(body["content"][0]["text"], "poet0 poet1 ");
  EXPECT_EQ(body["model"], "poet");
  body = json::parse(post("/v1/responses", R"({"model": "poet", "input": "p", "max_output_tokens": 2})").body);
  EXPECT_EQ(body["output"][0]["content"][0]["text"], "poet0 poet1 ") << body;
  EXPECT_EQ(body["model"], "poet");
  body = json::parse(post("/api/generate", R"({"model": "poet:latest", "prompt": "p", "stream": false,
                                               "options": {"num_predict": 2}})")
                         .body);
  EXPECT_EQ(body["response"], "poet0 poet1 ") << body;
  EXPECT_EQ(body["model"], "poet:latest");
  body = json::parse(post("/tokenize", R"({"model": "poet", "prompt": "ab"})").body);
  EXPECT_EQ(body["count"], 2) << body;
  EXPECT_EQ(json::parse(post("/v1/completions/render", R"({"model": "poet", "prompt": "ab"})").body)[0]["model"],
            "poet");
}

TEST_F(Adapters, AreNotNamedInAFieldOfTheirOwn) {
  start_with_adapters();
  const std::string adapter = R"("adapter": "poet", "model": "fake", )";
  const std::string messages = R"("max_tokens": 2, "messages": [{"role": "user", "content": "p"}])";
  for (const auto& [path, members] :
       std::vector<std::pair<const char*, std::string>>{{"/v1/completions", R"("prompt": "p")"},
                                                        {"/v1/chat/completions", messages},
                                                        {"/v1/messages", messages},
                                                        {"/v1/responses", R"("input": "p")"},
                                                        {"/api/generate", R"("prompt": "p")"},
                                                        {"/api/chat", messages}}) {
    const auto answer = post(path, "{" + adapter + members + "}");
    EXPECT_EQ(answer.status, 400) << path << answer.body;
    EXPECT_THAT(answer.body, HasSubstr("names its adapter as its model")) << path;
  }
  EXPECT_EQ(complete(R"("adapter": "poet")")["error"]["param"], "adapter");
  EXPECT_EQ(complete(R"("lora_path": "poet")")["error"]["param"], "lora_path");
  EXPECT_EQ(text_of(R"("adapter": null)"), "w0 w1 ");
}

TEST_F(Adapters, AreListed) {
  start_with_adapters();
  EXPECT_THAT(models(), testing::ElementsAre("fake", "alias", "sql", "poet"));
  const auto shown = json::parse(get("/v1/models/sql").body);
  EXPECT_EQ(shown["id"], "sql");
  EXPECT_EQ(shown["parent"], "fake");
  EXPECT_EQ(shown["root"], "/adapters/sql");
  EXPECT_EQ(json::parse(get("/v1/models/fake").body)["parent"], nullptr);
  EXPECT_EQ(get("/v1/models/nothing").status, 404);
  const auto tags = json::parse(get("/api/tags").body)["models"];
  ASSERT_EQ(tags.size(), 4U);
  EXPECT_EQ(tags[2]["name"], "sql:latest");
  EXPECT_EQ(tags[2]["details"]["parent_model"], "fake");
  EXPECT_EQ(tags[0]["digest"], tags[1]["digest"]);
  EXPECT_NE(tags[0]["digest"], tags[2]["digest"]);
  EXPECT_NE(tags[2]["digest"], tags[3]["digest"]);
}

TEST_F(Adapters, AreLoadedAndUnloaded) {
  start_with_adapters();
  const auto loaded = load("new", "new");
  EXPECT_EQ(loaded.status, 200) << loaded.body;
  EXPECT_EQ(loaded.body, "Success: LoRA adapter 'new' added successfully.");
  EXPECT_EQ(text_of(R"("model": "new")"), "new0 new1 ");
  EXPECT_EQ(json::parse(get("/v1/models/new").body)["root"], (root_ / "new").string());
  const auto again = load("new", "new");
  EXPECT_EQ(again.status, 400);
  EXPECT_EQ(json::parse(again.body)["error"]["param"], "lora_name");
  const auto unloaded = unload("new");
  EXPECT_EQ(unloaded.status, 200) << unloaded.body;
  EXPECT_EQ(unloaded.body, "Success: LoRA adapter 'new' removed successfully.");
  EXPECT_EQ(complete(R"("model": "new")")["status"], 404);
  EXPECT_EQ(unload("new").status, 404);
  EXPECT_EQ(load("new", "new").status, 200);
  EXPECT_EQ(unload("sql").status, 200);
  EXPECT_THAT(models(), testing::ElementsAre("fake", "alias", "poet", "new"));
}

TEST_F(Adapters, ThatCannotBeLoadedAreRefusedByName) {
  start_with_adapters();
  const auto refused = [&](const TestAnswer& answer) {
    EXPECT_EQ(answer.status, 400) << answer.body;
    return json::parse(answer.body)["error"]["param"].get<std::string>();
  };
  EXPECT_EQ(refused(load("fake", "new")), "lora_name");
  EXPECT_EQ(refused(load("alias", "new")), "lora_name");
  EXPECT_EQ(refused(load("poet", "new")), "lora_name");
  EXPECT_EQ(refused(load("", "new")), "lora_name");
  EXPECT_EQ(refused(load("x", "../new")), "lora_path");
  EXPECT_EQ(refused(load("x", "/etc")), "lora_path");
  EXPECT_EQ(refused(load("x", "nothing")), "lora_path");
  EXPECT_EQ(refused(load("x", "damaged")), "lora_path");
  EXPECT_EQ(refused(load("x", "new", R"(, "load_inplace": true)")), "load_inplace");
  EXPECT_EQ(refused(post("/v1/load_lora_adapter", R"({"lora_name": "x"})", kAdmin)), "lora_path");
  EXPECT_EQ(refused(post("/v1/unload_lora_adapter", "{}", kAdmin)), "lora_name");
  EXPECT_THAT(models(), testing::ElementsAre("fake", "alias", "sql", "poet"));
  EXPECT_EQ(load("x", "new", R"(, "load_inplace": false)").status, 200);
}

TEST_F(Adapters, AreChangedByAdminsOnly) {
  start_with_adapters();
  for (const char* path : {"/v1/load_lora_adapter", "/v1/unload_lora_adapter"}) {
    EXPECT_EQ(post(path, R"({"lora_name": "sql", "lora_path": "new"})").status, 401);
    EXPECT_EQ(post(path, R"({"lora_name": "sql", "lora_path": "new"})", "Authorization: Bearer x\r\n").status, 401);
  }
  EXPECT_THAT(models(), testing::ElementsAre("fake", "alias", "sql", "poet"));
}

TEST_F(Adapters, AreFixedUnlessUpdatesAreOn) {
  start_with_adapters(/*may_change=*/false);
  EXPECT_EQ(load("new", "new").status, 400);
  EXPECT_THAT(unload("sql").body, HasSubstr("--enable-lora-updates"));
  EXPECT_EQ(text_of(R"("model": "sql")"), "sql0 sql1 ");
}

TEST_F(Adapters, OfAModelWithoutThemAreAnError) {
  ServerConfig config;
  config.keys = *serving::make_key_ring({}, {"admin"});
  start(fake_model(), std::move(config));
  EXPECT_THAT(load("new", "new").body, HasSubstr("--enable-lora"));
  EXPECT_EQ(get("/lora-adapters").body, "[]");
  EXPECT_EQ(text_of(R"("lora": [])"), "w0 w1 ");
  EXPECT_THAT(complete(R"("lora": [{"id": 0, "scale": 1}])")["error"]["message"].get<std::string>(),
              HasSubstr("the model has none"));
  EXPECT_EQ(post("/lora-adapters", R"([{"id": 0, "scale": 0}])").status, 400);
}

TEST_F(Adapters, AreSelectedByNumberAsWithLlamaServer) {
  start_with_adapters();
  const auto listed = json::parse(get("/lora-adapters").body);
  ASSERT_EQ(listed.size(), 2U);
  EXPECT_EQ(listed[1]["id"], 1);
  EXPECT_EQ(listed[1]["path"], "/adapters/poet");
  EXPECT_EQ(listed[1]["scale"], 0);
  EXPECT_EQ(listed[1]["task_name"], "");  // what llama-server shows of a LoRA adapter without them
  EXPECT_EQ(listed[1]["prompt_prefix"], "");
  EXPECT_EQ(text_of(R"("lora": [{"id": 1, "scale": 1.0}])"), "poet0 poet1 ");
  EXPECT_EQ(text_of(R"("lora": [{"id": 0, "scale": 0}, {"id": 1, "scale": 1}])"), "poet0 poet1 ");
  EXPECT_EQ(text_of(R"("lora": [{"id": 0, "scale": 0.0}])"), "w0 w1 ");
  EXPECT_EQ(text_of(R"("lora": null)"), "w0 w1 ");
  EXPECT_EQ(text_of(R"("model": "poet", "lora": [{"id": 1, "scale": 1}])"), "poet0 poet1 ");
  for (const char* lora : {R"([{"id": 1, "scale": 0.5}])", R"([{"id": 2, "scale": 1}])", R"([{"scale": 1}])", "1",
                           R"([1])", R"([{"id": 1, "scale": "1"}])", R"([{"id": "1", "scale": 1}])",
                           R"([{"id": 0, "scale": 1}, {"id": 1, "scale": 1}])"}) {
    const auto refused = complete(std::string(R"("lora": )") + lora);
    EXPECT_EQ(refused["status"], 400) << lora;
    EXPECT_EQ(refused["error"]["param"], "lora") << lora;
  }
  EXPECT_THAT(complete(R"("lora": [{"id": 2, "scale": 1}])")["error"]["message"].get<std::string>(),
              HasSubstr("no adapter 2: the adapters are 0 (`sql`), 1 (`poet`)"));
}

TEST_F(Adapters, AreNotSelectedByAListThatContradictsTheModel) {
  start_with_adapters();
  const auto refused = [&](const std::string& members) {
    const auto answer = complete(members);
    EXPECT_EQ(answer["status"], 400) << members;
    EXPECT_EQ(answer["error"]["param"], "lora") << members;
    return answer["error"]["message"].get<std::string>();
  };
  EXPECT_THAT(refused(R"("model": "sql", "lora": [{"id": 1, "scale": 1}])"), HasSubstr("different adapters"));
  EXPECT_THAT(refused(R"("model": "sql", "lora": [{"id": 0, "scale": 0}])"), HasSubstr("adapter `sql`"));
  EXPECT_THAT(refused(R"("model": "sql", "lora": [{"id": 0}])"), HasSubstr("adapter `sql`"));
  EXPECT_THAT(refused(R"("lora": [{"id": 0, "scale": 1}, {"id": 0, "scale": 0}])"), HasSubstr("twice"));
  EXPECT_EQ(text_of(R"("model": "sql", "lora": [{"id": 1, "scale": 0}])"), "sql0 sql1 ");
  EXPECT_EQ(text_of(R"("model": "sql", "lora": [])"), "sql0 sql1 ");
  EXPECT_EQ(text_of(R"("model": "sql", "lora": null)"), "sql0 sql1 ");
}

TEST_F(Adapters, AreNotSelectedByUnknownKeys) {
  start_with_adapters();
  const auto unknown = complete(R"("lora": [{"id": 0, "scale": 1, "weight": 0.5}])");
  EXPECT_EQ(unknown["status"], 400);
  EXPECT_EQ(unknown["error"]["param"], "lora");
  EXPECT_THAT(unknown["error"]["message"].get<std::string>(), HasSubstr("unknown key \"weight\""));
  EXPECT_EQ(complete(R"("lora": [{"id": 0, "scale": 1, "name": "poet"}])")["status"], 400);
  // What the server itself has listed may be sent back.
  auto listed = json::parse(get("/lora-adapters").body);
  EXPECT_EQ(text_of("\"lora\": " + listed.dump()), "w0 w1 ");
  listed[1]["scale"] = 1;
  EXPECT_EQ(text_of("\"lora\": " + listed.dump()), "poet0 poet1 ");
}

TEST_F(Adapters, AreNotAppliedToAllRequests) {
  start_with_adapters();
  const auto refused = [&](const char* body) {
    const auto answer = post("/lora-adapters", body);
    EXPECT_EQ(answer.status, 400) << body;
    return answer.body;
  };
  EXPECT_EQ(post("/lora-adapters", R"([{"id": 0, "scale": 0}])").status, 200);
  EXPECT_EQ(post("/lora-adapters", R"([{"id": 1}])").status, 200);
  EXPECT_EQ(post("/lora-adapters", "[]").body, R"({"success":true})");
  EXPECT_EQ(post("/lora-adapters", get("/lora-adapters").body).status, 200);
  EXPECT_THAT(refused(R"([{"id": 0, "scale": 1}])"), HasSubstr("in a request's `lora`"));
  EXPECT_THAT(refused(R"([{"id": 7, "scale": 0}])"), HasSubstr("no adapter 7: the adapters are 0 (`sql`), 1 (`poet`)"));
  EXPECT_THAT(refused(R"([{"scale": 0}])"), HasSubstr("id and scale"));
  EXPECT_THAT(refused(R"([{"id": 0, "scale": 0, "weight": 1}])"), HasSubstr("weight"));
  EXPECT_THAT(refused("{}"), HasSubstr("list"));
  EXPECT_EQ(get("/lora-adapters?model=nobody").status, 404);
  EXPECT_EQ(post("/lora-adapters?model=nobody", "[]").status, 404);
}

TEST_F(Adapters, ThatTheEngineDoesNotKnowAreUnknownModels) {
  auto model = fake_model();
  model.adapters =
      std::make_shared<ServedAdapters>(std::vector<ServedAdapters::Adapter>{{0, "gone", "/adapters/gone"}}, "");
  start(std::move(model));
  const auto unknown = complete(R"("model": "gone")");
  EXPECT_EQ(unknown["status"], 404);
  EXPECT_EQ(unknown["error"]["param"], "model");
  EXPECT_EQ(unknown["error"]["code"], "model_not_found");
}

}  // namespace
}  // namespace pagoda::http
