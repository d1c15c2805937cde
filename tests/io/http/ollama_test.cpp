#include <chrono>
#include <optional>
#include <string>
#include <string_view>

#include <boost/asio/thread_pool.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/http/ollama/answers.hpp"
#include "io/http/ollama/chat.hpp"
#include "io/http/ollama/generate.hpp"
#include "io/http/ollama/model_names.hpp"
#include "io/wire/ignored_fields.hpp"
#include "io/wire/json_reader.hpp"
#include "tests/support/listed_texts.hpp"

namespace pagoda::http::ollama {
namespace {

using testing::HasSubstr;
using wire::Json;

constexpr const char* kChatMl =
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

const chat::ChatPrompts& chat_ml() {
  static const auto prompts = chat::ChatPrompts::parse(kChatMl, {}).value();
  return prompts;
}

ParsedTurn generate(std::string_view body, const chat::ChatPrompts* prompts = &chat_ml()) {
  return parse_generate(Json::parse(body), prompts, "stories");
}
ParsedTurn chat(std::string_view body) {
  return parse_chat(Json::parse(body), chat_ml(), "stories");
}

GenerationJob job_of(ParsedTurn turn) {
  return std::get<GenerationJob>(std::move(turn.value()));
}
GenerateRequest request_of(ParsedTurn turn) {
  return job_of(std::move(turn)).requests.at(0);
}
std::string error_of(const ParsedTurn& turn) {
  return turn ? "no error" : turn.error().message;
}
Json loaded(const ParsedTurn& turn) {
  return Json::parse(std::get<Loaded>(turn.value()).answer);
}

RequestResult finished(std::string text) {
  RequestResult result;
  SequenceResult output;
  output.text = std::move(text);
  output.finish_reason = FinishReason::length;
  result.outputs.push_back(std::move(output));
  result.usage = {7, 3, 0};
  result.timing = {1, 3, 10};
  return result;
}

TEST(OllamaGenerate, APromptGoesThroughTheTemplateWithItsSystemMessage) {
  const auto request = request_of(generate(R"({"model":"m","prompt":"Hi","system":"Be brief."})"));
  EXPECT_EQ(request.prompt,
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
  EXPECT_FALSE(request.add_special_tokens);
}

TEST(OllamaGenerate, ARawPromptIsTheInputAsItIs) {
  const auto request = request_of(generate(R"({"prompt":"Once","raw":true})"));
  EXPECT_EQ(request.prompt, "Once");
  EXPECT_TRUE(request.add_special_tokens);
  EXPECT_THAT(error_of(generate(R"({"prompt":"Once","raw":true,"system":"x"})")), HasSubstr("system"));
}

TEST(OllamaGenerate, WithoutATemplateAPromptIsTheInputAsItIs) {
  EXPECT_EQ(request_of(generate(R"({"prompt":"Once"})", nullptr)).prompt, "Once");
  EXPECT_THAT(error_of(generate(R"({"prompt":"Once","system":"x"})", nullptr)), HasSubstr("chat template"));
}

TEST(OllamaGenerate, StreamsUnlessToldNotTo) {
  EXPECT_TRUE(job_of(generate(R"({"prompt":"a"})")).stream);
  EXPECT_FALSE(job_of(generate(R"({"prompt":"a","stream":false})")).stream);
}

TEST(OllamaGenerate, NoPromptLoadsTheModel) {
  for (const char* body : {R"({})", R"({"prompt":"","keep_alive":"5m"})"}) {
    const auto answer = loaded(generate(body));
    EXPECT_EQ(answer["done"], true);
    EXPECT_EQ(answer["done_reason"], "load");
    EXPECT_EQ(answer["response"], "");
  }
}

TEST(OllamaGenerate, WhatItLacksIsRefusedByNameUnlessItIsEmpty) {
  for (const char* field : {"images", "suffix", "context", "template", "tools"}) {
    const auto with = [&](const char* value) {
      return generate(R"({"prompt":"a",")" + std::string(field) + "\":" + value + "}");
    };
    EXPECT_THAT(error_of(with("[1]")), HasSubstr(field));
    EXPECT_THAT(error_of(with("\"x\"")), HasSubstr(field));
    for (const char* empty : {"null", "[]", "\"\"", "{}"}) EXPECT_EQ(error_of(with(empty)), "no error") << field;
  }
  EXPECT_THAT(error_of(generate(R"({"prompt":"a","colour":1})")), HasSubstr("colour"));
  for (const char* value : {"true", "false"}) {
    EXPECT_EQ(error_of(generate(R"({"prompt":"a","truncate":)" + std::string(value) + ",\"shift\":" + value + "}")),
              "no error");
  }
  EXPECT_THAT(error_of(generate(R"({"prompt":"a","truncate":3})")), HasSubstr("truncate"));
}

TEST(OllamaGenerate, AFormatIsWhatTheTextMustBe) {
  EXPECT_EQ(request_of(generate(R"({"prompt":"a","format":"json"})")).sampling.structured_outputs, StructuredOutput{});
  EXPECT_EQ(request_of(generate(R"({"prompt":"a","format":{"type":"null"}})")).sampling.structured_outputs,
            (StructuredOutput{GrammarKind::json_schema, R"({"type":"null"})", {}}));
  EXPECT_EQ(request_of(generate(R"({"prompt":"a","format":""})")).sampling.structured_outputs, std::nullopt);
  EXPECT_THAT(error_of(generate(R"({"prompt":"a","format":"xml"})")), HasSubstr("format"));
}

TEST(OllamaGenerate, ThinkingThatTheTemplateDoesNotKnowCanOnlyBeSwitchedOff) {
  EXPECT_EQ(error_of(generate(R"({"prompt":"a","think":false})")), "no error");
  EXPECT_THAT(error_of(generate(R"({"prompt":"a","think":true})")), HasSubstr("does not support thinking"));
  EXPECT_THAT(error_of(generate(R"({"prompt":"a","think":"high"})")), HasSubstr("does not support thinking"));
  EXPECT_THAT(error_of(generate(R"({"prompt":"a","think":3})")), HasSubstr("think"));
}

TEST(OllamaOptions, EachHasItsPlaceInSampling) {
  const auto request = request_of(generate(
      R"({"prompt":"a","options":{"num_predict":5,"temperature":0.5,"top_k":3,"top_p":0.25,"min_p":0.125,"seed":9,
          "stop":["x","y"],"repeat_penalty":1.5,"presence_penalty":1,"frequency_penalty":-1}})"));
  const auto& sampling = request.sampling;
  EXPECT_EQ(sampling.max_tokens, 5);
  EXPECT_EQ(sampling.temperature, 0.5);
  EXPECT_EQ(sampling.top_k, 3);
  EXPECT_EQ(sampling.top_p, 0.25);
  EXPECT_EQ(sampling.min_p, 0.125);
  EXPECT_EQ(sampling.seed, 9);
  EXPECT_THAT(sampling.stop, testing::ElementsAre("x", "y"));
  EXPECT_EQ(sampling.repetition_penalty, 1.5);
  EXPECT_EQ(sampling.presence_penalty, 1);
  EXPECT_EQ(sampling.frequency_penalty, -1);
  EXPECT_FALSE(request.open.temperature || request.open.top_k || request.open.top_p || request.open.min_p ||
               request.open.repetition_penalty);
}

TEST(OllamaOptions, WhatIsNotSaidIsLeftToTheModel) {
  const auto open = request_of(generate(R"({"prompt":"a"})")).open;
  EXPECT_TRUE(open.temperature && open.top_k && open.top_p && open.min_p && open.repetition_penalty);
}

TEST(OllamaOptions, TheAnswerMayTakeTheRestOfTheContext) {
  for (const char* options : {"{}", R"({"num_predict":0})", R"({"num_predict":-1})", R"({"num_predict":-2})"}) {
    const auto request = request_of(generate(R"({"prompt":"a","options":)" + std::string(options) + "}"));
    EXPECT_GT(request.sampling.max_tokens, 1 << 30);
    EXPECT_FALSE(request.open.max_tokens);
  }
  EXPECT_THAT(error_of(generate(R"({"prompt":"a","options":{"num_predict":-3}})")), HasSubstr("options.num_predict"));
}

TEST(OllamaOptions, TopPOfZeroKeepsTheLikeliestToken) {
  const auto top_p = request_of(generate(R"({"prompt":"a","options":{"top_p":0}})")).sampling.top_p;
  EXPECT_GT(top_p, 0);
  EXPECT_LT(top_p, 1e-6);
}

TEST(OllamaOptions, ASeedOfMinusOneIsAnySeed) {
  EXPECT_EQ(request_of(generate(R"({"prompt":"a","options":{"seed":-1}})")).sampling.seed, std::nullopt);
  EXPECT_THAT(error_of(generate(R"({"prompt":"a","options":{"seed":-2}})")), HasSubstr("seed"));
}

TEST(OllamaOptions, WhatIsDecidedAtLoadTimePassesAndWhatNobodyKnowsDoesNot) {
  EXPECT_EQ(error_of(generate(R"({"prompt":"a","options":{"num_ctx":4096,"num_gpu":1,"num_thread":2,"num_batch":8,
                                  "use_mmap":true,"mirostat":0,"typical_p":1.0,"repeat_last_n":-1}})")),
            "no error");
  EXPECT_THAT(error_of(generate(R"({"prompt":"a","options":{"colour":1}})")), HasSubstr("options.colour"));
  EXPECT_THAT(error_of(generate(R"({"prompt":"a","options":{"mirostat":1}})")), HasSubstr("mirostat"));
}

