// Requests with tools: what is refused by name, and that whatever else comes is a job or refused.

#include "tests/io/http/tool_requests.hpp"

#include <random>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/grammar/grammar_rules.hpp"
#include "io/http/anthropic/messages.hpp"
#include "io/http/ollama/chat.hpp"
#include "io/http/openai/response_store.hpp"
#include "io/http/openai/responses.hpp"

namespace pagoda::http {
namespace {

using testing::HasSubstr;
using wire::Json;

class ToolRefusal : public testing::TestWithParam<RefusedField> {};

TEST_P(ToolRefusal, is_by_name) {
  const auto job = chat_job(GetParam().fields);
  ASSERT_FALSE(job);
  EXPECT_EQ(job.error().status, 400U);
  EXPECT_EQ(job.error().param, GetParam().param) << job.error().message;
}

std::string one_tool(const std::string& tool) {
  return R"("tools":[)" + tool + "]";
}

INSTANTIATE_TEST_SUITE_P(
    Fields, ToolRefusal,
    testing::Values(
        RefusedField{"no_list", R"("tools":{})", "tools"}, RefusedField{"no_object", one_tool("1"), "tools[0]"},
        RefusedField{"no_type", one_tool(R"({"function":{"name":"f"}})"), "tools[0].type"},
        RefusedField{"other_type", one_tool(R"({"type":"web_search"})"), "tools[0].type"},
        RefusedField{"no_function", one_tool(R"({"type":"function"})"), "tools[0].function"},
        RefusedField{"no_name", one_tool(R"({"type":"function","function":{}})"), "tools[0].function.name"},
        RefusedField{"bad_name", one_tool(R"({"type":"function","function":{"name":"a b"}})"), "tools[0].name"},
        RefusedField{"long_name",
                     one_tool(R"({"type":"function","function":{"name":")" + std::string(129, 'a') + "\"}}"),
                     "tools[0].name"},
        RefusedField{"twice", one_tool(R"({"type":"function","function":{"name":"f"}},
                                          {"type":"function","function":{"name":"f"}})"),
                     "tools[1].name"},
        RefusedField{"unknown", one_tool(R"({"type":"function","function":{"name":"f","x":1}})"),
                     "tools[0].function.x"},
        RefusedField{"strict", one_tool(R"({"type":"function","function":{"name":"f","strict":1}})"),
                     "tools[0].function.strict"},
        RefusedField{"parameters", one_tool(R"({"type":"function","function":{"name":"f","parameters":[]}})"),
                     "tools[0].function.parameters"},
        RefusedField{"choice", openai_tools(R"(,"tool_choice":"any")"), "tool_choice"},
        RefusedField{"choice_without_tools", R"("tool_choice":"required")", "tool_choice"},
        RefusedField{"unknown_choice", openai_tools(R"(,"tool_choice":{"type":"function","function":{"name":"g"}})"),
                     "tool_choice"},
        RefusedField{"allowed_without_mode",
                     openai_tools(R"(,"tool_choice":{"type":"allowed_tools","allowed_tools":{"tools":[]}})"),
                     "tool_choice.allowed_tools.mode"},
        RefusedField{
            "nothing_allowed",
            openai_tools(R"(,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[]}})"),
            "tool_choice.allowed_tools.tools"},
        RefusedField{"unknown_allowed",
                     openai_tools(R"(,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":"auto","tools":[
                         {"type":"function","function":{"name":"now"}},{"type":"function","function":{"name":"g"}}]}})"),
                     "tool_choice"},
        RefusedField{"parallel", openai_tools(R"(,"parallel_tool_calls":1)"), "parallel_tool_calls"},
        RefusedField{"functions", R"("functions":[{"name":"f"}])", "functions"},
        RefusedField{"function_call", R"("function_call":{"name":"f"})", "function_call"}),
    name_of);

TEST(ToolRequests, AToolThatIsNamedIsCalledOnce) {
  const auto format = [](const char* choice) {
    const auto job = chat_job(openai_tools(std::string(R"(,"tool_choice":)") + choice));
    return job ? job->requests[0].sampling.structured_outputs->text : job.error().message;
  };
  EXPECT_THAT(format("\"required\""), HasSubstr("\"star\""));
  EXPECT_THAT(format(R"({"type":"function","function":{"name":"now"}})"), testing::Not(HasSubstr("\"star\"")));
}

