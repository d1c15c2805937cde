// Keys with names and limits, and what admins may do.

#include <map>
#include <set>

#include "tests/io/http/api_server_fixture.hpp"

namespace pagoda::http {
namespace {

using nlohmann::json;
using serving::KeyRole;
using serving::TenantLimits;

constexpr const char* kGenerate = R"({"prompt": "p", "max_tokens": 2})";

std::string with_key(const std::string& key) {
  return "Authorization: Bearer " + key + "\r\n";
}

class Tenants : public ApiServerTest {
 protected:
  void start_with(const TenantLimits& alices) {
    add("alice", KeyRole::user, alices);
    add("bob", KeyRole::user, {});
    add("root", KeyRole::admin, {});
    config_.keys->replace(keys_);
    start(fake_model(), config_);
  }
  /// The key of NAME is NAME-key.
  void add(const std::string& name, KeyRole role, const TenantLimits& limits) {
    EXPECT_TRUE(keys_.add(serving::digest_of(name + "-key"), {.name = name, .role = role, .limits = limits}));
  }
  json live_requests() { return json::parse(get("/admin/requests", with_key("root-key")).body)["requests"]; }
  /// An answer to a request that stays live.
  TestClient holding(const std::string& key, const std::string& more = "") {
    auto c = client();
    c.post("/v1/completions", R"({"prompt": "hold")" + more + "}", with_key(key) + "X-Request-Id: held\r\n");
    EXPECT_TRUE(eventually([&] { return counts_->live > 0; }));
    return c;
  }

