// The page for browsers: its files, who gets them, and the stream of what the engine does.

#include <gmock/gmock.h>

#include "io/http/page/files.hpp"
#include "io/http/page/view_text.hpp"
#include "tests/io/http/api_server_fixture.hpp"

namespace pagoda::http {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr const char* kBrowser = "Accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n";

class PageTest : public ApiServerTest {
 protected:
  static ServerConfig with_keys(const std::vector<std::string>& api, const std::vector<std::string>& admin) {
    ServerConfig config;
    config.keys = *serving::make_key_ring(api, admin);
    return config;
  }

  int status_of_live(std::string_view headers = {}) {
    auto c = client();
    c.get("/ui/live", headers);
    return c.receive_head().status;
  }
};

TEST_F(PageTest, ABrowserGetsThePageAndAProgramWhatOllamasClientsExpect) {
  start();
  const auto page = get("/", kBrowser);
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.headers.at("content-type"), "text/html; charset=utf-8");
  EXPECT_THAT(page.body, HasSubstr("<title>Pagoda</title>"));
  for (const char* other : {"", "Accept: */*\r\n", "Accept: application/json\r\n"}) {
    const auto answer = get("/", other);
    EXPECT_EQ(answer.body, "Ollama is running") << other;
    EXPECT_EQ(answer.headers.at("vary"), "accept");
  }
}

TEST_F(PageTest, BrowsersThatShowSomethingElseFindItsIconToo) {
  start();
  const auto icon = get("/favicon.ico");
  EXPECT_EQ(icon.headers.at("content-type"), "image/svg+xml");
  EXPECT_EQ(icon.body, get("/ui/icon.svg").body);
}

TEST_F(PageTest, WithoutItOnlyThePageIsMissing) {
  ServerConfig config;
  config.page = false;
  start(fake_model(), config);
  EXPECT_EQ(get("/", kBrowser).body, "Ollama is running");
  EXPECT_EQ(get("/ui/main.js").status, 404);
  EXPECT_EQ(get("/favicon.ico").status, 404);
  EXPECT_EQ(get("/ui/live").status, 404);
}

TEST_F(PageTest, ItsFilesMayLoadNothingFromElsewhereAndBeInNoFrame) {
  start();
  ASSERT_FALSE(page::files().empty());
  for (const page::File& file : page::files()) {
    const auto answer = get("/ui/" + std::string(file.name));
    EXPECT_EQ(answer.status, 200) << file.name;
    EXPECT_EQ(answer.body, file.body) << file.name;
    EXPECT_EQ(answer.headers.at("x-content-type-options"), "nosniff");
    const auto& policy = answer.headers.at("content-security-policy");
    EXPECT_THAT(policy, HasSubstr("default-src 'none'"));
    EXPECT_THAT(policy, HasSubstr("frame-ancestors 'none'"));
    EXPECT_THAT(policy, Not(HasSubstr("unsafe")));
    EXPECT_THAT(policy, Not(HasSubstr("http")));
    EXPECT_THAT(answer.headers.at("content-type"), Not(HasSubstr("octet-stream"))) << file.name;
  }
  EXPECT_EQ(get("/ui/none.js").status, 404);
  EXPECT_EQ(get("/ui/..%2Fmain.js").status, 400);
}

TEST_F(PageTest, AFileThatABrowserHasIsNotSentAgain) {
  start();
  const auto first = get("/ui/main.js");
  auto c = client();
  c.get("/ui/main.js", "If-None-Match: " + first.headers.at("etag") + "\r\n");
  EXPECT_EQ(c.receive(true).status, 304);
  EXPECT_EQ(get("/ui/main.js", "If-None-Match: \"other\"\r\n").status, 200);
}

