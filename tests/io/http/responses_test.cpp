#include "io/http/openai/responses.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/http/openai/response_items.hpp"
#include "io/http/openai/response_store.hpp"
#include "io/http/openai/response_writer.hpp"
#include "tests/io/http/writer_driver.hpp"
#include "tests/support/listed_texts.hpp"

namespace pagoda::http::openai {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using wire::Json;

const ResponseStore::Owner kResponseOwner = "one";

ParsedJob parsed(const std::string& fields, ResponseStore& store, const std::string& id = "1") {
  auto body = Json::parse(R"({"model":"m","input":"Hi"})");
  body.update(Json::parse("{" + fields + "}"));
  return parse_response(body, chat_prompts(), store, kResponseOwner, {id, "m", 100});
}

GenerationJob job_of(const std::string& fields, ResponseStore& store, const std::string& id = "1") {
  auto job = parsed(fields, store, id);
  EXPECT_TRUE(job.has_value()) << fields << ": " << (job ? "" : job.error().message);
  return job ? std::move(*job) : GenerationJob();
}

GenerateRequest request_of(const std::string& fields) {
  ResponseStore store;
  return std::move(job_of(fields, store).requests.front());
}

Json messages_of(const std::string& input) {
  const auto body = Json::parse(R"({"input":)" + input + "}");
  wire::FieldReader fields(body, wire::FieldReader::Nulls::absent);
  auto messages = Json::array();
  read_input(fields, messages);
  const auto status = fields.finish();
  EXPECT_TRUE(status.has_value()) << (status ? "" : status.error().message);
  return messages;
}

TEST(Responses, defaults_are_the_apis) {
  const auto request = request_of("");
  EXPECT_GT(request.sampling.max_tokens, 1 << 20);
  EXPECT_EQ(request.sampling.temperature, 1);
  EXPECT_TRUE(request.open.temperature);
  EXPECT_TRUE(request.open.top_p);
  EXPECT_TRUE(request.open.max_tokens);
  EXPECT_TRUE(request.open.top_k);
  EXPECT_FALSE(request.add_special_tokens);
  EXPECT_FALSE(request.sampling.logprobs);
}

TEST(Responses, sampling_fields_of_the_api_and_of_ours_are_read) {
  const auto request = request_of(
      R"("max_output_tokens":7,"temperature":0,"top_p":0.5,"top_logprobs":3,
         "include":["message.output_text.logprobs"],"stop":"x","seed":4,"user":"u","cache_salt":"s")");
  EXPECT_EQ(request.sampling.max_tokens, 7);
  EXPECT_EQ(request.sampling.temperature, 0);
  EXPECT_EQ(request.sampling.top_p, 0.5);
  EXPECT_EQ(request.sampling.logprobs, 3);
  EXPECT_THAT(request.sampling.stop, ElementsAre("x"));
  EXPECT_EQ(request.sampling.seed, 4);
  EXPECT_EQ(request.user, "u");
  EXPECT_EQ(request.cache_salt, "s");
}

TEST(Responses, what_changes_nothing_is_taken) {
  ResponseStore store;
  for (const auto* fields :
       {R"("tools":[])",
        R"("tool_choice":"none")",
        R"("tool_choice":"auto")",
        R"("parallel_tool_calls":false)",
        R"("text":{"format":{"type":"text"},"verbosity":"medium"})",
        R"("text":{})",
        R"("truncation":"disabled")",
        R"("background":false)",
        R"("reasoning":{"effort":null,"summary":"auto"})",
        R"("reasoning":{"effort":"none"})",
        R"("prompt_cache_key":"k")",
        R"("safety_identifier":"s")",
        R"("service_tier":"auto")",
        R"("include":[])",
        R"("stream":true,"stream_options":{"include_obfuscation":false})",
        R"("max_output_tokens":null)",
        R"("input":[{"role":"assistant","content":"x","phase":"commentary"},{"role":"user","content":"y"}])",
        R"("store":false)",
        R"("max_tool_calls":1)",
        R"("client_metadata":{"a":"b"})",
        R"("include":["reasoning.encrypted_content","web_search_call.action.sources"])"}) {
    const auto job = parsed(fields, store);
    EXPECT_TRUE(job.has_value()) << fields << ": " << (job ? "" : job.error().message);
  }
}

class ResponsesRefusal : public testing::TestWithParam<RefusedField> {};

TEST_P(ResponsesRefusal, is_by_name) {
  ResponseStore store;
  const auto job = parsed(GetParam().fields, store);
  ASSERT_FALSE(job.has_value());
  EXPECT_EQ(job.error().status, 400u);
  EXPECT_EQ(job.error().param, GetParam().param);
  EXPECT_FALSE(job.error().message.empty());
}

std::string message_part(const std::string& part) {
  return R"("input":[{"role":"user","content":[)" + part + "]}]";
}

INSTANTIATE_TEST_SUITE_P(
    Fields, ResponsesRefusal,
    testing::Values(
        RefusedField{"no_input", R"("input":null)", "input"}, RefusedField{"empty_input", R"("input":[])", "input"},
        RefusedField{"input_that_is_none", R"("input":1)", "input"},
        RefusedField{"item_that_is_none", R"("input":["x"])", "input[0]"},
        RefusedField{"reference", R"("input":[{"type":"item_reference","id":"msg_1"}])", "input[0].type"},
        RefusedField{"reference_without_a_type", R"("input":[{"id":"msg_1"}])", "input[0].type"},
        RefusedField{"computer_item", R"("input":[{"type":"computer_call"}])", "input[0].type"},
        RefusedField{"role", R"("input":[{"role":"tool","content":"x"}])", "input[0].role"},
        RefusedField{"no_content", R"("input":[{"role":"user"}])", "input[0].content"},
        RefusedField{"unknown_member", R"("input":[{"role":"user","content":"x","y":1}])", "input[0].y"},
        RefusedField{"image", message_part(R"({"type":"input_image","image_url":"x"})"), "input[0].content[0].type"},
        RefusedField{"file", message_part(R"({"type":"input_file","file_id":"x"})"), "input[0].content[0].type"},
        RefusedField{"text_of_nothing", message_part(R"({"type":"input_text"})"), "input[0].content[0].text"},
        RefusedField{"call_without_an_id", R"("input":[{"type":"function_call","name":"f","arguments":"{}"}])",
                     "input[0].call_id"},
        RefusedField{"thought_of_nothing", R"("input":[{"type":"reasoning","content":[{"type":"reasoning_text"}]}])",
                     "input[0].content[0].text"},
        RefusedField{"no_output", R"("input":[{"type":"function_call_output","call_id":"c"}])", "input[0].output"},
        RefusedField{"image_of_a_call",
                     R"("input":[{"type":"function_call_output","call_id":"c","output":[{"type":"input_image"}]}])",
                     "input[0].output[0].type"},
        RefusedField{"tools", R"("tools":[{"type":"web_search"}])", "tools[0].type"},
        RefusedField{"tool_choice", R"("tool_choice":"required")", "tool_choice"},
        RefusedField{"format", R"("text":{"format":{"type":"xml"}})", "text.format.type"},
        RefusedField{"json_schema_without_a_name", R"("text":{"format":{"type":"json_schema","schema":{}}})",
                     "text.format.name"},
        RefusedField{"json_schema_that_is_none", R"("text":{"format":{"type":"json_schema","name":"n","schema":[]}})",
                     "text.format.schema"},
        RefusedField{"verbosity", R"("text":{"verbosity":"low"})", "text.verbosity"},
        RefusedField{"effort", R"("reasoning":{"effort":"high"})", "reasoning.effort"},
        RefusedField{"summary", R"("reasoning":{"summary":"detailed"})", "reasoning.summary"},
        RefusedField{"truncation", R"("truncation":"auto")", "truncation"},
        RefusedField{"background", R"("background":true)", "background"},
        RefusedField{"include", R"("include":["message.text"])", "include"},
        RefusedField{"top_logprobs", R"("top_logprobs":2)", "top_logprobs"},
        RefusedField{"top_logprobs_below_minus_1", R"("top_logprobs":-2,"include":["message.output_text.logprobs"])",
                     "top_logprobs"},
        RefusedField{"logprob_token_ids", R"("logprob_token_ids":[1])", "logprob_token_ids"},
        RefusedField{"detokenize", R"("detokenize":false)", "detokenize"},
        RefusedField{"max_output_tokens", R"("max_output_tokens":0)", "max_output_tokens"},
        RefusedField{"metadata_of_numbers", R"("metadata":{"a":1})", "metadata"},
        RefusedField{"conversation", R"("conversation":"c")", "conversation"},
        RefusedField{"prompt", R"("prompt":{"id":"p"})", "prompt"},
        RefusedField{"max_tokens", R"("max_tokens":1)", "max_tokens"}, RefusedField{"many", R"("n":2)", "n"},
        RefusedField{"prompt_logprobs", R"("prompt_logprobs":1)", "prompt_logprobs"},
        RefusedField{"structured_outputs", R"("structured_outputs":{"regex":"a","json":{}})", "structured_outputs"},
        RefusedField{"two_formats", R"("structured_outputs":{"regex":"a"},"text":{"format":{"type":"json_object"}})",
                     "text.format"},
        RefusedField{"stream_options", R"("stream_options":{})", "stream_options"},
        RefusedField{"unknown_previous", R"("previous_response_id":"resp_9")", "previous_response_id"}),
    name_of);

TEST(ResponsesInput, messages_take_openais_older_form) {
  EXPECT_EQ(messages_of(R"("Hi")"), Json::parse(R"([{"role":"user","content":"Hi"}])"));
  EXPECT_EQ(messages_of(R"([
    {"role":"developer","content":"Be brief."},
    {"type":"message","role":"user","content":[{"type":"input_text","text":"a"},{"type":"input_text","text":"b"}]},
    {"type":"message","id":"msg_1","status":"completed","role":"assistant",
     "content":[{"type":"output_text","text":"c","annotations":[],"logprobs":[]}]}])"),
            Json::parse(R"([
    {"role":"developer","content":"Be brief."},
    {"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}]},
    {"role":"assistant","content":"c"}])"));
}

TEST(ResponsesInput, calls_belong_to_the_assistants_message_before_them) {
  EXPECT_EQ(messages_of(R"([
    {"role":"user","content":"Weather?"},
    {"type":"function_call","id":"fc_1","call_id":"c1","name":"weather","arguments":"{\"city\":\"Rome\"}"},
    {"type":"function_call","call_id":"c2","name":"time","arguments":""},
    {"type":"function_call_output","call_id":"c1","output":"sunny"},
    {"type":"function_call_output","call_id":"c2","output":[{"type":"input_text","text":"noon"}]}])"),
            Json::parse(R"([
    {"role":"user","content":"Weather?"},
    {"role":"assistant","content":"","tool_calls":[
      {"id":"c1","type":"function","function":{"name":"weather","arguments":{"city":"Rome"}}},
      {"id":"c2","type":"function","function":{"name":"time","arguments":{}}}]},
    {"role":"tool","content":"sunny","tool_call_id":"c1"},
    {"role":"tool","content":"noon","tool_call_id":"c2"}])"));
}