TEST(OllamaOptions, PenaltiesLookAtAsManyTokensAsOllamasDo) {
  const auto window = [](const std::string& options) {
    return request_of(generate(R"({"prompt":"a","options":)" + options + "}")).sampling.repeat_last_n;
  };
  EXPECT_EQ(window("{}"), -1) << "a penalty that the model recommends looks at all tokens";
  EXPECT_EQ(window(R"({"repeat_penalty":1.1})"), 64);
  EXPECT_EQ(window(R"({"frequency_penalty":0.5})"), 64);
  EXPECT_EQ(window(R"({"repeat_penalty":1.1,"repeat_last_n":-1})"), -1);
  EXPECT_EQ(window(R"({"repeat_penalty":1.1,"repeat_last_n":0})"), 0);
  EXPECT_EQ(window(R"({"repeat_last_n":33.0})"), 33);
}

TEST(OllamaOptions, WholeNumbersMayBeWrittenWithAFraction) {
  const auto request = request_of(generate(
      R"({"prompt":"a","options":{"num_predict":2.0,"top_k":40.0,"seed":7.0,"num_ctx":4096.0,"mirostat":0.0}})"));
  EXPECT_EQ(request.sampling.max_tokens, 2);
  EXPECT_EQ(request.sampling.top_k, 40);
  EXPECT_EQ(request.sampling.seed, 7);
  EXPECT_THAT(error_of(generate(R"({"prompt":"a","options":{"num_predict":2.5}})")), HasSubstr("options.num_predict"));
}

