#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/http/anthropic/conversation.hpp"
#include "io/http/anthropic/message_writer.hpp"
#include "io/http/anthropic/messages.hpp"
#include "tests/io/http/writer_driver.hpp"

namespace pagoda::http::anthropic {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using wire::Json;

Json body_with(const std::string& fields) {
  auto body = Json::parse(R"({"model":"m","max_tokens":8,"messages":[{"role":"user","content":"Hi"}]})");
  body.update(Json::parse("{" + fields + "}"));
  return body;
}

ParsedJob parsed(const std::string& fields) {
  return parse_messages(body_with(fields), chat_prompts(), {"msg_1", "m"});
}

GenerateRequest request_of(const std::string& fields) {
  auto job = parsed(fields);
  EXPECT_TRUE(job.has_value()) << fields << ": " << (job ? "" : job.error().message);
  return job ? std::move(job->requests.front()) : GenerateRequest();
}

chat::ChatInput conversation_of(const std::string& fields) {
  const auto body = Json::parse("{" + fields + "}");
  wire::FieldReader reader(body, wire::FieldReader::Nulls::absent);
  chat::ChatInput chat;
  read_conversation(reader, chat);
  const auto status = reader.finish();
  EXPECT_TRUE(status.has_value()) << (status ? "" : status.error().message);
  return chat;
}

TEST(AnthropicMessages, defaults_are_the_apis_and_the_models) {
  const auto request = request_of("");
  EXPECT_EQ(request.sampling.max_tokens, 8);
  EXPECT_EQ(request.sampling.temperature, 1);
  EXPECT_TRUE(request.open.temperature);
  EXPECT_FALSE(request.open.max_tokens);
  EXPECT_TRUE(request.open.top_p);
  EXPECT_FALSE(request.add_special_tokens);
  EXPECT_THAT(*request.prompt, HasSubstr("Hi"));
}

TEST(AnthropicMessages, sampling_fields_of_the_api_and_of_ours_are_read) {
  const auto request = request_of(
      R"("temperature":0.5,"top_p":0.9,"top_k":7,"stop_sequences":["a","b"],"seed":3,"min_p":0.1,"user":"u","priority":2)");
  EXPECT_EQ(request.sampling.temperature, 0.5);
  EXPECT_EQ(request.sampling.top_p, 0.9);
  EXPECT_EQ(request.sampling.top_k, 7);
  EXPECT_THAT(request.sampling.stop, ElementsAre("a", "b"));
  EXPECT_EQ(request.sampling.seed, 3);
  EXPECT_EQ(request.user, "u");
  EXPECT_EQ(request.priority, 2);
}

TEST(AnthropicMessages, what_changes_nothing_is_taken) {
  for (const auto* fields :
       {R"("metadata":{"user_id":"u"})", R"("service_tier":"auto")", R"("cache_control":{"type":"ephemeral"})",
        R"("tools":[])", R"("tool_choice":{"type":"none"})", R"("tool_choice":{"type":"auto"})", R"("mcp_servers":[])",
        R"("container":null)", R"("context_management":null)",
        R"("context_management":{"edits":[{"type":"clear_thinking_20251015","keep":"all"}]})",
        R"("thinking":{"type":"adaptive","display":"updates"})", R"("thinking":{"type":"disabled"})",
        R"("system":null)", R"("chat_template_kwargs":{"a":1})"}) {
    EXPECT_TRUE(parsed(fields).has_value()) << fields;
  }
}

class AnthropicRefusal : public testing::TestWithParam<RefusedField> {};

TEST_P(AnthropicRefusal, is_by_name) {
  const auto job = parsed(GetParam().fields);
  ASSERT_FALSE(job.has_value());
  EXPECT_EQ(job.error().status, 400u);
  EXPECT_EQ(job.error().param, GetParam().param);
  EXPECT_THAT(job.error().message, HasSubstr(GetParam().param));
}

std::string user_block(const std::string& block) {
  return R"("messages":[{"role":"user","content":[)" + block + "]}]";
}
std::string assistant_block(const std::string& block) {
  return R"("messages":[{"role":"assistant","content":[)" + block + "]}]";
}

INSTANTIATE_TEST_SUITE_P(
    Fields, AnthropicRefusal,
    testing::Values(
        RefusedField{"no_max_tokens", R"("max_tokens":null)", "max_tokens"},
        RefusedField{"no_messages", R"("messages":null)", "messages"},
        RefusedField{"empty_messages", R"("messages":[])", "messages"},
        RefusedField{"unknown_role", R"("messages":[{"role":"tool","content":"x"}])", "messages[0].role"},
        RefusedField{"no_role", R"("messages":[{"content":"x"}])", "messages[0].role"},
        RefusedField{"no_content", R"("messages":[{"role":"user"}])", "messages[0].content"},
        RefusedField{"unknown_member", R"("messages":[{"role":"user","content":"x","name":"y"}])", "messages[0].name"},
        RefusedField{"image", user_block(R"({"type":"image","source":{}})"), "messages[0].content[0].type"},
        RefusedField{"document", user_block(R"({"type":"document","source":{}})"), "messages[0].content[0].type"},
        RefusedField{"image_in_a_result",
                     user_block(R"({"type":"tool_result","tool_use_id":"t","content":[{"type":"image"}]})"),
                     "messages[0].content[0].content[0].type"},
        RefusedField{"result_of_nothing", user_block(R"({"type":"tool_result","content":"x"})"),
                     "messages[0].content[0].tool_use_id"},
        RefusedField{"text_of_nothing", user_block(R"({"type":"text"})"), "messages[0].content[0].text"},
        RefusedField{"unknown_in_a_block", user_block(R"({"type":"text","text":"x","y":1})"),
                     "messages[0].content[0].y"},
        RefusedField{"citations", user_block(R"({"type":"text","text":"x","citations":[{}]})"),
                     "messages[0].content[0].citations"},
        RefusedField{"block_that_is_none", user_block("1"), "messages[0].content[0]"},
        RefusedField{"use_by_users", user_block(R"({"type":"tool_use","id":"t","name":"f","input":{}})"),
                     "messages[0].content[0].type"},
        RefusedField{"input_that_is_none", assistant_block(R"({"type":"tool_use","id":"t","name":"f","input":1})"),
                     "messages[0].content[0].input"},
        RefusedField{"use_at_the_end", assistant_block(R"({"type":"tool_use","id":"t","name":"f","input":{}})"),
                     "messages"},
        RefusedField{"image_in_system", R"("system":[{"type":"image"}])", "system[0].type"},
        RefusedField{"thread", R"("thread":{"type":"create"})", "thread"},
        RefusedField{"tools", R"("tools":[{"name":"f","input_schema":{}}])", "tools"},
        RefusedField{"tool_choice", R"("tool_choice":{"type":"any"})", "tool_choice"},
        RefusedField{"thinking", R"("thinking":{"type":"enabled","budget_tokens":1024})", "thinking.type"},
        RefusedField{"between_tools", R"("thinking":{"type":"between_tools"})", "thinking.type"},
        RefusedField{"display", R"("thinking":{"type":"adaptive","display":"all"})", "thinking.display"},
        RefusedField{"adaptive_budget", R"("thinking":{"type":"adaptive","budget_tokens":9})",
                     "thinking.budget_tokens"},
        RefusedField{"budget", R"("thinking":{"type":"disabled","budget_tokens":0})", "thinking.budget_tokens"},
        RefusedField{"metadata", R"("metadata":{"a":"b"})", "metadata.a"},
        RefusedField{"two_stops", R"("stop":"a","stop_sequences":["b"])", "stop_sequences"},
        RefusedField{"many", R"("n":2)", "n"},
        RefusedField{"prompt_logprobs", R"("prompt_logprobs":1)", "prompt_logprobs"},
        RefusedField{"mcp_servers", R"("mcp_servers":[{"type":"url"}])", "mcp_servers"},
        RefusedField{"container", R"("container":"c")", "container"},
        RefusedField{"context_edit", R"("context_management":{"edits":[{"type":"clear_tool_uses_20250919"}]})",
                     "context_management.edits[0].type"},
        RefusedField{"effort", R"("output_config":{"effort":"low"})", "output_config.effort"},
        RefusedField{"unknown_config", R"("output_config":{"x":1})", "output_config.x"},
        RefusedField{"format_type", R"("output_config":{"format":{"type":"json_object"}})",
                     "output_config.format.type"},
        RefusedField{"format_schema", R"("output_config":{"format":{"type":"json_schema","schema":3}})",
                     "output_config.format.schema"},
        RefusedField{"format_member", R"("output_format":{"type":"json_schema","schema":{},"name":"n"})",
                     "output_format.name"},
        RefusedField{"two_formats",
                     R"("output_format":{"type":"json_schema","schema":{}},
                        "output_config":{"format":{"type":"json_schema","schema":{}}})",
                     "output_config.format"},
        RefusedField{"format_and_structured_outputs",
                     R"("structured_outputs":{"regex":"a"},"output_format":{"type":"json_schema","schema":{}})",
                     "output_format"}),
    name_of);