TEST(ResponsesInput, what_an_assistant_thinks_says_and_calls_is_one_message) {
  const auto thought = [](const std::string& text) {
    return R"({"type":"reasoning","id":"rs_1","status":"completed","encrypted_content":null,"summary":[],
      "content":[{"type":"reasoning_text","text":")" +
           text + R"("}]},)";
  };
  const std::string call =
      R"({"type":"function_call","id":"fc_1","call_id":"c1","name":"f","arguments":"{\"a\": [1,"},)";
  EXPECT_EQ(
      messages_of(R"([{"role":"user","content":"Go"},)" + thought("Hm") + thought("m.") +
                  R"({"type":"message","role":"assistant","content":[{"type":"output_text","text":"I look."}]},)" +
                  call + R"({"type":"function_call_output","call_id":"c1","output":"done"},)" + thought("So.") +
                  R"({"role":"user","content":"And?"},)" + thought("Well.") + R"({"role":"assistant","content":"Yes."},
                        {"role":"assistant","content":"Indeed."}])"),
      Json::parse(R"([
    {"role":"user","content":"Go"},
    {"role":"assistant","content":"I look.","reasoning_content":"Hmm.","tool_calls":[
      {"id":"c1","type":"function","function":{"name":"f","arguments":{"a":[1]}}}]},
    {"role":"tool","content":"done","tool_call_id":"c1"},
    {"role":"assistant","content":"","reasoning_content":"So."},
    {"role":"user","content":"And?"},
    {"role":"assistant","content":"Yes.","reasoning_content":"Well."},
    {"role":"assistant","content":"Indeed."}])"));
}

