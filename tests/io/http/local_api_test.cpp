// The routes without sockets, in front of a router that makes its outputs up.

#include "io/http/local_api.hpp"

#include <condition_variable>
#include <future>
#include <mutex>

#include "tests/io/http/api_server_fixture.hpp"

namespace pagoda::http {
namespace {

using nlohmann::json;

class LocalApiTest : public ApiServerTest {
 protected:
  LocalApiTest() {
    auto model = fake_model();
    model.router = router_;
    api_ = std::make_unique<LocalApi>(system_, ServedModels({std::move(model)}), ServerConfig());
  }
  ~LocalApiTest() override { api_.reset(); }

  LocalAnswer ask(std::string path, std::string body) {
    std::promise<LocalAnswer> promise;
    api_->post({std::move(path), std::move(body), "the-id"},
               [&promise](LocalAnswer answer) { promise.set_value(std::move(answer)); });
    auto answer = promise.get_future();
    if (answer.wait_for(std::chrono::seconds(60)) != std::future_status::ready) {
      ADD_FAILURE() << "no answer";
      api_.reset();  // which drops the callback
      return {};
    }
    return answer.get();
  }

  std::unique_ptr<LocalApi> api_;
};

TEST_F(LocalApiTest, AnAnswerIsThatOfTheServer) {
  start();
  const std::vector<std::pair<std::string, std::string>> requests{
      {"/v1/completions", R"({"prompt": "p"})"},
      {"/v1/chat/completions", R"({"messages": [{"role": "user", "content": "p"}], "max_tokens": 3})"},
      {"/v1/responses", R"({"input": "p", "max_output_tokens": 3})"},
      {"/v1/completions", R"({"prompt": 1.5})"},
      {"/v1/chat/completions", R"({"messages": [)"},
      {"/v1/no/such", R"({})"}};
  for (const auto& [path, body] : requests) {
    const auto local = ask(path, body);
    const auto remote = post(path, body, "x-request-id: the-id\r\n");
    EXPECT_EQ(local.status, remote.status) << path;
    auto expected = json::parse(remote.body);
    auto actual = json::parse(local.body);
    for (const char* changing : {"created", "created_at", "completed_at"}) {
      expected.erase(changing);
      actual.erase(changing);
    }
    EXPECT_EQ(actual.contains("output"), expected.contains("output"));
    if (expected.contains("output")) {  // responses and their items have ids of their own
      for (auto* response : {&expected, &actual}) {
        response->erase("id");
        for (auto& item : (*response)["output"]) item.erase("id");
      }
    }
    EXPECT_EQ(actual, expected) << path;
  }
}

TEST_F(LocalApiTest, AStreamIsThereAsAWhole) {
  const auto answer = ask("/v1/completions", R"({"prompt": "p", "stream": true})");
  EXPECT_EQ(answer.status, 200U);
  EXPECT_TRUE(answer.body.starts_with("data: {"));
  EXPECT_TRUE(answer.body.ends_with("data: [DONE]\n\n"));
}

TEST_F(LocalApiTest, ItKnowsWhatItServes) {
  EXPECT_TRUE(api_->serves("/v1/chat/completions"));
  EXPECT_FALSE(api_->serves("/v1/models"));  // which is read
}

TEST_F(LocalApiTest, ItsEndAbortsWhatIsLiveAndCallsNobody) {
  std::atomic<bool> is_called = false;
  api_->post({"/v1/completions", R"({"prompt": "silent"})", "a"}, [&](const LocalAnswer&) { is_called = true; });
  ASSERT_TRUE(eventually([&] { return counts_->submitted == 1; }));
  api_.reset();
  EXPECT_TRUE(eventually([&] { return counts_->live == 0; }));
  EXPECT_FALSE(is_called);
}

TEST_F(LocalApiTest, TheEngineEndsEveryRequest) {
  std::promise<LocalAnswer> promise;
  api_->post({"/v1/completions", R"({"prompt": "silent"})", "a"},
             [&promise](LocalAnswer answer) { promise.set_value(std::move(answer)); });
  ASSERT_TRUE(eventually([&] { return counts_->submitted == 1; }));
  end_router();
  EXPECT_GE(promise.get_future().get().status, 500U);
}

}  // namespace
}  // namespace pagoda::http
