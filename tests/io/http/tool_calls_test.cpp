// Thinking and tool calls in the four HTTP APIs: what a request makes of the prompt and of the grammar, and what an
// answer looks like, whole and as a stream that is cut anywhere.

#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/http/anthropic/messages.hpp"
#include "io/http/ollama/chat.hpp"
#include "io/http/openai/response_store.hpp"
#include "io/http/openai/responses.hpp"
#include "tests/io/http/tool_requests.hpp"
#include "tests/support/listed_texts.hpp"

namespace pagoda::http {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;
using wire::Json;

constexpr const char* kAnswer =
    "<think>\nWhere?\n</think>\n\nI look.\n<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": "
    "\"R\xC3\xB6m\"}}\n"
    "</tool_call>\n<tool_call>\n{\"name\": \"now\", \"arguments\": {}}\n</tool_call>";

/// The deltas of a text that is cut behind each `size` bytes, or the character that they end in.
std::vector<SequenceDelta> cut(const std::string& text, std::size_t size) {
  std::vector<SequenceDelta> deltas;
  for (std::size_t at = 0; at < text.size();) {
    std::size_t end = std::min(at + size, text.size());
    while (end < text.size() && (static_cast<unsigned char>(text[end]) & 0xC0U) == 0x80U) ++end;
    deltas.push_back(text_delta(text.substr(at, end - at)));
    at = end;
  }
  return deltas;
}

std::vector<json> data_of(const std::string& stream) {
  std::vector<json> data;
  for (std::size_t at = 0; (at = stream.find("data: ", at)) != std::string::npos;) {
    at += 6;
    const auto text = stream.substr(at, stream.find('\n', at) - at);
    if (text != "[DONE]") data.push_back(json::parse(text));
  }
  return data;
}

// -- /v1/chat/completions

/// The message that a stream says, put together as clients do.
json message_of(const std::vector<json>& chunks) {
  json message{{"role", nullptr}, {"content", ""}};
  for (const auto& chunk : chunks) {
    const auto& delta = chunk["choices"][0]["delta"];
    for (const auto& [key, value] : delta.items()) {
      if (key != "tool_calls") {
        message[key] = message.contains(key) && message[key].is_string()
                           ? json(message[key].get<std::string>() + value.get<std::string>())
                           : value;
        continue;
      }
      for (const auto& call : value) {
        auto& calls = message["tool_calls"];
        if (call["index"] == calls.size()) {
          calls.push_back({{"id", call["id"]}, {"type", call["type"]}, {"function", call["function"]}});
        } else {
          auto& arguments = calls[call["index"].get<std::size_t>()]["function"]["arguments"];
          arguments = arguments.get<std::string>() + call["function"]["arguments"].get<std::string>();
        }
      }
    }
  }
  return message;
}

TEST(ToolCalls, OfChatsAreReadOutOfTheAnswer) {
  auto job = chat_job(openai_tools());
  ASSERT_TRUE(job) << job.error().message;
  EXPECT_THAT(*job->requests[0].prompt, HasSubstr(R"("name": "weather", "description": "Looks out.")"));
  EXPECT_TRUE(job->requests[0].sampling.shows_marks);
  ASSERT_TRUE(job->requests[0].sampling.structured_outputs);
  EXPECT_EQ(job->requests[0].sampling.structured_outputs->kind, GrammarKind::structural_tag);
  const auto answer = whole(*job->writer, result_of(kAnswer));
  const auto& choice = answer["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  EXPECT_EQ(choice["message"]["reasoning"], "Where?");
  EXPECT_EQ(choice["message"]["content"], "I look.");
  const auto& calls = choice["message"]["tool_calls"];
  ASSERT_EQ(calls.size(), 2U);
  EXPECT_EQ(calls[0]["type"], "function");
  EXPECT_EQ(calls[0]["function"], json({{"name", "weather"}, {"arguments", "{\"city\": \"R\xC3\xB6m\"}"}}));
  EXPECT_EQ(calls[1]["function"], json({{"name", "now"}, {"arguments", "{}"}}));
  EXPECT_EQ(calls[0]["id"].get<std::string>().size(), 9U);  // as Mistral's templates want them back
  EXPECT_NE(calls[0]["id"], calls[1]["id"]);
}

TEST(ToolCalls, OfChatsSayTheSameInAStreamHoweverItIsCut) {
  auto reference = chat_job(openai_tools());
  auto message = whole(*reference->writer, result_of(kAnswer))["choices"][0]["message"];
  message.erase("refusal");
  for (std::size_t size = 1; size <= 200; ++size) {
    auto job = chat_job(openai_tools(R"(,"stream":true)"));
    const auto chunks = data_of(streamed(*job->writer, cut(kAnswer, size), result_of(kAnswer)));
    EXPECT_EQ(message_of(chunks), message) << size;
    EXPECT_EQ(chunks.back()["choices"][0]["finish_reason"], "tool_calls");
    EXPECT_EQ(chunks[0]["choices"][0]["delta"]["role"], "assistant");
  }
}

TEST(ToolCalls, WithoutAnyAnAnswerHasItsOwnReason) {
  auto job = chat_job(openai_tools());
  const auto choice = whole(*job->writer, result_of("Hello."))["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_EQ(choice["message"], json({{"role", "assistant"}, {"content", "Hello."}, {"refusal", nullptr}}));
}

TEST(ToolCalls, ThatALimitCutOffKeepWhatTheyHave) {
  auto job = chat_job(openai_tools());
  const std::string text = "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\": \"R";
  const auto choice = whole(*job->writer, result_of(text, FinishReason::length))["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_EQ(choice["message"]["content"], nullptr);
  EXPECT_EQ(choice["message"]["tool_calls"][0]["function"]["arguments"], "{\"city\": \"R");
}

TEST(ToolCalls, ThatALimitCutOffBeforeTheirNameLeaveNothing) {
  auto job = chat_job(openai_tools());
  const auto text = "I look.\n<tool_call>\n{\"name\": \"wea";
  const auto choice = whole(*job->writer, result_of(text, FinishReason::length))["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "length");
  EXPECT_EQ(choice["message"]["content"], "I look.");
  EXPECT_FALSE(choice["message"].contains("tool_calls"));
}

TEST(ToolCalls, ThatAStopStringCutOffSaySo) {
  auto job = chat_job(openai_tools());
  auto result = result_of("<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"");
  result.outputs[0].stop_reason = std::string("city");
  const auto choice = whole(*job->writer, result)["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "stop");
  EXPECT_EQ(choice["stop_reason"], "city");
}

TEST(ToolCalls, WhereNoneMayBeAreText) {
  for (const char* fields : {R"("tools":[])", R"("tool_choice":"none")"}) {
    auto job = chat_job(fields);
    ASSERT_TRUE(job) << job.error().message;
    const auto message = whole(*job->writer, result_of("<tool_call>\n{}"))["choices"][0]["message"];
    EXPECT_EQ(message["content"], "<tool_call>\n{}");
    EXPECT_FALSE(message.contains("tool_calls"));
  }
}

TEST(ToolCalls, TheThinkingMayBeLeftOut) {
  auto job = chat_job(openai_tools(R"(,"include_reasoning":false)"));
  EXPECT_FALSE(whole(*job->writer, result_of(kAnswer))["choices"][0]["message"].contains("reasoning"));
  auto stream = chat_job(openai_tools(R"(,"include_reasoning":false,"stream":true)"));
  EXPECT_EQ(streamed(*stream->writer, cut(kAnswer, 3), result_of(kAnswer)).find("Where?"), std::string::npos);
}

TEST(ToolCalls, ThinkingThatIsSwitchedOffIsNotExpected) {
  auto job = chat_job(R"("chat_template_kwargs":{"enable_thinking":false},"response_format":{"type":"json_object"})");
  ASSERT_TRUE(job) << job.error().message;
  EXPECT_EQ(job->requests[0].sampling.structured_outputs->kind, GrammarKind::json_object);
  auto thinks = chat_job(R"("response_format":{"type":"json_object"})");
  EXPECT_EQ(thinks->requests[0].sampling.structured_outputs->kind, GrammarKind::structural_tag);
}

TEST(ToolCalls, EveryTokenHasItsLogprob) {
  auto job = chat_job(openai_tools(R"(,"stream":true,"logprobs":true)"));
  std::vector<SequenceDelta> deltas;
  const auto texts = std::make_shared<test::ListedTexts>();
  for (const auto& delta : cut(kAnswer, 4)) {
    deltas.push_back(text_delta(delta.text, test::one_logprob(texts, texts->add(delta.text), -1, 1, {})));
  }
  std::string text;
  for (const auto& chunk : data_of(streamed(*job->writer, deltas, result_of(kAnswer)))) {
    const auto& logprobs = chunk["choices"][0]["logprobs"];
    if (logprobs.is_null()) continue;
    for (const auto& entry : logprobs["content"]) {
      for (const auto& byte : entry["bytes"]) text += static_cast<char>(byte.get<int>());
    }
  }
  EXPECT_EQ(text, kAnswer);
}

// -- /v1/messages

ParsedJob messages_job(const std::string& fields) {
  const std::string tools = R"("max_tokens":9,"tools":[{"name":"weather","description":"Looks out.","input_schema":)" +
                            std::string(kParameters) + R"(},{"name":"now","type":"custom","input_schema":{}}])";
  return anthropic::parse_messages(body_of(kMessages + "," + tools + fields), tool_prompts(), {"msg_1", "m"});
}

/// The content that a stream says.
json content_of(const std::vector<json>& events) {
  json content = json::array();
  std::vector<std::string> inputs;
  for (const auto& event : events) {
    if (event["type"] == "content_block_start") {
      EXPECT_EQ(event["index"], content.size());
      content.push_back(event["content_block"]);
      inputs.emplace_back();
    } else if (event["type"] == "content_block_delta") {
      EXPECT_EQ(event["index"], content.size() - 1);
      for (const auto& [key, value] : event["delta"].items()) {
        if (key == "partial_json") inputs.back() += value.get<std::string>();
        if (key == "text" || key == "thinking") {
          content.back()[key] = content.back()[key].get<std::string>() + value.get<std::string>();
        }
      }
    } else if (event["type"] == "content_block_stop" && !inputs.back().empty()) {
      content.back()["input"] = json::parse(inputs.back());
    }
  }
  return content;
}

TEST(ToolCalls, OfMessagesAreBlocks) {
  auto job = messages_job("");
  ASSERT_TRUE(job) << job.error().message;
  const auto answer = whole(*job->writer, result_of(kAnswer));
  EXPECT_EQ(answer["stop_reason"], "tool_use");
  const auto& content = answer["content"];
  ASSERT_EQ(content.size(), 3U);  // the thinking was not asked for
  EXPECT_EQ(content[0], json({{"type", "text"}, {"text", "I look."}}));
  EXPECT_EQ(content[1]["type"], "tool_use");
  EXPECT_EQ(content[1]["name"], "weather");
  EXPECT_EQ(content[1]["input"], json({{"city", "R\xC3\xB6m"}}));
  EXPECT_EQ(content[2]["input"], json::object());
}

TEST(ToolCalls, OfMessagesSayTheSameInAStreamHoweverItIsCut) {
  for (const char* thinking : {"", R"(,"thinking":{"type":"enabled","budget_tokens":1024})"}) {
    auto reference = messages_job(thinking);
    ASSERT_TRUE(reference) << reference.error().message;
    const auto content = whole(*reference->writer, result_of(kAnswer))["content"];
    EXPECT_EQ(content[0]["type"] == "thinking", std::string(thinking) != "");
    for (std::size_t size = 1; size <= 200; ++size) {
      auto job = messages_job(std::string(R"(,"stream":true)") + thinking);
      const auto events = events_of(streamed(*job->writer, cut(kAnswer, size), result_of(kAnswer)));
      EXPECT_EQ(content_of(events), content) << size;
      const auto names = names_of(events);
      EXPECT_EQ(names.back(), "message_stop");
      EXPECT_EQ(events[events.size() - 2]["delta"]["stop_reason"], "tool_use");
    }
  }
}

TEST(ToolCalls, OfMessagesMayBeAskedForInFourWays) {
  const auto format = [](const std::string& fields) {
    const auto job = messages_job(fields);
    EXPECT_TRUE(job) << job.error().message;
    return job ? job->requests[0].sampling.structured_outputs->text : "";
  };
  EXPECT_THAT(format(R"(,"tool_choice":{"type":"auto"})"), HasSubstr("triggered_tags"));
  EXPECT_THAT(format(R"(,"tool_choice":{"type":"any"})"), testing::Not(HasSubstr("triggered_tags")));
  EXPECT_THAT(format(R"(,"tool_choice":{"type":"tool","name":"now"})"), testing::Not(HasSubstr("weather")));
  EXPECT_THAT(format(R"(,"tool_choice":{"type":"none"})"), HasSubstr("excludes"));
  EXPECT_THAT(format(R"(,"tool_choice":{"type":"any","disable_parallel_tool_use":true})"),
              testing::Not(HasSubstr("star")));
  EXPECT_THAT(format(R"(,"tool_choice":{"type":"tool","name":"now"})"), testing::Not(HasSubstr("star")));
  EXPECT_EQ(messages_job(R"(,"tool_choice":{"type":"tool","name":"x"})").error().param, "tool_choice");
  EXPECT_EQ(messages_job(R"(,"tool_choice":{"type":"tool"})").error().param, "tool_choice.name");
  EXPECT_EQ(messages_job(R"(,"tool_choice":{"type":"some"})").error().param, "tool_choice.type");
}

TEST(ToolCalls, OfMessagesThatALimitCutOffHaveNoInput) {
  auto job = messages_job("");
  const auto answer =
      whole(*job->writer, result_of("<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"ci", FinishReason::length));
  EXPECT_EQ(answer["stop_reason"], "max_tokens");
  EXPECT_EQ(answer["content"][0]["input"], json::object());
}

// -- /v1/responses

ParsedJob response_job(const std::string& fields, openai::ResponseStore& store) {
  const std::string tools = R"("model":"m","input":"Hi","tools":[{"type":"function","name":"weather","parameters":)" +
                            std::string(kParameters) + R"(,"strict":true},{"type":"function","name":"now"}])";
  return openai::parse_response(body_of(tools + fields), tool_prompts(), store, {}, {"1", "m", 7});
}

TEST(ToolCalls, OfResponsesAreItems) {
  openai::ResponseStore store;
  auto job = response_job("", store);
  ASSERT_TRUE(job) << job.error().message;
  const auto response = whole(*job->writer, result_of(kAnswer));
  EXPECT_EQ(response["status"], "completed");
  EXPECT_EQ(response["tools"].size(), 2U);
  const auto& output = response["output"];
  ASSERT_EQ(output.size(), 4U);
  EXPECT_EQ(output[0]["type"], "reasoning");
  EXPECT_EQ(output[0]["content"][0]["text"], "Where?");
  EXPECT_EQ(output[1]["content"][0]["text"], "I look.");
  EXPECT_EQ(output[2]["type"], "function_call");
  EXPECT_EQ(output[2]["name"], "weather");
  EXPECT_EQ(output[2]["arguments"], "{\"city\": \"R\xC3\xB6m\"}");
  EXPECT_EQ(output[2]["status"], "completed");
  EXPECT_NE(output[2]["call_id"], output[3]["call_id"]);
  EXPECT_NE(output[2]["id"], output[3]["id"]);
}

TEST(ToolCalls, OfResponsesSayTheSameInAStreamHoweverItIsCut) {
  openai::ResponseStore store;
  auto reference = response_job("", store);
  const auto output = whole(*reference->writer, result_of(kAnswer))["output"];
  for (std::size_t size = 1; size <= 200; ++size) {
    auto job = response_job(R"(,"stream":true)", store);
    const auto events = events_of(streamed(*job->writer, cut(kAnswer, size), result_of(kAnswer)));
    json items = json::array();
    std::string arguments;
    std::int64_t number = 0;
    for (const auto& event : events) {
      EXPECT_EQ(event["sequence_number"], number++);
      if (event["type"] == "response.output_item.added") {
        EXPECT_EQ(event["output_index"], items.size());
        arguments.clear();
      }
      if (event["type"] == "response.function_call_arguments.delta") arguments += event["delta"].get<std::string>();
      const bool is_end = event["type"] == "response.function_call_arguments.done";
      EXPECT_TRUE(!is_end || event["arguments"] == arguments);
      if (event["type"] == "response.output_item.done") items.push_back(event["item"]);
    }
    EXPECT_EQ(items, output) << size;
    EXPECT_EQ(events.back()["type"], "response.completed");
    EXPECT_EQ(events.back()["response"]["output"], output);
  }
}

TEST(ToolCalls, OfResponsesLeaveTheMessageItsOwnLogprobsHoweverTheyCome) {
  openai::ResponseStore store;
  const std::string fields = R"(,"top_logprobs":1,"include":["message.output_text.logprobs"])";
  const std::string answer = "<think>\nWhere?\n</think>\n\nI  look\n<here>.\n" +
                             std::string(kAnswer).substr(std::string(kAnswer).find("<tool_call>"));
  // What the tokens of the message say, with white space and half marks that are none.
  const std::string said = "I  look\n<here>.";
  for (std::size_t token_size = 1; token_size <= 12; ++token_size) {
    const auto texts = std::make_shared<test::ListedTexts>();
    Logprobs entries(texts);
    for (const auto& token : cut(answer, token_size)) entries.add(LogprobEntry{texts->add(token.text)});
    auto result = result_of(answer);
    result.outputs[0].logprobs = entries;
    const auto item = whole(*response_job(fields, store)->writer, result)["output"][1];
    ASSERT_EQ(item["content"][0]["text"], said);
    const auto logprobs = item["content"][0]["logprobs"];
    std::string text;
    for (const auto& entry : logprobs) text += entry["token"].get<std::string>();
    EXPECT_NE(text.find(said), std::string::npos) << token_size << ": " << text;
    EXPECT_LT(text.size(), said.size() + 2 * token_size) << token_size << ": " << text;
    for (std::size_t per_delta = 1; per_delta <= entries.size(); per_delta = per_delta * 2 + 1) {
      std::vector<SequenceDelta> deltas;
      for (std::size_t i = 0; i < entries.size(); i += per_delta) {
        SequenceDelta& delta = deltas.emplace_back();
        for (std::size_t k = i; k < std::min(i + per_delta, entries.size()); ++k) {
          delta.text += entries.text_of(entries[k].token_id);
          delta.logprobs.add(entries, k, k + 1);
        }
      }
      auto job = response_job(fields + R"(,"stream":true)", store);
      auto told = json::array();
      for (const auto& event : events_of(streamed(*job->writer, deltas, result))) {
        if (event["type"] == "response.output_text.delta") {
          for (const auto& entry : event["logprobs"]) told.push_back(entry);
        }
        if (event["type"] == "response.output_text.done") {
          EXPECT_EQ(event["logprobs"], logprobs) << token_size << " " << per_delta;
        }
      }
      EXPECT_EQ(told, logprobs) << token_size << " " << per_delta;
    }
  }
}

TEST(ToolCalls, OfResponsesAreRememberedWithTheConversation) {
  openai::ResponseStore store;
  auto job = response_job(R"(,"store":true)", store);
  const auto response = whole(*job->writer, result_of(kAnswer));
  const auto call_id = response["output"][2]["call_id"].get<std::string>();
  const std::string next = R"("model":"m","previous_response_id":")" + response["id"].get<std::string>() +
                           R"(","input":[{"type":"function_call_output","call_id":")" + call_id +
                           R"(","output":"sun"}])";
  const auto second = openai::parse_response(body_of(next), tool_prompts(), store, {}, {"2", "m", 7});
  ASSERT_TRUE(second) << second.error().message;
  EXPECT_THAT(*second->requests[0].prompt,
              HasSubstr("I look.<tool_call>\n{\"name\": \"weather\", \"arguments\": {\"city\""));
  EXPECT_THAT(*second->requests[0].prompt, HasSubstr("<|im_start|>tool\nsun"));
}

// -- /api/chat

TEST(ToolCalls, OfOllamaAreObjects) {
  const auto parse = [](const std::string& stream) {
    auto turn =
        ollama::parse_chat(body_of(kMessages + "," + openai_tools(R"(,"stream":)" + stream)), tool_prompts(), "m");
    EXPECT_TRUE(turn) << turn.error().message;
    return std::move(std::get<GenerationJob>(*turn));
  };
  auto spread_job = parse("true");
  const std::string spread =
      "<tool_call>\n{\"name\": \"weather\", \"arguments\": {\n  \"city\": \"R\"\n}}\n</tool_call>";
  for (std::istringstream in(streamed(*spread_job.writer, {text_delta(spread)}, result_of(spread))); !in.eof();) {
    std::string line;
    std::getline(in, line);
    EXPECT_TRUE(line.empty() || json::accept(line)) << line;
  }
  auto job = parse("false");
  const auto message = whole(*job.writer, result_of(kAnswer))["message"];
  EXPECT_EQ(message["thinking"], "Where?");
  EXPECT_EQ(message["content"], "I look.");
  ASSERT_EQ(message["tool_calls"].size(), 2U);
  EXPECT_EQ(message["tool_calls"][0]["function"]["arguments"], json({{"city", "R\xC3\xB6m"}}));
  for (std::size_t size = 1; size <= 200; ++size) {
    auto stream = parse("true");
    json sum{{"content", ""}, {"thinking", ""}, {"tool_calls", json::array()}};
    std::istringstream lines(streamed(*stream.writer, cut(kAnswer, size), result_of(kAnswer)));
    for (std::string line; std::getline(lines, line);) {
      const auto piece = json::parse(line)["message"];
      for (const char* key : {"content", "thinking"}) {
        if (piece.contains(key)) sum[key] = sum[key].get<std::string>() + piece[key].get<std::string>();
      }
      if (piece.contains("tool_calls"))
        sum["tool_calls"].insert(sum["tool_calls"].end(), piece["tool_calls"].begin(), piece["tool_calls"].end());
    }
    EXPECT_EQ(sum["content"], message["content"]) << size;
    EXPECT_EQ(sum["thinking"], message["thinking"]) << size;
    EXPECT_EQ(sum["tool_calls"], message["tool_calls"]) << size;
  }
}

}  // namespace
}  // namespace pagoda::http