TEST(ResponsesInput, a_thought_without_content_is_its_summary) {
  EXPECT_EQ(messages_of(R"([{"role":"user","content":"Go"},
    {"type":"reasoning","id":"rs_1","summary":[{"type":"summary_text","text":"Short."}],"encrypted_content":"x"},
    {"role":"assistant","content":"Yes."},{"role":"user","content":"And?"},
    {"type":"reasoning","id":"rs_2","summary":[]},{"role":"assistant","content":"No."}])"),
            Json::parse(R"([{"role":"user","content":"Go"},
    {"role":"assistant","content":"Yes.","reasoning_content":"Short."},{"role":"user","content":"And?"},
    {"role":"assistant","content":"No."}])"));
}

TEST(ResponsesWriter, a_response_repeats_what_was_asked) {
  ResponseStore store;
  auto job = job_of(R"("instructions":"Be brief.","max_output_tokens":9,"temperature":0.5,"top_p":0.25,
    "metadata":{"a":"b"},"parallel_tool_calls":false,"tool_choice":"none","user":"u","timing":true,
    "reasoning":{"effort":"none","summary":"auto"})",
                    store);
  const auto response = whole(*job.writer, result_of("Hello"));
  EXPECT_EQ(response["id"], "resp_1");
  EXPECT_EQ(response["object"], "response");
  EXPECT_EQ(response["created_at"], 100);
  EXPECT_EQ(response["status"], "completed");
  EXPECT_TRUE(response["completed_at"].is_number());
  EXPECT_TRUE(response["error"].is_null());
  EXPECT_TRUE(response["incomplete_details"].is_null());
  EXPECT_EQ(response["instructions"], "Be brief.");
  EXPECT_EQ(response["max_output_tokens"], 9);
  EXPECT_EQ(response["temperature"], 0.5);
  EXPECT_EQ(response["top_p"], 0.25);
  EXPECT_EQ(response["metadata"], json::parse(R"({"a":"b"})"));
  EXPECT_EQ(response["parallel_tool_calls"], false);
  EXPECT_EQ(response["tool_choice"], "none");
  EXPECT_EQ(response["tools"], json::array());
  EXPECT_EQ(response["user"], "u");
  EXPECT_EQ(response["store"], false);
  EXPECT_EQ(response["reasoning"], json::parse(R"({"effort":"none","summary":"auto"})"));
  EXPECT_EQ(response["text"], json::parse(R"({"format":{"type":"text"}})"));
  EXPECT_EQ(response["output"], json::parse(R"([{"id":"msg_1","type":"message","status":"completed","role":"assistant",
    "content":[{"type":"output_text","annotations":[],"logprobs":[],"text":"Hello"}]}])"));
  EXPECT_EQ(response["usage"], json::parse(R"({"input_tokens":20,
    "input_tokens_details":{"cached_tokens":16,"cache_write_tokens":0},
    "output_tokens":5,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":25})"));
  EXPECT_EQ(response["timing"]["total_ms"], 3);
}