TEST(AnthropicMessages, an_answer_is_held_to_the_format_that_is_asked_for) {
  const StructuredOutput integer{GrammarKind::json_schema, R"({"type":"integer"})", {}};
  for (const char* fields : {R"("output_config":{"format":{"type":"json_schema","schema":{"type":"integer"}}})",
                             R"("output_format":{"type":"json_schema","schema":{"type":"integer"}})"}) {
    const auto job = parsed(fields);
    ASSERT_TRUE(job) << job.error().message;
    EXPECT_EQ(job->requests[0].sampling.structured_outputs, integer) << fields;
    const auto name = std::ranges::find(job->names, "structured_outputs", &FieldNames::value_type::first);
    ASSERT_NE(name, job->names.end());
    EXPECT_THAT(fields, HasSubstr(std::string(name->second.substr(0, 10))));
  }
  EXPECT_EQ(request_of(R"("output_config":{"format":null})").sampling.structured_outputs, std::nullopt);
  auto counted = body_with(R"("output_config":{"format":{"type":"json_schema","schema":{}}})");
  counted.erase("max_tokens");
  EXPECT_TRUE(parse_count_tokens(counted, chat_prompts()));
}

TEST(AnthropicMessages, effort_is_the_templates) {
  const auto prompts = chat::ChatPrompts::parse("{{ reasoning_effort }}", {}).value();
  const auto job = parse_messages(body_with(R"("output_config":{"effort":"xhigh"})"), prompts, {"msg_1", "m"});
  ASSERT_TRUE(job.has_value()) << job.error().message;
  EXPECT_EQ(*job->requests[0].prompt, "xhigh");
}

