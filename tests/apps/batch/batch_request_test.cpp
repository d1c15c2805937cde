#include "apps/batch/batch_request.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

namespace pagoda::apps::batch {
namespace {

using nlohmann::json;

BatchRequest parsed(const std::string& text) {
  BatchParser parser(1 << 20);
  return parser.parse({.text = text, .number = 3});
}

TEST(BatchRequests, keep_the_body_as_it_is_written) {
  const std::string body = R"({"prompt": "}\"{", "n" : 12345678901234567890123, "x": [1.50, {"a": null}]})";
  const auto request = parsed(R"( {"a": [1, {"body": 2}], "body" : )" + body +
                              R"(, "url":"/v1/completions","method":"POST","custom_id":"c"})");
  ASSERT_TRUE(request.request.has_value()) << request.request.error().message;
  EXPECT_EQ(request.request->body, body);
  EXPECT_EQ(request.request->path, "/v1/completions");
  EXPECT_EQ(request.request->request_id, request.id);
  EXPECT_EQ(request.custom_id, "c");
}

TEST(BatchRequests, may_have_any_white_space_of_json) {
  const auto request = parsed(
      "{\r\"custom_id\"\r:\r\"c\"\r,\r\"n\"\t:\t1\r,\"method\":\"POST\",\r\"url\":\"/v1/"
      "responses\",\r\"body\"\r:\r{\"input\":\r\"a\"}\r}");
  ASSERT_TRUE(request.request.has_value()) << request.request.error().message;
  EXPECT_EQ(request.request->body, "{\"input\":\r\"a\"}");
}

TEST(BatchRequests, know_their_keys_however_these_are_escaped) {
  const auto request = parsed(R"({"custom_id":"c","method":"POST","url":"/v1/responses","b\u006fdy":{"input":"a"}})");
  ASSERT_TRUE(request.request.has_value()) << request.request.error().message;
  EXPECT_EQ(request.request->body, R"({"input":"a"})");
}

TEST(BatchRequests, have_ids_of_their_line_and_their_place) {
  const std::string line = R"({"custom_id":"c"})";
  BatchParser one(100);
  BatchParser other(100);
  const auto first = one.parse({.text = line, .number = 1}).id;
  EXPECT_EQ(other.id_of_next({.text = line, .number = 9}), first);  // blank lines may be added
  EXPECT_EQ(other.parse({.text = line, .number = 9}).id, first);
  EXPECT_NE(one.parse({.text = line, .number = 2}).id, first);
  EXPECT_NE(BatchParser(100).parse({.text = line + " ", .number = 1}).id, first);
}

TEST(BatchRequests, results_are_one_line_each) {
  const auto request = parsed("no json");
  EXPECT_FALSE(request.custom_id.has_value());
  const auto line = result_line(request, request.request.error());
  EXPECT_TRUE(line.starts_with(result_begin(request.id)));
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  const auto result = json::parse(line);
  EXPECT_EQ(result["custom_id"], nullptr);
  EXPECT_EQ(result["response"]["status_code"], 400);
  EXPECT_EQ(result["error"]["code"], "invalid_json_line");
  EXPECT_EQ(result["error"]["message"], result["response"]["body"]["error"]["message"]);
  EXPECT_THAT(result["error"]["message"].get<std::string>(), testing::StartsWith("line 3: "));
}

TEST(BatchRequests, success_is_seen_from_the_end_of_a_result) {
  const auto request = parsed(R"({"custom_id":"c","method":"POST","url":"/v1/responses","body":{"input":"a"}})");
  const std::string success = std::string(kEndOfSuccess) + "\n";
  EXPECT_TRUE(result_line(request, 200, "{\"a\":\n1}").ends_with(success));
  EXPECT_FALSE(result_line(request, 404, R"({"error":{"message":"m","code":null}})").ends_with(success));
  EXPECT_EQ(json::parse(result_line(request, 404, R"({"error":{"message":"m","code":null}})"))["error"],
            json::parse(R"({"code":"http_404","message":"m"})"));
  EXPECT_EQ(json::parse(result_line(request, 500, "\"no error object\""))["error"]["message"], "status 500");
}

}  // namespace
}  // namespace pagoda::apps::batch