  serving::KeySet keys_;
  ServerConfig config_;
};

TEST_F(Tenants, RequestsAMinuteAreLimitedForEachTenant) {
  start_with({.requests_per_minute = 2});
  const auto first = post("/v1/completions", kGenerate, with_key("alice-key"));
  EXPECT_EQ(first.status, 200);
  EXPECT_EQ(first.headers.at("x-ratelimit-limit-requests"), "2");
  EXPECT_EQ(first.headers.at("x-ratelimit-remaining-requests"), "1");
  EXPECT_EQ(first.headers.at("x-ratelimit-reset-requests"), "30s");
  EXPECT_FALSE(first.headers.contains("x-ratelimit-limit-tokens"));
  EXPECT_EQ(post("/v1/completions", kGenerate, with_key("alice-key")).status, 200);
  const auto refused = post("/v1/completions", kGenerate, with_key("alice-key"));
  EXPECT_EQ(refused.status, 429);
  const auto error = json::parse(refused.body)["error"];
  EXPECT_EQ(error["type"], "rate_limit_error");
  EXPECT_EQ(error["code"], "rate_limit_exceeded");
  const auto seconds = std::stoi(refused.headers.at("retry-after"));
  EXPECT_TRUE(seconds > 25 && seconds <= 30) << seconds;
  EXPECT_EQ(refused.headers.at("x-ratelimit-remaining-requests"), "0");
  EXPECT_EQ(counts_->submitted, 2);
  const auto others = post("/v1/completions", kGenerate, with_key("bob-key"));
  EXPECT_EQ(others.status, 200);
  EXPECT_FALSE(others.headers.contains("x-ratelimit-limit-requests"));
  EXPECT_EQ(get("/v1/models", with_key("alice-key")).status, 200) << "what generates is limited";
}

TEST_F(Tenants, EveryApiRefusesInItsShape) {
  start_with({.requests_per_minute = 1});
  EXPECT_EQ(post("/v1/completions", kGenerate, with_key("alice-key")).status, 200);
  const std::string messages = R"("messages": [{"role": "user", "content": "p"}])";
  const std::vector<std::pair<std::string, std::string>> all{{"/v1/chat/completions", "{" + messages + "}"},
                                                             {"/v1/responses", R"({"input": "p"})"},
                                                             {"/v1/messages", "{" + messages + R"(, "max_tokens": 1})"},
                                                             {"/api/generate", R"({"model": "fake", "prompt": "p"})"},
                                                             {"/api/chat", R"({"model": "fake", )" + messages + "}"}};
  for (const auto& [path, body] : all) {
    const auto refused = post(path, body, with_key("alice-key"));
    EXPECT_EQ(refused.status, 429) << path << refused.body;
    EXPECT_TRUE(refused.headers.contains("retry-after")) << path;
    const auto shown = json::parse(refused.body);
    if (path == "/v1/messages") {
      EXPECT_EQ(shown["error"]["type"], "rate_limit_error");
    }
    if (path.starts_with("/api")) {
      EXPECT_TRUE(shown["error"].is_string());
    }
  }
  EXPECT_EQ(counts_->submitted, 1);
}

TEST_F(Tenants, TokensOfPromptsAndOutputsAreLimited) {
  start_with({.tokens_per_minute = 60});
  // About 3 tokens by its bytes, one as the engine counts it, and 20 of output.
  const auto first = post("/v1/completions", R"({"prompt": "12345678", "max_tokens": 20})", with_key("alice-key"));
  EXPECT_EQ(first.status, 200);
  EXPECT_EQ(first.headers.at("x-ratelimit-limit-tokens"), "60");
  EXPECT_EQ(first.headers.at("x-ratelimit-remaining-tokens"), "39") << "what was estimated too high is given back";
  EXPECT_EQ(post("/v1/completions", R"({"prompt": [1, 2, 3], "max_tokens": 60})", with_key("alice-key")).status, 200);
  const auto refused = post("/v1/completions", kGenerate, with_key("alice-key"));
  EXPECT_EQ(refused.status, 429) << "it owes some 20";
  EXPECT_GT(std::stoi(refused.headers.at("retry-after")), 10);
}

TEST_F(Tenants, TokensOfAStreamThatItsClientLeavesCount) {
  start_with({.tokens_per_minute = 50});
  {
    auto c = client();
    c.post("/v1/completions", R"({"prompt": "endless"})", with_key("alice-key"));  // whole: the client sees nothing
    EXPECT_TRUE(eventually([&] { return post("/v1/completions", kGenerate, with_key("alice-key")).status == 429; }));
  }
  EXPECT_TRUE(eventually([&] { return counts_->live == 0; }));
}

TEST_F(Tenants, AtATimeNoMoreAreLiveThanAllowed) {
  start_with({.max_concurrent_requests = 1});
  {
    auto held = holding("alice-key");
    EXPECT_EQ(post("/v1/completions", kGenerate, with_key("alice-key")).status, 429);
    EXPECT_EQ(post("/v1/completions", kGenerate, with_key("bob-key")).status, 200);
    EXPECT_EQ(post("/v1/completions", R"({"prompt": ["a", "b"]})", with_key("alice-key")).status, 400) << "never";
  }
  EXPECT_TRUE(eventually([&] { return post("/v1/completions", kGenerate, with_key("alice-key")).status == 200; }))
      << "the client has gone";
  EXPECT_EQ(post("/v1/completions", R"({"prompt": "fail"})", with_key("alice-key")).status, 500);
  EXPECT_EQ(post("/v1/completions", R"({"prompt": "refuse"})", with_key("alice-key")).status, 400);
  EXPECT_EQ(post("/v1/completions", kGenerate, with_key("alice-key")).status, 200) << "the places are free";
}

TEST_F(Tenants, WhatTheEngineRefusesCostsNothing) {
  start_with({.requests_per_minute = 1});
  EXPECT_EQ(post("/v1/completions", R"({"prompt": "refuse"})", with_key("alice-key")).status, 400);
  EXPECT_EQ(post("/v1/completions", R"({"prompt": "p", "temprature": 1})", with_key("alice-key")).status, 400);
  EXPECT_EQ(post("/v1/completions", kGenerate, with_key("alice-key")).status, 200);
}

TEST_F(Tenants, AdminsSeeWhatIsLiveAndNothingThatWasSaid) {
  start_with({});
  auto held = holding("alice-key", R"(, "user": "bob")");
  const auto listed = get("/admin/requests", with_key("root-key"));
  EXPECT_EQ(listed.status, 200);
  EXPECT_EQ(listed.body.find("hold"), std::string::npos) << "the prompt";
  const auto requests = live_requests();
  ASSERT_EQ(requests.size(), 1U);
  EXPECT_EQ(requests[0]["request_id"], "held");
  EXPECT_EQ(requests[0]["tenant"], "alice") << "whatever it says";
  EXPECT_EQ(requests[0]["state"], "running");
  EXPECT_TRUE(requests[0]["age_s"].is_number());
}

TEST_F(Tenants, AdminsCancelRequests) {
  start_with({});
  auto held = holding("alice-key");
  const auto remove = [&](const std::string& id, const std::string& key = "root-key") {
    auto c = client();
    c.send("DELETE /admin/requests/" + id + " HTTP/1.1\r\nHost: x\r\n" + with_key(key) + "\r\n");
    return c.receive();
  };
  const auto id = std::to_string(live_requests()[0]["id"].get<int>());
  EXPECT_EQ(remove(id, "alice-key").status, 403);
  EXPECT_EQ(remove(id, "nobody").status, 401);
  EXPECT_EQ(remove("held").status, 400);
  EXPECT_EQ(remove("99999999999999999999999").status, 400);
  EXPECT_EQ(remove("-1").status, 400);
  EXPECT_EQ(remove("12345").status, 404);
  const auto cancelled = remove(id);
  EXPECT_EQ(cancelled.status, 200);
  EXPECT_EQ(json::parse(cancelled.body), json::parse(R"({"id": )" + id + R"(, "cancelled": true})"));
  const auto answer = held.receive();
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(json::parse(answer.body)["choices"][0]["finish_reason"], "abort");
  EXPECT_EQ(remove(id).status, 404);
}

TEST_F(Tenants, AdminsResetThePrefixCache) {
  start_with({});
  EXPECT_EQ(post("/admin/reset_prefix_cache", "", with_key("alice-key")).status, 403);
  EXPECT_EQ(post("/admin/reset_prefix_cache", R"({"all": true})", with_key("root-key")).status, 400);
  EXPECT_EQ(counts_->resets, 0);
  EXPECT_EQ(post("/admin/reset_prefix_cache", "{}", with_key("root-key")).status, 200);
  EXPECT_EQ(counts_->resets, 1);
}

TEST_F(Tenants, AdminsDrain) {
  start_with({});
  EXPECT_EQ(post("/admin/drain", "{}", with_key("alice-key")).status, 403);
  EXPECT_EQ(get("/ready").status, 200);
  const auto draining = post("/admin/drain", "{}", with_key("root-key"));
  EXPECT_EQ(draining.status, 200);
  EXPECT_EQ(json::parse(draining.body)["status"], "draining");
  EXPECT_EQ(get("/ready").status, 503);
  EXPECT_EQ(get("/health").status, 200);
  const auto refused = post("/v1/completions", kGenerate, with_key("alice-key"));
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(json::parse(refused.body)["error"]["code"], "shutting_down");
  EXPECT_EQ(post("/admin/drain", "{}", with_key("root-key")).status, 200) << "again, to see how far it is";
}

/// By the server's own table: a route that is added later is walked too.
TEST_F(Tenants, EveryRouteWantsItsKey) {
  start_with({});
  const auto path_of = [](const Routes::Route& route) {
    std::string path;
    for (const std::string& piece : route.pattern) path += "/" + (piece.starts_with('{') ? "1" : piece);
    return path;
  };
  const auto status = [&](const Routes::Route& route, const std::string& headers) {
    auto c = client();
    const std::string verb(to_string(route.verb));
    c.send(verb + " " + path_of(route) + " HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n" + headers + "\r\n");
    return c.receive_head().status;
  };
  std::set<std::string> open;
  std::map<Access, int> walked;
  for (const Routes::Route& route : server_->routes().all()) {
    SCOPED_TRACE(std::string(to_string(route.verb)) + " " + route.path);
    ++walked[route.access];
    if (route.access == Access::open) {
      open.insert(route.path);
      EXPECT_NE(status(route, ""), 401);
      continue;
    }
    EXPECT_EQ(status(route, ""), 401);
    EXPECT_EQ(status(route, with_key("wrong-key")), 401);
    const bool is_for_admins = route.access == Access::admin || route.access == Access::monitor;
    const int of_a_user = status(route, with_key("alice-key"));
    EXPECT_EQ(of_a_user == 401 || of_a_user == 403, is_for_admins) << of_a_user;
  }
  EXPECT_GE(walked[Access::key], 20);
  EXPECT_GE(walked[Access::admin], 4);
  EXPECT_EQ(walked[Access::monitor], 1);
  EXPECT_EQ(open, (std::set<std::string>{"/", "/health", "/health_generate", "/ready", "/version", "/ui/{name}",
                                         "/favicon.ico", "/api/version"}));
}

TEST_F(Tenants, WithoutAnAdminKeyNothingOfAdminsIsOpen) {
  start();
  for (const auto* path : {"/admin/drain", "/admin/reset_prefix_cache", "/flush_cache"})
    EXPECT_EQ(post(path, "{}").status, 403) << path;
  EXPECT_EQ(get("/admin/requests").status, 403);
  EXPECT_EQ(counts_->resets, 0);
}

TEST_F(Tenants, KeysAreExchangedWhileTheServerRuns) {
  start_with({});
  auto c = client();
  const auto ask = [&](const std::string& key) {
    c.get("/v1/models", with_key(key));
    return c.receive().status;
  };
  EXPECT_EQ(ask("alice-key"), 200);
  EXPECT_EQ(ask("carol-key"), 401);
  keys_ = {};
  add("carol", KeyRole::user, {});
  config_.keys->replace(keys_);
  EXPECT_EQ(ask("alice-key"), 401) << "on the same connection";
  EXPECT_EQ(ask("carol-key"), 200);
}

TEST_F(Tenants, ATimeoutIsGivenInOneUnit) {
  start();
  const auto status = [&](const std::string& fields) {
    return post("/v1/completions", R"({"prompt": "p", "max_tokens": 1, )" + fields + "}").status;
  };
  EXPECT_EQ(status(R"("timeout": 1.5)"), 200);
  EXPECT_EQ(status(R"("timeout_ms": 1500)"), 200);
  EXPECT_EQ(status(R"("timeout": null)"), 200);
  EXPECT_EQ(status(R"("timeout": 1, "timeout_ms": 1000)"), 400);
  for (const auto* wrong : {"0", "-1", "1e300", "\"5\"", "true", "604801"}) {
    EXPECT_EQ(status(std::string(R"("timeout": )") + wrong), 400) << wrong;
  }
}

}  // namespace
}  // namespace pagoda::http
