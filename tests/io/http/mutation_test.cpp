// A live server under seeded mutations of good requests: it never crashes or hangs, what it answers is HTTP, and the
// next good request is answered.

#include <random>

#include "tests/io/http/server_fixture.hpp"

namespace pagoda::http {
namespace {

const std::vector<std::string> kGoodRequests{
    "GET /health HTTP/1.1\r\nHost: x\r\n\r\n",
    "GET /v1/models/a%20b?q=1+2&r=%41 HTTP/1.1\r\nHost: x\r\nX-Request-Id: abc\r\nOrigin: https://a.b\r\n\r\n",
    "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 11\r\n\r\n{\"a\":[1,2]}",
    "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
    "5;x=y\r\n{\"a\":\r\n6\r\n[1,2]}\r\n0\r\n\r\n",
    "POST /v1/messages HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 2\r\n"
    "Expect: 100-continue\r\nConnection: close\r\n\r\n{}",
    "HEAD /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n",
    "OPTIONS /echo HTTP/1.1\r\nHost: x\r\nOrigin: https://a.b\r\nAccess-Control-Request-Method: POST\r\n\r\n",
};
const std::vector<std::string> kPieces{"\r\n",
                                       "\n",
                                       "\r",
                                       " ",
                                       "\t",
                                       ":",
                                       ";",
                                       "%",
                                       "%00",
                                       "/../",
                                       "?",
                                       "\r\n\r\n",
                                       "Content-Length: 3\r\n",
                                       "Content-Length: 99999999999999999999\r\n",
                                       "Transfer-Encoding: chunked\r\n",
                                       "Connection: close\r\n",
                                       "Upgrade: websocket\r\n",
                                       "ffffffffffffffff\r\n",
                                       "0\r\n",
                                       "\xff",
                                       std::string(1, '\0'),
                                       std::string(300, 'A')};

std::string mutated(std::string request, std::mt19937_64& random) {
  const auto at = [&] { return request.empty() ? 0 : random() % request.size(); };
  for (auto edits = random() % 4 + 1; edits > 0; --edits) {
    switch (random() % 6) {
      case 0:
        request.insert(at(), kPieces[random() % kPieces.size()]);
        break;
      case 1:
        request.erase(at(), random() % 4 + 1);
        break;
      case 2:
        if (!request.empty()) request[at()] = static_cast<char>(random());
        break;
      case 3:
        request.resize(at());
        break;
      case 4:
        request += request.substr(at());
        break;
      default: {
        const auto& other = kGoodRequests[random() % kGoodRequests.size()];
        request.insert(at(), other.substr(random() % other.size()));
      }
    }
  }
  return request;
}

TEST_F(HttpServerTest, TenThousandMutatedRequestsLeaveTheServerWell) {
  ServerConfig config;
  config.cors_origin = "*";
  config.http_close_grace_ms = 200;
  start(config);
  std::mt19937_64 random(2026);
  std::map<int, int> statuses;
  for (int round = 0; round < 10000; ++round) {
    const auto request = mutated(kGoodRequests[random() % kGoodRequests.size()], random);
    auto c = client();
    ASSERT_TRUE(c.connected());
    // In one piece or two; then the client says that this is all, so that an unfinished request has an end.
    const auto cut = request.empty() ? 0 : random() % request.size();
    c.send(request.substr(0, cut));
    c.send(request.substr(cut));
    c.end_input();
    const auto answer = c.receive(true);
    ++statuses[answer.status];
    ASSERT_TRUE(c.at_end()) << "round " << round << ": " << request;
    if (round % 100 == 0) {
      ASSERT_EQ(ask("GET /health HTTP/1.1\r\nHost: x\r\n\r\n").body, "ok");
    }
  }
  EXPECT_EQ(ask("GET /health HTTP/1.1\r\nHost: x\r\n\r\n").body, "ok");
  EXPECT_TRUE(eventually([&] { return server_->num_connections() == 0 && live_ == 0; }));
  EXPECT_GT(statuses[200], 500);
  EXPECT_GT(statuses[400], 500);
  EXPECT_EQ(statuses[500], 0);
  for (const auto& [status, count] : statuses) std::printf("%d: %d\n", status, count);
}

}  // namespace
}  // namespace pagoda::http