TEST(AnthropicMessages, adaptive_thinking_is_the_models_choice) {
  EXPECT_TRUE(parsed(R"("thinking":{"type":"adaptive","display":"omitted"})"));  // a model that does not think
  const auto prompts = chat::ChatPrompts::parse("{{ enable_thinking }}", {}).value();
  const auto job = parse_messages(body_with(R"("thinking":{"type":"adaptive"})"), prompts, {"msg_1", "m"});
  ASSERT_TRUE(job.has_value()) << job.error().message;
  EXPECT_THAT(*job->requests[0].prompt, testing::StrCaseEq("true"));
  EXPECT_EQ(job->requests[0].sampling.thinking_token_budget, std::nullopt);
}

TEST(AnthropicMessages, thinking_is_the_templates_switch) {
  const auto prompts = chat::ChatPrompts::parse("{{ enable_thinking }}", {}).value();
  const auto body = body_with(R"("thinking":{"type":"enabled","budget_tokens":2048})");
  const auto job = parse_messages(body, prompts, {"msg_1", "m"});
  ASSERT_TRUE(job.has_value()) << job.error().message;
  EXPECT_THAT(*job->requests[0].prompt, testing::StrCaseEq("true"));
  EXPECT_EQ(job->requests[0].sampling.thinking_token_budget, 2048);
  EXPECT_TRUE(job->requests[0].may_drop_thinking_budget);
  const auto exact = parse_messages(body_with(R"("thinking_token_budget":7)"), prompts, {"msg_1", "m"});
  EXPECT_EQ(exact->requests[0].sampling.thinking_token_budget, 7);
  EXPECT_FALSE(exact->requests[0].may_drop_thinking_budget);
  const auto off =
      parse_messages(body_with(R"("thinking":{"type":"disabled","budget_tokens":5})"), prompts, {"m", "m"});
  EXPECT_EQ(off->requests[0].sampling.thinking_token_budget, std::nullopt);
}