TEST(ResponsesWriter, says_how_it_ended) {
  ResponseStore store;
  const auto at_limit = whole(*job_of("", store).writer, result_of("x", FinishReason::length));
  EXPECT_EQ(at_limit["status"], "incomplete");
  EXPECT_EQ(at_limit["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(at_limit["output"][0]["status"], "incomplete");
  const auto aborted = whole(*job_of("", store).writer, result_of("x", FinishReason::abort));
  EXPECT_EQ(aborted["status"], "failed");
  EXPECT_EQ(aborted["error"]["code"], "server_error");
}

TEST(ResponsesWriter, tells_logprobs_where_they_are_included) {
  const auto texts = std::make_shared<test::ListedTexts>();
  const TokenId he = texts->add("He");
  const Logprobs entry = test::one_logprob(texts, he, -0.5F, 1, {{he, -0.5F}, {texts->add("X"), -1.5F}});
  ResponseStore store;
  auto result = result_of("He");
  result.outputs[0].logprobs = entry;
  auto job = job_of(R"("top_logprobs":1,"include":["message.output_text.logprobs"])", store);
  const auto expected = json::parse(R"([{"token":"He","logprob":-0.5,"bytes":[72,101],
    "top_logprobs":[{"token":"He","logprob":-0.5,"bytes":[72,101]}]}])");
  EXPECT_EQ(whole(*job.writer, result)["output"][0]["content"][0]["logprobs"], expected);
  auto streaming = job_of(R"("top_logprobs":1,"include":["message.output_text.logprobs"])", store);
  const auto events = events_of(streamed(*streaming.writer, {text_delta("He", entry)}, result));
  EXPECT_EQ(events.at(4)["logprobs"], expected);
  EXPECT_EQ(events.at(5)["logprobs"], expected);
}