TEST(OllamaChat, MessagesGoThroughTheTemplate) {
  const auto request = request_of(chat(R"({"messages":[{"role":"user","content":"Hi","images":[]}]})"));
  EXPECT_EQ(request.prompt, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
}

TEST(OllamaChat, AnAssistantsMessageAtTheEndIsContinued) {
  const auto request =
      request_of(chat(R"({"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":"One day"}]})"));
  EXPECT_EQ(request.prompt, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\nOne day");
  for (const char* content : {"\"\"", "null"}) {  // nothing to continue
    const auto next = request_of(chat(R"({"messages":[{"role":"user","content":"Hi"},{"role":"assistant","content":)" +
                                      std::string(content) + "}]}"));
    EXPECT_THAT(*next.prompt, testing::EndsWith("<|im_end|>\n<|im_start|>assistant\n")) << content;
  }
}

TEST(OllamaChat, TakesTheCallsAndResultsOfTools) {
  EXPECT_EQ(error_of(chat(R"({"messages":[{"role":"user","content":"Hi"},
      {"role":"assistant","content":"","thinking":"hm","tool_calls":[{"function":{"name":"f","arguments":{"a":1}}}]},
      {"role":"tool","content":"2","tool_name":"f"}]})")),
            "no error");
}

TEST(OllamaChat, FindsTheNameOfAToolAmongManyMembers) {
  auto result = Json{{"role", "tool"}, {"content", "2"}};
  for (int i = 0; i < 40; ++i) result["x" + std::to_string(i)] = nullptr;
  result["tool_name"] = 7;
  const auto messages = Json::array({Json{{"role", "user"}, {"content", "Hi"}}, result});
  wire::IgnoredFields ignored(wire::UnknownFields::ignored);
  const wire::IgnoredFields::Scope scope(ignored);
  EXPECT_THAT(error_of(chat(Json{{"messages", messages}}.dump())), HasSubstr("messages[1].name must be a string"));
}

TEST(OllamaChat, RefusesByNameWhatIsWrong) {
  EXPECT_THAT(error_of(chat(R"({"messages":[{"role":"user","content":"Hi","images":["aGk="]}]})")),
              HasSubstr("images"));
  EXPECT_THAT(error_of(chat(R"({"messages":[{"role":"king","content":"Hi"}]})")), HasSubstr("role"));
  EXPECT_THAT(error_of(chat(R"({"messages":7})")), HasSubstr("messages"));
  EXPECT_THAT(error_of(chat(R"({"messages":[7]})")), HasSubstr("messages[0]"));
}

TEST(OllamaChat, NoMessagesLoadTheModel) {
  const auto answer = loaded(chat(R"({"messages":[]})"));
  EXPECT_EQ(answer["message"]["content"], "");
  EXPECT_EQ(answer["done_reason"], "load");
}

TEST(OllamaAnswers, AStreamIsOneObjectALineAndTheLastOneSaysHowItEnded) {
  const auto writer = make_writer({AnswerKind::generate, "stories:latest"});
  EXPECT_EQ(writer->stream_content_type(), "application/x-ndjson");
  std::string out;
  writer->delta(out, 0, {0, "Once", {1}, {}});
  writer->done(out, 0, finished("Once"));
  writer->end(out);
  const auto middle = out.find('\n');
  ASSERT_EQ(out.back(), '\n');
  const auto first = Json::parse(out.substr(0, middle));
  const auto last = Json::parse(out.substr(middle + 1));
  EXPECT_EQ(first["model"], "stories:latest");
  EXPECT_EQ(first["response"], "Once");
  EXPECT_EQ(first["done"], false);
  EXPECT_EQ(last["response"], "");
  EXPECT_EQ(last["done"], true);
  EXPECT_EQ(last["done_reason"], "length");
  EXPECT_EQ(last["prompt_eval_count"], 7);
  EXPECT_EQ(last["eval_count"], 3);
  EXPECT_EQ(last["load_duration"], 1'000'000);
  EXPECT_EQ(last["prompt_eval_duration"], 2'000'000);
  EXPECT_EQ(last["eval_duration"], 7'000'000);
  EXPECT_EQ(last["total_duration"], 10'000'000);
}

TEST(OllamaAnswers, AChatAnswersWithAMessage) {
  const auto writer = make_writer({AnswerKind::chat, "m"});
  std::string out;
  const RequestResult results[] = {finished("Hello")};
  writer->whole(out, results);
  const auto answer = Json::parse(out);
  EXPECT_EQ(answer["message"], Json::parse(R"({"role":"assistant","content":"Hello"})"));
  EXPECT_FALSE(answer.contains("response"));
  EXPECT_FALSE(answer.contains("logprobs"));
}

TEST(OllamaAnswers, LogprobsStandBesideTheText) {
  const auto writer = make_writer({AnswerKind::generate, "m", true, 1});
  std::string out;
  const auto texts = std::make_shared<test::ListedTexts>();
  const TokenId a = texts->add("a");
  const TokenId b = texts->add("b");
  writer->delta(out, 0, {0, "a", {a}, test::one_logprob(texts, a, -0.5F, 2, {{b, -0.25F}, {a, -0.5F}})});
  EXPECT_EQ(Json::parse(out)["logprobs"], Json::parse(R"([{"token":"a","logprob":-0.5,"bytes":[97],
                             "top_logprobs":[{"token":"b","logprob":-0.25,"bytes":[98]}]}])"));
}