TEST(AnthropicMessages, the_switch_is_that_of_the_template_which_renders) {
  const auto prompts =
      chat::ChatPrompts::parse({{"default", "{{ enable_thinking }}"}, {"rag", "no switch"}}, {}).value();
  const std::string thinking = R"("thinking":{"type":"enabled","budget_tokens":2048})";
  EXPECT_TRUE(parse_messages(body_with(thinking), prompts, {"msg_1", "m"}).has_value());
  const auto rag = parse_messages(body_with(thinking + R"(,"documents":[{"text":"d"}])"), prompts, {"msg_1", "m"});
  ASSERT_FALSE(rag.has_value());
  EXPECT_EQ(rag.error().param, "thinking.type");
}

TEST(AnthropicConversation, system_comes_first) {
  EXPECT_EQ(conversation_of(R"("messages":[{"role":"user","content":"Hi"}],"system":"Be brief.")").messages,
            Json::parse(R"([{"role":"system","content":"Be brief."},{"role":"user","content":"Hi"}])"));
  const auto chat = conversation_of(
      R"("messages":[{"role":"user","content":"Hi"}],
         "system":[{"type":"text","text":"a","cache_control":{"type":"ephemeral"}},{"type":"text","text":"b"}])");
  EXPECT_EQ(chat.messages[0]["content"], Json::parse(R"([{"type":"text","text":"a"},{"type":"text","text":"b"}])"));
}

TEST(AnthropicConversation, tools_and_thoughts_take_openais_form) {
  const auto chat = conversation_of(R"("messages":[
    {"role":"user","content":[{"type":"text","text":"Weather?"}]},
    {"role":"assistant","content":[
      {"type":"thinking","thinking":"Ask.","signature":"s"},
      {"type":"text","text":"Let me see."},
      {"type":"tool_use","id":"t1","name":"weather","input":{"city":"Rome"}},
      {"type":"tool_use","id":"t2","name":"time","input":{}}]},
    {"role":"user","content":[
      {"type":"tool_result","tool_use_id":"t1","content":"sunny","is_error":false},
      {"type":"tool_result","tool_use_id":"t2","content":[{"type":"text","text":"noon"}]},
      {"type":"tool_result","tool_use_id":"t3","content":[{"type":"tool_reference","tool_name":"clock"}]},
      {"type":"text","text":"And?"}]}])");
  EXPECT_EQ(chat.messages, Json::parse(R"([
    {"role":"user","content":"Weather?"},
    {"role":"assistant","content":"Let me see.","reasoning_content":"Ask.","tool_calls":[
      {"id":"t1","type":"function","function":{"name":"weather","arguments":{"city":"Rome"}}},
      {"id":"t2","type":"function","function":{"name":"time","arguments":{}}}]},
    {"role":"tool","content":"sunny","tool_call_id":"t1"},
    {"role":"tool","content":"noon","tool_call_id":"t2"},
    {"role":"tool","content":"clock","tool_call_id":"t3"},
    {"role":"user","content":"And?"}])"));
  EXPECT_FALSE(chat.continue_final_message);
}

TEST(AnthropicConversation, thoughts_that_only_another_model_can_read_are_dropped) {
  EXPECT_EQ(conversation_of(R"("messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":[
      {"type":"redacted_thinking","data":"x"},{"type":"text","text":"Yes."}]},{"role":"user","content":"And?"}])")
                .messages,
            Json::parse(R"([{"role":"user","content":"Hi"},{"role":"assistant","content":"Yes."},
      {"role":"user","content":"And?"}])"));
}

TEST(AnthropicConversation, an_assistants_message_at_the_end_is_continued) {
  const auto chat =
      conversation_of(R"("messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"The"}])");
  EXPECT_TRUE(chat.continue_final_message);
}