TEST(ResponsesWriter, a_stream_has_the_events_in_order) {
  ResponseStore store;
  auto job = job_of(R"("stream":true)", store);
  EXPECT_TRUE(job.stream);
  const auto events = events_of(streamed(*job.writer, {text_delta("Hel"), text_delta("lo")}, result_of("Hello")));
  ASSERT_THAT(names_of(events),
              ElementsAre("response.created", "response.in_progress", "response.output_item.added",
                          "response.content_part.added", "response.output_text.delta", "response.output_text.delta",
                          "response.output_text.done", "response.content_part.done", "response.output_item.done",
                          "response.completed"));
  for (std::size_t i = 0; i < events.size(); ++i) EXPECT_EQ(events[i]["sequence_number"], i);
  for (std::size_t i = 3; i < 8; ++i) {
    EXPECT_EQ(events[i]["item_id"], "msg_1");
    EXPECT_EQ(events[i]["output_index"], 0);
    EXPECT_EQ(events[i]["content_index"], 0);
  }
  EXPECT_EQ(events[0]["response"]["status"], "in_progress");
  EXPECT_EQ(events[0]["response"]["output"], json::array());
  EXPECT_TRUE(events[0]["response"]["usage"].is_null());
  EXPECT_EQ(events[2]["item"]["status"], "in_progress");
  EXPECT_EQ(events[2]["item"]["content"], json::array());
  EXPECT_EQ(events[3]["part"]["text"], "");
  EXPECT_EQ(events[4]["delta"], "Hel");
  EXPECT_EQ(events[4]["logprobs"], json::array());
  EXPECT_EQ(events[6]["text"], "Hello");
  EXPECT_EQ(events[7]["part"]["text"], "Hello");
  EXPECT_EQ(events[8]["item"], events[9]["response"]["output"][0]);
  EXPECT_EQ(events[9]["response"]["status"], "completed");
}