TEST(OllamaAnswers, BytesAreThoseOfThePartOfACharacter) {
  const auto writer = make_writer({AnswerKind::generate, "m", true, 1});
  std::string out;
  const auto texts = std::make_shared<test::ListedTexts>();
  const TokenId begin = texts->add("\xef\xbf\xbd", "\xf0");
  const TokenId rest = texts->add("\xef\xbf\xbd", "\x9f\x98");
  writer->delta(out, 0, {0, "", {begin}, test::one_logprob(texts, begin, -0.5F, 1, {{rest, -0.5F}})});
  const auto written = Json::parse(out)["logprobs"][0];
  EXPECT_EQ(written["bytes"], Json::array({0xf0}));
  EXPECT_EQ(written["top_logprobs"][0]["bytes"], Json::array({0x9f, 0x98}));
}

TEST(OllamaAnswers, AnErrorInAStreamIsALine) {
  std::string out;
  make_writer({AnswerKind::chat, "m"})->error(out, {500, "broken"});
  EXPECT_EQ(out, "{\"error\":\"broken\"}\n");
}

TEST(OllamaAnswers, TimesAreInUtcWithMicroseconds) {
  using std::chrono::microseconds;
  EXPECT_EQ(timestamp(std::chrono::system_clock::time_point(microseconds(1'500'000))), "1970-01-01T00:00:01.500000Z");
}

TEST(OllamaNames, ATagIsAddedWhereThereIsNone) {
  EXPECT_EQ(with_tag("stories"), "stories:latest");
  EXPECT_EQ(with_tag("stories:8b"), "stories:8b");
  EXPECT_EQ(with_tag("host:5000/stories"), "host:5000/stories:latest");
}

}  // namespace
}  // namespace pagoda::http::ollama