TEST(ToolRequests, AllowedToolsAloneMayBeCalled) {
  for (const char* mode : {"auto", "required"}) {
    const auto job =
        chat_job(openai_tools(R"(,"tool_choice":{"type":"allowed_tools","allowed_tools":{"mode":")" +
                              std::string(mode) + R"(","tools":[{"type":"function","function":{"name":"now"}}]}})"));
    ASSERT_TRUE(job) << job.error().message;
    const auto& text = job->requests[0].sampling.structured_outputs->text;
    EXPECT_THAT(text, HasSubstr("now"));
    EXPECT_THAT(text, testing::Not(HasSubstr("weather")));
    EXPECT_EQ(text.find("triggered_tags") != std::string::npos, std::string(mode) == "auto") << text;
    EXPECT_THAT(*job->requests[0].prompt, HasSubstr("weather")) << "the model sees all tools";
  }
}

TEST(ToolRequests, UniquenessThatTheGrammarCannotHoldIsIgnoredByName) {
  const auto tools = [](const char* items) {
    return R"("tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":{
      "a":{"type":"array","uniqueItems":true,"items":)" +
           std::string(items) + "}}}}}]";
  };
  EXPECT_FALSE(chat_job(tools(R"({"type":"string"})"))) << "without a scope, fields without effect are refused";
  EXPECT_TRUE(chat_job(tools(R"({"type":"string"})") + R"(,"tool_choice":"none")")) << "there is no call";
  wire::IgnoredFields ignored(wire::UnknownFields::ignored);
  const wire::IgnoredFields::Scope scope(ignored);
  const auto kept = chat_job(tools(R"({"enum":["x","y"]})"));
  ASSERT_TRUE(kept) << kept.error().message;
  EXPECT_TRUE(ignored.names().empty());
  EXPECT_THAT(kept->requests[0].sampling.structured_outputs->text, HasSubstr("uniqueItems"));
  const auto dropped = chat_job(tools(R"({"type":"string"})"));
  ASSERT_TRUE(dropped) << dropped.error().message;
  EXPECT_THAT(ignored.names(), testing::ElementsAre("tools[].parameters.uniqueItems"));
  EXPECT_THAT(dropped->requests[0].sampling.structured_outputs->text, testing::Not(HasSubstr("uniqueItems")));
  EXPECT_THAT(*dropped->requests[0].prompt, HasSubstr("uniqueItems")) << "the model sees it";
  // Items that are defined elsewhere, and more values than a grammar can tell apart.
  const auto with_definition = [&](const std::string& definition) {
    auto text = tools(R"({"$ref":"#/$defs/x"})");
    return chat_job(text.insert(text.find(R"("properties")"), R"("$defs":{"x":)" + definition + "},"));
  };
  std::string values;
  for (int i = 0; i < 63; ++i) values += (i > 0 ? "," : "") + std::to_string(i);
  for (const auto& [definition, is_kept] : {std::pair<std::string, bool>{R"({"enum":["x","y"]})", true},
                                            {R"({"type":"object","properties":{"a":{}}})", false},
                                            {R"({"enum":[)" + values + "]}", false}}) {
    const auto job = with_definition(definition);
    ASSERT_TRUE(job) << job.error().message;
    EXPECT_EQ(job->requests[0].sampling.structured_outputs->text.find("uniqueItems") != std::string::npos, is_kept)
        << definition;
  }
}

TEST(ToolRequests, MapsOfPropertiesThatAreNullAreEmpty) {
  const auto job = chat_job(
      R"("tools":[{"type":"function","function":{"name":"f","parameters":{"type":"object","properties":null}}}])");
  ASSERT_TRUE(job) << job.error().message;
  EXPECT_THAT(*job->requests[0].prompt, HasSubstr(R"("properties": {})"));
}

TEST(ToolRequests, TheTemplateSeesAFunctionAsItIsGiven) {
  const auto job = chat_job(R"("tools":[{"type":"function","function":{"name":"f","strict":true,"description":"D"}}])");
  ASSERT_TRUE(job) << job.error().message;
  EXPECT_THAT(*job->requests[0].prompt,
              HasSubstr(R"({"type": "function", "function": {"name": "f", "description": "D", "parameters": )"
                        R"({"type": "object", "properties": {}}, "strict": true}})"));
}

TEST(ToolRequests, AModelWhoseTemplateShowsNoneRefusesThem) {
  const auto job = openai::parse_chat(body_of(kMessages + "," + openai_tools()), chat_prompts(), {"1", "m", 7});
  ASSERT_FALSE(job);
  EXPECT_EQ(job.error().param, "tools");
  EXPECT_THAT(job.error().message, HasSubstr("no known form of tool calls"));
  EXPECT_TRUE(openai::parse_chat(body_of(kMessages + "," + openai_tools(R"(,"tool_choice":"none")")), chat_prompts(),
                                 {"1", "m", 7}));
}

/// Puts something else in the place of a part of `value`.
void mutate(Json& value, std::mt19937& random) {
  static const std::vector<Json> others{nullptr,
                                        true,
                                        -1,
                                        1e300,
                                        "",
                                        "auto",
                                        "function",
                                        Json::array(),
                                        Json::object(),
                                        Json::array({Json::object()}),
                                        Json{{"type", "string"}},
                                        Json{{"$ref", "#"}},
                                        Json{{"properties", 3}},
                                        Json{{"name", "now"}},
                                        "none",
                                        std::string(300, 'x')};
  if (!value.is_structured() || value.empty() || random() % 4 == 0) {
    value = others[random() % others.size()];
    return;
  }
  auto member = value.begin();
  std::advance(member, static_cast<std::ptrdiff_t>(random() % value.size()));
  if (random() % 12 == 0) {
    value.erase(member);
  } else {
    mutate(*member, random);
  }
}

TEST(ToolRequests, ThatAreChangedAnywhereAreJobsOrRefused) {
  std::mt19937 random(23);
  const auto openai =
      body_of(kMessages + "," + openai_tools(R"(,"tool_choice":{"type":"function","function":{"name":"now"}},
    "parallel_tool_calls":false,"response_format":{"type":"json_object"})"));
  const auto anthropic =
      body_of(kMessages + R"(,"max_tokens":9,"thinking":{"type":"enabled"},"tools":[{"name":"weather",
    "input_schema":)" +
              kParameters + R"(}],"tool_choice":{"type":"tool","name":"weather"})");
  const auto response = body_of(R"("input":"Hi","tools":[{"type":"function","name":"weather","parameters":)" +
                                std::string(kParameters) + R"(}],"tool_choice":{"type":"function","name":"weather"})");
  const auto changed = [&](Json body) {
    for (auto edits = random() % 3 + 1; edits > 0; --edits) mutate(body, random);
    return body.is_object() ? body : Json::object();
  };
  int num_jobs = 0;
  const auto check = [&](const ParsedJob& job) {
    if (!job) {
      EXPECT_EQ(job.error().status / 100, 4U) << job.error().message;
      return;
    }
    ++num_jobs;
    for (const auto& request : job->requests) {
      if (request.sampling.structured_outputs) {
        static_cast<void>(grammar::grammar_rules(*request.sampling.structured_outputs));
      }
    }
  };
  openai::ResponseStore store;
  for (int i = 0; i < 1500; ++i) {
    check(openai::parse_chat(changed(openai), tool_prompts(), {"1", "m", 7}));
    check(anthropic::parse_messages(changed(anthropic), tool_prompts(), {"1", "m"}));
    check(openai::parse_response(changed(response), tool_prompts(), store, {}, {"1", "m", 7}));
    const auto turn = ollama::parse_chat(changed(openai), tool_prompts(), "m");
    EXPECT_TRUE(turn || turn.error().status / 100 == 4);
  }
  EXPECT_GT(num_jobs, 200);
}

}  // namespace
}  // namespace pagoda::http