TEST(AnthropicWriter, a_message_counts_cached_tokens_apart) {
  MessageWriter writer({"msg_1", "m"}, {.timing = true});
  const auto message = whole(writer, result_of("Hello"));
  EXPECT_EQ(message["id"], "msg_1");
  EXPECT_EQ(message["type"], "message");
  EXPECT_EQ(message["role"], "assistant");
  EXPECT_EQ(message["model"], "m");
  EXPECT_EQ(message["content"], json::parse(R"([{"type":"text","text":"Hello"}])"));
  EXPECT_EQ(message["stop_reason"], "end_turn");
  EXPECT_TRUE(message["stop_sequence"].is_null());
  EXPECT_EQ(message["usage"], json::parse(R"({"input_tokens":4,"cache_creation_input_tokens":0,
                                              "cache_read_input_tokens":16,"output_tokens":5})"));
  EXPECT_EQ(message["timing"], json::parse(R"({"queue_ms":1.0,"ttft_ms":2.0,"total_ms":3.0,"cached_tokens":16,
                                               "cache_miss":4,"preemptions":6,"draft_tokens":9,"drafts_accepted":8,
                                               "restarts":7})"));
}

TEST(AnthropicWriter, says_why_it_stopped) {
  MessageWriter writer({"msg_1", "m"}, {.timing = false});
  EXPECT_EQ(whole(writer, result_of("", FinishReason::length))["stop_reason"], "max_tokens");
  EXPECT_TRUE(whole(writer, result_of("", FinishReason::abort))["stop_reason"].is_null());
  auto result = result_of("x");
  result.outputs[0].stop_reason = TokenId{2};
  EXPECT_EQ(whole(writer, result)["stop_reason"], "end_turn");
  result.outputs[0].stop_reason = std::string("END");
  const auto message = whole(writer, result);
  EXPECT_EQ(message["stop_reason"], "stop_sequence");
  EXPECT_EQ(message["stop_sequence"], "END");
  EXPECT_FALSE(message.contains("timing"));
}

TEST(AnthropicWriter, a_stream_has_the_events_in_order) {
  MessageWriter writer({"msg_1", "m"}, {.timing = true});
  const auto events =
      events_of(streamed(writer, {text_delta("Hel"), text_delta(""), text_delta("lo")}, result_of("Hello")));
  ASSERT_THAT(names_of(events),
              ElementsAre("message_start", "ping", "content_block_start", "content_block_delta", "content_block_delta",
                          "content_block_stop", "message_delta", "message_stop"));
  EXPECT_EQ(events[0]["message"]["usage"]["input_tokens"], 20);
  EXPECT_EQ(events[0]["message"]["content"], json::array());
  EXPECT_TRUE(events[0]["message"]["stop_reason"].is_null());
  EXPECT_EQ(events[2]["content_block"], json::parse(R"({"type":"text","text":""})"));
  EXPECT_EQ(events[4]["delta"], json::parse(R"({"type":"text_delta","text":"lo"})"));
  EXPECT_EQ(events[6]["delta"]["stop_reason"], "end_turn");
  EXPECT_EQ(events[6]["usage"]["input_tokens"], 4);
  EXPECT_EQ(events[6]["usage"]["cache_read_input_tokens"], 16);
  EXPECT_EQ(events[6]["usage"]["output_tokens"], 5);
  EXPECT_EQ(events[6]["timing"]["queue_ms"], 1);
}

TEST(AnthropicWriter, an_error_is_the_last_event) {
  MessageWriter writer({"msg_1", "m"}, {.timing = false});
  std::string out;
  writer.error(out, {503, "busy"});
  EXPECT_EQ(
      out,
      "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"busy\"}}\n\n");
}

TEST(AnthropicCountTokens, takes_what_a_prompt_is_made_of) {
  const auto question = parse_count_tokens(
      Json::parse(R"({"model":"m","system":"S","messages":[{"role":"user","content":"Hi"}],"tools":[]})"),
      chat_prompts());
  ASSERT_TRUE(question.has_value()) << question.error().message;
  EXPECT_FALSE(question->add_special_tokens);
  EXPECT_THAT(question->text, HasSubstr("S"));
  EXPECT_THAT(question->text, HasSubstr("Hi"));
  const auto refused = parse_count_tokens(body_with(""), chat_prompts());
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().param, "max_tokens");
}

}  // namespace
}  // namespace pagoda::http::anthropic
