// Who may call what: keys, origins, addresses, and configurations that make no sense.

#include <algorithm>

#include "tests/io/http/server_fixture.hpp"

namespace pagoda::http {
namespace {

ServerConfig with_keys() {
  ServerConfig config;
  config.keys = *serving::make_key_ring({"first-key", "second-key"}, {"admin-key"});
  return config;
}

TEST_F(HttpServerTest, AKeyIsAskedForWhereThereAreKeys) {
  const auto config = with_keys();
  const auto owner = [&](const char* key) { return config.keys->find(key)->id; };
  start(config);
  auto c = client();
  const auto get = [&](const char* path, const std::string& headers) {
    c.get(path, headers);
    return c.receive();
  };
  EXPECT_EQ(get("/health", "").status, 200);
  const auto without = get("/v1/models/m", "");
  EXPECT_EQ(without.status, 401);
  EXPECT_EQ(without.headers.at("www-authenticate"), "Bearer");
  for (const auto* wrong : {"Bearer wrong", "Bearer first-key2", "Bearer first-ke", "Bearer ", "Bearer",
                            "Basic first-key", "first-key", "Bearer  first-key", "bearerfirst-key"}) {
    EXPECT_EQ(get("/v1/models/m", std::string("Authorization: ") + wrong + "\r\n").status, 401) << wrong;
  }
  EXPECT_EQ(get("/v1/models/m", "Authorization: Bearer first-key\r\n").body, "m?#" + owner("first-key"));
  EXPECT_EQ(get("/v1/models/m", "authorization: bearer second-key\r\n").body, "m?#" + owner("second-key"));
  EXPECT_EQ(get("/v1/models/m", "X-Api-Key: second-key\r\n").body, "m?#" + owner("second-key"));
  EXPECT_EQ(get("/v1/models/m", "X-Api-Key: admin-key\r\n").body, "m?#" + owner("admin-key"));
  EXPECT_NE(owner("first-key"), owner("second-key"));
  EXPECT_EQ(get("/v1/models/m", "X-Api-Key: none\r\n").status, 401);
  EXPECT_EQ(get("/v1/models/m", "X-Api-Key: second-key\r\nX-Api-Key: first-key\r\n").status, 400);
}

TEST_F(HttpServerTest, AKeyMayBeSentTwiceButNotTwoKeys) {
  const auto config = with_keys();
  start(config);
  const auto get = [&](const std::string& headers) {
    auto c = client();
    c.get("/v1/models/m", headers);
    return c.receive();
  };
  const std::string first = "Authorization: Bearer first-key\r\n";
  EXPECT_EQ(get(first + first).body, "m?#" + config.keys->find("first-key")->id);
  EXPECT_EQ(get(first + "Authorization: Bearer second-key\r\n").status, 400);
  EXPECT_EQ(get(first + "Authorization: Bearer first-key2\r\n").status, 400);
}

TEST_F(HttpServerTest, ABodyIsNotReadForSomebodyWithoutAKey) {
  start(with_keys());
  auto c = client();
  c.send("POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 1000000\r\n\r\n");
  const auto answer = c.receive();
  EXPECT_EQ(answer.status, 401);
  EXPECT_EQ(answer.headers.at("connection"), "close");
  EXPECT_EQ(nlohmann::json::parse(answer.body)["error"]["type"], "authentication_error");
  EXPECT_TRUE(c.at_end());
}

TEST_F(HttpServerTest, AnAdminRouteNeedsAnAdminKey) {
  start(with_keys());
  auto c = client();
  const auto drain = [&](const std::string& headers) {
    c.post("/admin/drain", "{}", headers);
    return c.receive().status;
  };
  EXPECT_EQ(drain(""), 401);
  EXPECT_EQ(drain("Authorization: Bearer wrong\r\n"), 401);
  EXPECT_EQ(drain("Authorization: Bearer first-key\r\n"), 403);
  EXPECT_EQ(drain("Authorization: Bearer admin-key\r\n"), 200);
}

TEST_F(HttpServerTest, WithoutAdminKeysNobodyIsAdmin) {
  start();
  auto c = client();
  c.post("/admin/drain", "{}");
  EXPECT_EQ(c.receive().status, 403);
  c.post("/admin/drain", "{}", "Authorization: Bearer x\r\n");
  EXPECT_EQ(c.receive().status, 403);
  c.post("/echo", "{}");  // and without API keys everybody may use the rest
  EXPECT_EQ(c.receive().status, 200);
}

TEST_F(HttpServerTest, WithoutKeysAPageFromElsewhereIsRefusedWhateverNameLeadsHere) {
  start();
  const auto status = [&](const std::string& headers) {
    return ask("GET /health HTTP/1.1\r\n" + headers + "\r\n").status;
  };
  EXPECT_EQ(status("Host: rebound.example:80\r\nOrigin: http://rebound.example\r\n"), 403);
  EXPECT_EQ(status("Host: rebound.example\r\nSec-Fetch-Site: same-origin\r\n"), 403);
  EXPECT_EQ(status("Host: 1.2.3.4.example\r\nSec-Fetch-Site: same-origin\r\n"), 403);
  EXPECT_EQ(status("Host: localhost:8000\r\nOrigin: http://localhost:8000\r\n"), 200);
  EXPECT_EQ(status("Host: 127.0.0.1:8000\r\nSec-Fetch-Site: same-origin\r\n"), 200);
  EXPECT_EQ(status("Host: [::1]:8000\r\nSec-Fetch-Site: none\r\n"), 200);
  EXPECT_EQ(status("Host: inference.example\r\n"), 200);  // a program, or a proxy before us
}

TEST_F(HttpServerTest, APreflightHasNoBody) {
  auto config = with_keys();
  config.cors_origin = "*";
  start(config);
  EXPECT_EQ(ask("OPTIONS /v1/messages HTTP/1.1\r\nHost: x\r\nOrigin: https://a.b\r\n"
                "Access-Control-Request-Method: POST\r\nContent-Length: 99999999999\r\n\r\n")
                .status,
            400);
}

TEST_F(HttpServerTest, PagesOfTheAllowedOriginMayCall) {
  auto config = with_keys();
  config.cors_origin = "https://chat.example.org";
  start(config);
  auto c = client();
  c.send(
      "OPTIONS /v1/messages HTTP/1.1\r\nHost: x\r\nOrigin: https://chat.example.org\r\n"
      "Access-Control-Request-Method: POST\r\nAccess-Control-Request-Headers: authorization,content-type\r\n\r\n");
  const auto preflight = c.receive();
  EXPECT_EQ(preflight.status, 204);
  EXPECT_EQ(preflight.headers.at("access-control-allow-origin"), "https://chat.example.org");
  EXPECT_EQ(preflight.headers.at("access-control-allow-methods"), "POST");
  EXPECT_EQ(preflight.headers.at("access-control-allow-headers"), "authorization,content-type");
  EXPECT_EQ(preflight.headers.at("vary"), "origin");
  EXPECT_FALSE(preflight.headers.contains("content-length"));
  c.post("/v1/messages", "{}", "Origin: https://chat.example.org\r\n");
  const auto refused = c.receive();
  EXPECT_EQ(refused.status, 401);  // a page can read why
  EXPECT_EQ(refused.headers.at("access-control-allow-origin"), "https://chat.example.org");
  c.get("/stream", "Origin: https://chat.example.org\r\nX-Api-Key: first-key\r\n");
  EXPECT_EQ(c.receive().headers.at("access-control-allow-origin"), "https://chat.example.org");

  c.get("/health", "Origin: https://chat.example.org.evil.com\r\n");
  EXPECT_FALSE(c.receive().headers.contains("access-control-allow-origin"));
  c.send(
      "OPTIONS /v1/messages HTTP/1.1\r\nHost: x\r\nOrigin: https://other.org\r\n"
      "Access-Control-Request-Method: POST\r\n\r\n");
  EXPECT_EQ(c.receive().status, 405);
}

TEST_F(HttpServerTest, AnyOriginMayCallWhereThatIsAllowed) {
  ServerConfig config;
  config.cors_origin = "*";
  start(config);
  auto c = client();
  c.get("/health", "Origin: null\r\n");
  const auto answer = c.receive();
  EXPECT_EQ(answer.headers.at("access-control-allow-origin"), "*");
  EXPECT_FALSE(answer.headers.contains("vary"));
}

TEST_F(HttpServerTest, AnAddressBeyondThisMachineNeedsKeysOrConsent) {
  ServerConfig config;
  config.http = "0.0.0.0:0";
  const auto refused = Server::start(config, routes());
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::bad_config);
  EXPECT_NE(refused.error().message.find("--allow-unauthenticated"), std::string::npos);
  config.keys = *serving::make_key_ring({}, {"admin"});  // do not close the other routes
  EXPECT_FALSE(Server::start(config, routes()).has_value());
  config.allow_unauthenticated = true;
  EXPECT_TRUE(Server::start(config, routes()).has_value());
  config.allow_unauthenticated = false;
  config.keys = *serving::make_key_ring({"key"});
  EXPECT_TRUE(Server::start(config, routes()).has_value());
}

TEST_F(HttpServerTest, AnAddressInUseIsAnErrorThatNamesIt) {
  start();
  ServerConfig config;
  config.http = server_->address();
  const auto second = Server::start(config, routes());
  ASSERT_FALSE(second.has_value());
  EXPECT_EQ(second.error().code, ErrorCode::io_failed);
  EXPECT_NE(second.error().message.find(server_->address()), std::string::npos);
}

TEST(ServerConfig, ValidateNamesEveryProblem) {
  EXPECT_TRUE(ServerConfig().validate().empty());
  ServerConfig config;
  config.http = "nowhere";
  config.tls_cert = "cert.pem";
  config.max_body_bytes = 0;
  config.http_max_connections = 0;
  config.http_header_timeout_ms = 0;
  config.http_max_buffered_bytes = -1;
  config.cors_origin = "example.org";
  std::vector<std::string> params;
  for (const auto& problem : config.validate()) {
    EXPECT_EQ(problem.code, ErrorCode::bad_config);
    params.push_back(problem.param);
  }
  std::sort(params.begin(), params.end());
  EXPECT_EQ(params,
            (std::vector<std::string>{"cors_origin", "http", "http_header_timeout_ms", "http_max_buffered_bytes",
                                      "http_max_connections", "max_body_bytes", "tls_key"}));
  for (const auto* origin : {"https://", "https://a/", "https://a b", "https://a,https://b", "ftp://a", "**"}) {
    ServerConfig other;
    other.cors_origin = origin;
    EXPECT_EQ(other.validate().size(), 1U) << origin;
  }
}

TEST(ErrorBody, EveryStyleIsJsonWhateverTheMessageHolds) {
  const ErrorAnswer error{404, "no \"model\"\n\xff", "model", "model_not_found"};
  const auto openai = nlohmann::json::parse(error_body(ErrorStyle::openai, error));
  EXPECT_EQ(openai["error"]["message"], "no \"model\"\n\xef\xbf\xbd");
  EXPECT_EQ(openai["error"]["param"], "model");
  EXPECT_EQ(openai["error"]["code"], "model_not_found");
  const auto anthropic = nlohmann::json::parse(error_body(ErrorStyle::anthropic, error));
  EXPECT_EQ(anthropic["error"]["type"], "not_found_error");
  EXPECT_EQ(anthropic["error"]["details"]["error_code"], "model_not_found");
  EXPECT_TRUE(nlohmann::json::parse(error_body(ErrorStyle::ollama, error))["error"].is_string());
}

}  // namespace
}  // namespace pagoda::http
