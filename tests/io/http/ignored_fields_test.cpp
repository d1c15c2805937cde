// Fields that no route knows are ignored by name, unless they are misspelled or --strict-fields is on.

#include <array>
#include <string>

#include <gmock/gmock.h>

#include "tests/io/http/api_server_fixture.hpp"

namespace pagoda::http {
namespace {

using testing::HasSubstr;
using testing::Not;

struct RouteAndFields {
  const char* path;
  std::string fields;
};

const std::array<RouteAndFields, 6>& routes_with_bodies() {
  static const std::string messages = R"("messages": [{"role": "user", "content": "p"}])";
  static const std::array<RouteAndFields, 6> routes{
      {{"/v1/completions", R"("prompt": "p", "max_tokens": 1)"},
       {"/v1/chat/completions", messages + R"(, "max_tokens": 1)"},
       {"/v1/responses", R"("input": "p", "max_output_tokens": 1)"},
       {"/v1/messages", messages + R"(, "max_tokens": 1)"},
       {"/api/chat", messages + R"(, "model": "fake", "stream": false, "options": {"num_predict": 1})"},
       {"/apply_template", messages}}};
  return routes;
}

class IgnoredFieldsOfRoutes : public ApiServerTest {
 protected:
  TestAnswer ask(const RouteAndFields& route, const std::string& more) {
    return post(route.path, "{" + route.fields + ", " + more + "}");
  }
};

TEST_F(IgnoredFieldsOfRoutes, AnUnknownFieldIsNamedInTheHeader) {
  start();
  for (const auto& route : routes_with_bodies()) {
    auto answer = ask(route, R"("x_hint": {"a": 1}, "colour": 1, "nothing": null)");
    EXPECT_EQ(answer.status, 200) << route.path << answer.body;
    EXPECT_EQ(answer.headers["x-pagoda-ignored"], "x_hint, colour") << route.path;
    EXPECT_EQ(ask(route, R"("nothing": null)").headers.count("x-pagoda-ignored"), 0U) << route.path;
  }
}

TEST_F(IgnoredFieldsOfRoutes, SoDoStreamsAndBodiesThatAreReadByTheWorker) {
  start();
  auto c = client();
  c.post("/v1/completions", R"({"prompt": "p", "stream": true, "stream_options": {"colour": 1}})");
  EXPECT_EQ(c.receive().headers["x-pagoda-ignored"], "stream_options.colour");
  const std::string padding(100'000, ' ');
  EXPECT_EQ(post("/v1/completions", R"({"prompt": "p", "colour": 1})" + padding).headers["x-pagoda-ignored"], "colour");
}

TEST_F(IgnoredFieldsOfRoutes, AMisspellingIsRefusedWithTheRightName) {
  start();
  for (const auto& route : routes_with_bodies()) {
    if (std::string(route.path) == "/apply_template" || std::string(route.path) == "/api/chat") continue;
    const auto answer = ask(route, R"("temprature": 0.5)");
    EXPECT_EQ(answer.status, 400) << route.path;
    EXPECT_THAT(answer.body, HasSubstr("temprature")) << route.path;
    EXPECT_THAT(answer.body, HasSubstr(R"(did you mean \"temperature\"?)")) << route.path;
  }
  EXPECT_THAT(post("/api/generate", R"({"model": "fake", "prompt": "p", "options": {"temprature": 1}})").body,
              HasSubstr(R"(did you mean \"options.temperature\"?)"));
}

TEST_F(IgnoredFieldsOfRoutes, StrictFieldsRefusesThem) {
  ServerConfig config;
  config.strict_fields = true;
  start(fake_model(), config);
  for (const auto& route : routes_with_bodies()) {
    const auto answer = ask(route, R"("colour": 1)");
    EXPECT_EQ(answer.status, 400) << route.path;
    EXPECT_THAT(answer.body, HasSubstr(R"(unknown field \"colour\")")) << route.path;
    EXPECT_EQ(ask(route, R"("colour": null)").status, 200) << route.path;
  }
}

TEST_F(IgnoredFieldsOfRoutes, AFieldWithTheNameOtherIsCountedWithTheFurtherNames) {
  start();
  post("/v1/completions", R"({"prompt": "p", "other": 1})");
  EXPECT_THAT(get("/metrics").body, HasSubstr("pagoda:ignored_fields_total{field=\"other\"} 1\n"));
  std::string many = R"({"prompt": "p", "other": 1)";
  for (int i = 0; i < 129; ++i) many += ", \"unknown_" + std::to_string(i) + "\": 1";
  EXPECT_EQ(post("/v1/completions", many + "}").status, 200);
  const auto metrics = get("/metrics").body;
  EXPECT_THAT(metrics, HasSubstr("pagoda:ignored_fields_total{field=\"unknown_0\"} 1\n"));
  EXPECT_THAT(metrics, HasSubstr("pagoda:ignored_fields_total{field=\"other\"} 3\n"));
}

TEST_F(IgnoredFieldsOfRoutes, MetricsCountABoundedNumberOfNames) {
  start();
  for (int i = 0; i < 3; ++i) post("/v1/completions", R"({"prompt": "p", "colour": 1})");
  EXPECT_THAT(get("/metrics").body, HasSubstr("pagoda:ignored_fields_total{field=\"colour\"} 3\n"));
  std::string many = R"({"prompt": "p")";
  for (int i = 0; i < 200; ++i) many += ", \"unknown_" + std::to_string(i) + "\": 1";
  EXPECT_EQ(post("/v1/completions", many + "}").status, 200);
  const auto metrics = get("/metrics").body;
  EXPECT_THAT(metrics, HasSubstr("pagoda:ignored_fields_total{field=\"other\"} 73\n"));
  EXPECT_THAT(metrics, Not(HasSubstr("unknown_127\"")));
}

}  // namespace
}  // namespace pagoda::http