/// Markup out of text would be a hole, whatever the text is; and what is not part of the page is not loaded.
TEST_F(PageTest, ItIsSmallAndMakesNoMarkupOfTexts) {
  std::size_t bytes = 0;
  for (const page::File& file : page::files()) {
    bytes += file.body.size();
    const std::string body(file.body);
    for (const char* never :
         {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"}) {
      EXPECT_THAT(body, Not(HasSubstr(never))) << file.name;
    }
    if (!file.name.ends_with(".svg")) {
      EXPECT_THAT(body, Not(HasSubstr("//www."))) << file.name;
    }
    EXPECT_THAT(body, Not(HasSubstr("https://"))) << file.name;
  }
  EXPECT_LE(bytes, 150U << 10);
}

TEST_F(PageTest, WhoWatchesIsToldAgainAndAgainAndThenNobodyIsAsked) {
  start();
  auto c = client();
  c.get("/ui/live");
  const auto head = c.receive_head();
  EXPECT_EQ(head.status, 200);
  EXPECT_EQ(head.headers.at("content-type"), "text/event-stream");
  EXPECT_EQ(head.headers.at("cache-control"), "no-store");
  for (int i = 0; i < 3; ++i) {
    const auto event = c.receive_chunk();
    ASSERT_TRUE(event.has_value());
    ASSERT_TRUE(event->starts_with("data: ") && event->ends_with("\n\n")) << *event;
    const auto shown = nlohmann::json::parse(event->substr(6));
    EXPECT_EQ(shown["stats"]["requests_running"], 0);
    EXPECT_TRUE(shown["blocks"]["cells"].is_array());
  }
  const int views = counts_->views;
  EXPECT_GE(views, 3);
  c.close();
  ASSERT_TRUE(eventually([&] { return server_->num_connections() == 0; }));
  const int after = counts_->views;
  std::this_thread::sleep_for(std::chrono::milliseconds(1000));
  EXPECT_EQ(counts_->views, after);
}

TEST_F(PageTest, ManyWatchersCostTheEngineNoMoreThanOneAndAreBounded) {
  start();
  std::vector<TestClient> watchers;
  for (int i = 0; i < 16; ++i) {
    watchers.push_back(client());
    watchers.back().get("/ui/live");
    ASSERT_EQ(watchers.back().receive_head().status, 200);
  }
  EXPECT_EQ(status_of_live(), 503);
  const int before = counts_->views;
  for (auto& each : watchers) ASSERT_TRUE(each.receive_chunk().has_value());
  for (auto& each : watchers) ASSERT_TRUE(each.receive_chunk().has_value());
  EXPECT_LE(counts_->views - before, 8);
  watchers.pop_back();
  EXPECT_TRUE(eventually([&] { return status_of_live() == 200; }));
}

TEST_F(PageTest, ItsStreamEndsWithTheServerAndWithTheEngine) {
  start();
  auto c = client();
  c.get("/ui/live");
  c.receive_head();
  ASSERT_TRUE(c.receive_chunk().has_value());
  end_router();
  std::string last;
  while (const auto chunk = c.receive_chunk()) {
    if (chunk->empty()) break;
    last = *chunk;
  }
  EXPECT_TRUE(last.starts_with("event: end\ndata: ")) << last;

  auto other = client();
  other.get("/ui/live");
  EXPECT_EQ(other.receive_head().status, 200);
  const auto began = std::chrono::steady_clock::now();
  server_->shutdown(std::chrono::seconds(10));
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(5));
}

TEST_F(PageTest, AStreamThatIsOpenDoesNotHoldUpTheEndOfTheServer) {
  start();
  auto c = client();
  c.get("/ui/live");
  c.receive_head();
  ASSERT_TRUE(c.receive_chunk().has_value());
  const auto began = std::chrono::steady_clock::now();
  server_->begin_drain();
  ASSERT_TRUE(c.receive_chunk().has_value());
  server_->shutdown(std::chrono::seconds(10));
  EXPECT_LT(std::chrono::steady_clock::now() - began, std::chrono::seconds(5));
}

TEST_F(PageTest, WithoutKeysEverybodyMayWatch) {
  start();
  EXPECT_EQ(status_of_live(), 200);
}

TEST_F(PageTest, WithKeysAnAdminMayWatchAndEverybodyMaySeeThePage) {
  start(fake_model(), with_keys({"user"}, {"admin"}));
  EXPECT_EQ(status_of_live(), 401);
  EXPECT_EQ(status_of_live("Authorization: Bearer wrong\r\n"), 401);
  EXPECT_EQ(status_of_live("Authorization: Bearer user\r\n"), 403);
  EXPECT_EQ(status_of_live("Authorization: Bearer admin\r\n"), 200);
  EXPECT_EQ(get("/", kBrowser).status, 200);
  EXPECT_EQ(get("/ui/main.js").status, 200);
}