TEST(ResponsesWriter, a_stream_ends_with_the_name_of_its_end) {
  ResponseStore store;
  const auto last = [&](FinishReason reason) {
    const auto events = events_of(streamed(*job_of("", store).writer, {}, result_of("", reason)));
    EXPECT_EQ(events.size(), 8u);  // a message also where nothing was said
    return events.back();
  };
  EXPECT_EQ(last(FinishReason::length)["type"], "response.incomplete");
  EXPECT_EQ(last(FinishReason::abort)["type"], "response.failed");

  std::string out;
  job_of("", store).writer->error(out, {503, "busy"});
  const auto events = events_of(out);
  ASSERT_THAT(names_of(events), ElementsAre("response.failed"));
  EXPECT_EQ(events[0]["response"]["status"], "failed");
  EXPECT_EQ(events[0]["response"]["error"], json::parse(R"({"code":"server_error","message":"busy"})"));
}

TEST(ResponsesStored, a_conversation_goes_on_from_what_was_kept) {
  ResponseStore store;
  auto first = job_of(R"("instructions":"First.","input":"One","store":true)", store);
  const auto response = whole(*first.writer, result_of("Two"));
  EXPECT_EQ(response["store"], true);
  const auto stored = store.find(kResponseOwner, "resp_1");
  ASSERT_NE(stored, nullptr);
  EXPECT_EQ(json::parse(stored->body), response);
  EXPECT_EQ(json::parse(stored->messages),
            json::parse(R"([{"role":"user","content":"One"},{"role":"assistant","content":"Two"}])"));

  auto second =
      job_of(R"("instructions":"Second.","input":"Three","store":true,"previous_response_id":"resp_1")", store, "2");
  const auto& prompt = *second.requests[0].prompt;
  EXPECT_EQ(prompt.find("First."), std::string::npos);
  EXPECT_LT(prompt.find("Second."), prompt.find("One"));
  EXPECT_LT(prompt.find("One"), prompt.find("Two"));
  EXPECT_LT(prompt.find("Two"), prompt.find("Three"));
  const auto events = events_of(streamed(*second.writer, {text_delta("Four")}, result_of("Four")));
  EXPECT_EQ(events.back()["response"]["previous_response_id"], "resp_1");
  EXPECT_EQ(json::parse(store.find(kResponseOwner, "resp_2")->body), events.back()["response"]);
  EXPECT_EQ(json::parse(store.find(kResponseOwner, "resp_2")->messages).size(), 4u);
}

TEST(ResponsesStored, integers_of_any_size_keep_their_digits) {
  ResponseStore store;
  constexpr auto kInput =
      R"("store":true,"input":[{"role":"user","content":"One"},{"type":"function_call","call_id":"c","name":"f","arguments":
      "{\"n\": 18446744073709551616}"},{"type":"function_call_output","call_id":"c","output":"done"}])";
  whole(*job_of(kInput, store).writer, result_of("Two"));
  const auto stored = store.find(kResponseOwner, "resp_1");
  ASSERT_NE(stored, nullptr);
  EXPECT_THAT(stored->messages, HasSubstr(R"({"n":18446744073709551616})"));
  const auto second = job_of(R"("input":"Three","previous_response_id":"resp_1")", store, "2");
  EXPECT_THAT(*second.requests[0].prompt, HasSubstr(R"({"n": 18446744073709551616})"));
}

TEST(ResponsesStored, nothing_is_kept_unasked_nor_of_failures) {
  ResponseStore store;
  whole(*job_of("", store).writer, result_of("x"));
  EXPECT_EQ(store.find(kResponseOwner, "resp_1"), nullptr);
  whole(*job_of(R"("store":true)", store).writer, result_of("x", FinishReason::abort));
  EXPECT_EQ(store.find(kResponseOwner, "resp_1"), nullptr);
}

}  // namespace
}  // namespace pagoda::http::openai