TEST_F(PageTest, WithKeysOfOneKindOnlyAdminsMayWatch) {
  start(fake_model(), with_keys({"user"}, {}));
  EXPECT_EQ(status_of_live(), 403) << "nobody has such a key";
  EXPECT_EQ(status_of_live("Authorization: Bearer user\r\n"), 403);
  server_.reset();
  start(fake_model(), with_keys({}, {"admin"}));
  EXPECT_EQ(status_of_live(), 401);
  EXPECT_EQ(status_of_live("Authorization: Bearer admin\r\n"), 200);
}

TEST(ViewText, HasCellsInRunsAndTimesFromTheArrivalOn) {
  view::EngineView view;
  view.now_us = 10'000'000;
  view.blocks.num_blocks = 6;
  view.blocks.block_size = 16;
  view.blocks.cells = {{0, 2, true}, {0, 2, true}, {}, {}, {}, {-1, 0, true}};
  view.blocks.owners = {{7, 5, false, 2, 30}};
  view.blocks.num_owners = 1;
  view.blocks.moves = {{9, view::MoveKind::copy, 3, 4}};
  view::LiveRequest live;
  live.id = 5;
  live.state = view::RequestState::running;
  live.adapter = "sql";
  live.arrival_us = 9'000'000;
  live.first_scheduled_us = 9'250'000;
  live.draft_tokens = 12;
  live.drafts_accepted = 8;
  view.queues.requests = {live};
  view::EndedRequest ended;
  ended.id = 4;
  ended.arrival_us = 1'000'000;
  ended.first_scheduled_us = 1'000'500;
  ended.first_token_us = 2'000'000;
  ended.ended_us = 4'000'000;
  ended.draft_tokens = 3;
  view.ended = {ended};
  trace::Span span;
  span.row = trace::Row::device;
  span.name = "step";
  span.started_us = 100;
  span.finished_us = 350;
  span.num_args = 1;
  span.all_args[0] = {"step", 9};
  view.spans = {span};
  const auto shown = nlohmann::json::parse(page::view_text(view));
  EXPECT_EQ(shown["blocks"]["cells"], (std::vector<int>{2, 1, 2, 1, 3, 0, 0, 0, 1, 0, 0, 1}));
  EXPECT_EQ(shown["blocks"]["owners"][0]["request"], 5);
  EXPECT_EQ(shown["blocks"]["moves"][0]["kind"], "copy");
  EXPECT_EQ(shown["requests"][0]["state"], "running");
  EXPECT_EQ(shown["requests"][0]["adapter"], "sql");
  EXPECT_TRUE(shown["ended"][0]["adapter"].is_null()) << "the base model";
  EXPECT_EQ(shown["requests"][0]["age_ms"], 1000);
  EXPECT_EQ(shown["requests"][0]["queue_ms"], 250);
  EXPECT_TRUE(shown["requests"][0]["ttft_ms"].is_null());
  EXPECT_EQ(shown["requests"][0]["draft_tokens"], 12);
  EXPECT_EQ(shown["requests"][0]["drafts_accepted"], 8);
  EXPECT_EQ(shown["ended"][0]["draft_tokens"], 3);
  EXPECT_EQ(shown["ended"][0]["drafts_accepted"], 0);
  EXPECT_EQ(shown["ended"][0]["finish_reason"], "error");
  EXPECT_EQ(shown["ended"][0]["queue_ms"], 0.5);
  EXPECT_EQ(shown["ended"][0]["total_ms"], 3000);
  EXPECT_EQ(shown["ended"][0]["ended_ms_ago"], 6000);
  EXPECT_EQ(shown["spans"][0]["row"], "device");
  EXPECT_EQ(shown["spans"][0]["duration_us"], 250);
  EXPECT_EQ(shown["spans"][0]["step"], 9);
}

}  // namespace
}  // namespace pagoda::http
