// Conversations with earlier calls and thoughts, sent by every API, in the chat templates of many models: all APIs make
// the same prompt, and what was said is in it.

#include <algorithm>
#include <cctype>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/http/anthropic/messages.hpp"
#include "io/http/ollama/chat.hpp"
#include "io/http/openai/chat.hpp"
#include "io/http/openai/chat_parts.hpp"
#include "io/http/openai/response_store.hpp"
#include "io/http/openai/responses.hpp"

namespace pagoda::http::histories {
namespace {

using wire::Json;
namespace fs = std::filesystem;

const std::string kQuestion = "Where is the qkey?";
const std::string kThought = "A tthought.";
const std::string kResult = "it is ropen";
const std::string kAnswer = "In the acellar.";
const std::string kNext = "And nthen?";
constexpr const char* kId = "call00001";

Json object_of(const char* text) {
  return Json::parse(text);
}

const Json kParameters = object_of(
    R"({"type":"object","properties":{"room":{"type":"string","description":"which"},"times":{"type":"integer","description":"how often"}},"required":["room"]})");
const Json kArguments = object_of(R"({"room":"vcellar","times":3})");

/// The content beside the call, as a client sends it.
enum class Said : std::uint8_t { null, absent, empty, something };

/// What is sent. A conversation that `goes_on` has an answer and a second question behind the result.
struct Sent {
  Said said = Said::null;
  bool has_thought = true;
  bool goes_on = true;
  Json arguments = kArguments.dump();  ///< as a text, which some APIs have; others send the object
  bool has_tools = true;
  Json kwargs = Json::object();
};

Json common(const Sent& sent) {
  Json body{{"model", "m"}};
  if (!sent.kwargs.empty()) body["chat_template_kwargs"] = sent.kwargs;
  return body;
}

void set_content(Json& message, Said said) {
  if (said == Said::null) message["content"] = nullptr;
  if (said == Said::empty) message["content"] = "";
  if (said == Said::something) message["content"] = "I slook.";
}

Json function_tools() {
  return Json::array({{{"type", "function"},
                       {"function", {{"name", "fopen"}, {"description", "opens"}, {"parameters", kParameters}}}}});
}

/// `thought`: the name that the API has for thoughts. `arguments` as the API has them.
Json chat_messages(const Sent& sent, const char* thought, const Json& arguments, const char* tool_name) {
  Json call{{"role", "assistant"}};
  set_content(call, sent.said);
  if (sent.has_thought) call[thought] = kThought;
  call["tool_calls"] =
      Json::array({{{"id", kId}, {"type", "function"}, {"function", {{"name", "fopen"}, {"arguments", arguments}}}}});
  Json result{{"role", "tool"}, {"tool_call_id", kId}, {"content", kResult}};
  if (tool_name != nullptr) result[tool_name] = "fopen";
  auto messages = Json::array({{{"role", "user"}, {"content", kQuestion}}, call, result});
  if (!sent.goes_on) return messages;
  Json answer{{"role", "assistant"}, {"content", kAnswer}};
  if (sent.has_thought) answer[thought] = kThought;
  messages.push_back(answer);
  messages.push_back({{"role", "user"}, {"content", kNext}});
  return messages;
}

/// A prompt, or the error behind "error: ".
using Prompt = std::string;

Prompt prompt_of(const ParsedJob& job) {
  return job ? *job->requests.front().prompt : "error: " + job.error().message;
}

Prompt by_chat(const chat::ChatPrompts& prompts, const Sent& sent, const char* thought = "reasoning") {
  Json body = common(sent);
  body["messages"] = chat_messages(sent, thought, sent.arguments, nullptr);
  if (sent.has_tools) body["tools"] = function_tools();
  return prompt_of(openai::parse_chat(body, prompts, {"id", "m", 7}));
}

/// /apply_template and /tokenize.
Prompt by_template(const chat::ChatPrompts& prompts, const Sent& sent) {
  Json body = common(sent);
  body.erase("model");
  body["messages"] = chat_messages(sent, "reasoning_content", sent.arguments, "name");
  if (sent.has_tools) body["tools"] = function_tools();
  wire::FieldReader fields(body, wire::FieldReader::Nulls::absent);
  chat::ChatInput chat;
  chat::ToolUse tools;
  openai::read_chat_prompt(fields, prompts, chat, tools);
  if (auto status = fields.finish(); !status) return "error: " + status.error().message;
  const auto prompt = prompts.render(std::move(chat));
  return prompt ? *prompt : "error: " + prompt.error().message;
}

Prompt by_ollama(const chat::ChatPrompts& prompts, const Sent& sent) {
  Json body{{"model", "m"}, {"messages", chat_messages(sent, "thinking", kArguments, "tool_name")}};
  if (sent.has_tools) body["tools"] = function_tools();
  auto turn = ollama::parse_chat(body, prompts, "m");
  if (!turn) return "error: " + turn.error().message;
  return *std::get<GenerationJob>(*turn).requests.front().prompt;
}

Prompt by_anthropic(const chat::ChatPrompts& prompts, const Sent& sent) {
  const auto text = [](const std::string& said) { return Json{{"type", "text"}, {"text", said}}; };
  const Json thinking{{"type", "thinking"}, {"thinking", kThought}, {"signature", "c2lnbmVk"}};
  auto called = Json::array();
  if (sent.has_thought) called.push_back(thinking);
  if (sent.said == Said::empty) called.push_back(text(""));
  if (sent.said == Said::something) called.push_back(text("I slook."));
  called.push_back({{"type", "tool_use"}, {"id", kId}, {"name", "fopen"}, {"input", kArguments}});
  const Json result{{"type", "tool_result"}, {"tool_use_id", kId}, {"content", kResult}};
  auto messages = Json::array({{{"role", "user"}, {"content", kQuestion}},
                               {{"role", "assistant"}, {"content", called}},
                               {{"role", "user"}, {"content", Json::array({result})}}});
  if (sent.goes_on) {
    auto answer = Json::array();
    if (sent.has_thought) answer.push_back(thinking);
    answer.push_back(text(kAnswer));
    messages.push_back({{"role", "assistant"}, {"content", answer}});
    messages.push_back({{"role", "user"}, {"content", kNext}});
  }
  Json body = common(sent);
  body["max_tokens"] = 8;
  body["messages"] = messages;
  if (sent.has_tools)
    body["tools"] = Json::array({{{"name", "fopen"}, {"description", "opens"}, {"input_schema", kParameters}}});
  return prompt_of(anthropic::parse_messages(body, prompts, {"id", "m"}));
}

Prompt by_responses(const chat::ChatPrompts& prompts, const Sent& sent) {
  const auto message = [](const char* role, const char* type, const std::string& text) {
    return Json{{"type", "message"}, {"role", role}, {"content", Json::array({{{"type", type}, {"text", text}}})}};
  };
  const Json reasoning{{"type", "reasoning"},
                       {"id", "rs_1"},
                       {"status", "completed"},
                       {"summary", Json::array()},
                       {"content", Json::array({{{"type", "reasoning_text"}, {"text", kThought}}})}};
  auto input = Json::array({message("user", "input_text", kQuestion)});
  if (sent.has_thought) input.push_back(reasoning);
  if (sent.said == Said::empty) input.push_back(message("assistant", "output_text", ""));
  if (sent.said == Said::something) input.push_back(message("assistant", "output_text", "I slook."));
  input.push_back(
      {{"type", "function_call"}, {"id", "fc_1"}, {"call_id", kId}, {"name", "fopen"}, {"arguments", sent.arguments}});
  input.push_back({{"type", "function_call_output"}, {"call_id", kId}, {"output", kResult}});
  if (sent.goes_on) {
    if (sent.has_thought) input.push_back(reasoning);
    input.push_back(message("assistant", "output_text", kAnswer));
    input.push_back(message("user", "input_text", kNext));
  }
  Json body = common(sent);
  body["input"] = input;
  if (sent.has_tools) {
    Json tool = function_tools()[0]["function"];
    tool["type"] = "function";
    body["tools"] = Json::array({tool});
  }
  openai::ResponseStore store;
  return prompt_of(openai::parse_response(body, prompts, store, {}, {"id", "m", 7}));
}

/// Templates that show the thought of an answer whose call has a result, with no variables set.
const std::set<std::string> kShowThoughts{"Bielik-11B-v3.0-Instruct",
                                          "ByteDance-Seed-OSS",
                                          "CohereForAI-c4ai-command-r7b-12-2024-tool_use",
                                          "GLM-4.6",
                                          "GLM-4.7-Flash",
                                          "LFM2.5-8B-A1B",
                                          "MiniMax-M2",
                                          "MiniMax-M3",
                                          "NVIDIA-Nemotron-3-Nano-30B-A3B-BF16",
                                          "Qwen3.5-4B",
                                          "Spark2.5",
                                          "google-gemma-4-31B-it-interleaved",
                                          "inclusionai-ling-3.0-flash",
                                          "mistralai-Ministral-3-14B-Reasoning-2512",
                                          "muse-glimmer",
                                          "openai-gpt-oss-120b",
                                          "openbmb-MiniCPM5-1B",
                                          "poolside-Laguna-S-2.1",
                                          "poolside-Laguna-XS.2",
                                          "tencent-Hy3"};

/// A chat template.
struct Model {
  std::string name;
  std::string source;
};
void PrintTo(const Model& model, std::ostream* out) {
  *out << model.name;
}

std::vector<Model> models() {
  std::vector<Model> all;
  for (const auto& folder :
       {fs::path(PAGODA_SOURCE_DIR) / "examples" / "templates", fs::path(PAGODA_SHARED_DIR) / "templates"}) {
    if (!fs::exists(folder)) continue;
    for (const auto& entry : fs::directory_iterator(folder)) {
      if (entry.path().extension() != ".jinja") continue;
      std::ifstream file(entry.path(), std::ios::binary);
      all.push_back(
          {entry.path().stem().string(), {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()}});
    }
  }
  std::ranges::sort(all, {}, &Model::name);
  return all;
}

std::string test_name(const ::testing::TestParamInfo<Model>& info) {
  std::string name = info.param.name;
  std::ranges::replace_if(
      name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; }, '_');
  return name;
}

/// Parsed once for all tests.
const chat::ChatPrompts& prompts_of(const Model& model) {
  static std::map<std::string, chat::ChatPrompts> known;
  const auto found = known.find(model.name);
  if (found != known.end()) return found->second;
  auto parsed = chat::ChatPrompts::parse(model.source, {{"bos_token", "<BOS>"}, {"eos_token", "<EOS>"}});
  return known.emplace(model.name, std::move(parsed).value()).first->second;
}

class Histories : public ::testing::TestWithParam<Model> {
 protected:
  Histories() : prompts_(prompts_of(GetParam())) {
    has_tools_ = prompts_.dialect()->calls.has_value();
    if (GetParam().source.find("functions") != std::string::npos &&
        GetParam().source.find("datetime") != std::string::npos)
      kwargs_ = {{"functions", "[]"}, {"datetime", "2026-01-01"}};
  }

  Sent sent(Said said = Said::null) const {
    Sent one{.said = said};
    one.has_tools = has_tools_;
    one.kwargs = kwargs_;
    return one;
  }

  /// What stands behind the first question.
  static std::string history(const Prompt& prompt) {
    const auto at = prompt.find(kQuestion);
    EXPECT_NE(at, std::string::npos) << prompt;
    return at == std::string::npos ? std::string() : prompt.substr(at);
  }

  static void expect_whole(const std::string& text) {
    for (const auto* word : {"fopen", "room", "vcellar", "times", "3", "ropen"}) {
      EXPECT_NE(text.find(word), std::string::npos) << "no " << word << " in " << text;
    }
    EXPECT_EQ(text.find("None"), std::string::npos) << text;
  }

  const chat::ChatPrompts& prompts_;
  bool has_tools_ = false;
  Json kwargs_ = Json::object();
};

TEST_P(Histories, are_whole_and_the_same_whatever_stands_for_no_content) {
  for (const bool goes_on : {true, false}) {
    auto one = sent();
    one.goes_on = goes_on;
    const auto wanted = by_chat(prompts_, one);
    expect_whole(history(wanted));
    for (const auto said : {Said::absent, Said::empty}) {
      one.said = said;
      EXPECT_EQ(by_chat(prompts_, one), wanted);
    }
    one.said = Said::something;
    expect_whole(history(by_chat(prompts_, one)));
  }
}

TEST_P(Histories, are_the_same_by_every_api) {
  for (const bool goes_on : {true, false}) {
    for (const auto said : {Said::null, Said::something}) {
      auto one = sent(said);
      one.goes_on = goes_on;
      const auto wanted = by_chat(prompts_, one);
      ASSERT_FALSE(wanted.starts_with("error: ")) << wanted;
      EXPECT_EQ(by_responses(prompts_, one), wanted);
      EXPECT_EQ(by_anthropic(prompts_, one), wanted);
      EXPECT_EQ(by_template(prompts_, one), wanted);
      if (kwargs_.empty()) {  // which this API has not
        EXPECT_EQ(by_ollama(prompts_, one), wanted);
      }
      for (const auto* thought : {"reasoning_content", "thinking"}) EXPECT_EQ(by_chat(prompts_, one, thought), wanted);
    }
  }
}

TEST_P(Histories, show_the_thought_before_a_call_where_the_template_does) {
  auto one = sent();
  one.goes_on = false;
  const auto with = by_chat(prompts_, one);
  one.has_thought = false;
  const auto without = by_chat(prompts_, one);
  const bool is_shown = with.find(kThought) != std::string::npos;
  // One that is not shown leaves no trace.
  if (!is_shown) {
    EXPECT_EQ(with, without);
  }
  EXPECT_EQ(is_shown, kShowThoughts.contains(GetParam().name)) << with;
}

TEST_P(Histories, go_on_behind_arguments_that_are_no_object) {
  const auto prompt_with = [&](const Json& arguments, auto by) {
    auto one = sent();
    one.arguments = arguments;
    return by(prompts_, one);
  };
  const auto by_openai = [](const chat::ChatPrompts& prompts, const Sent& one) { return by_chat(prompts, one); };
  for (const auto* cut : {R"({"room": "vcellar", "times": 3)", R"({"room": "vcellar", "times": 3, "mo)"})
    EXPECT_EQ(prompt_with(cut, by_openai), by_chat(prompts_, sent())) << cut;
  for (const auto* text :
       {R"({"room": "vce)", "[1, 2", "just words", "\"text\"", "", "null", "7", R"({"room": {"a": [1, {"b)"}) {
    const auto prompt = prompt_with(text, by_openai);
    EXPECT_NE(history(prompt).find("fopen"), std::string::npos) << text;
    EXPECT_EQ(prompt_with(text, by_responses), prompt) << text;
  }
  EXPECT_NE(history(prompt_with(R"({"room": "vce)", by_openai)).find("vce"), std::string::npos);
  EXPECT_NE(history(prompt_with("just words", by_openai)).find("just words"), std::string::npos);
}

TEST_P(Histories, keep_all_digits_of_integers) {
  for (const auto* digits : {"9007199254740993", "9223372036854775808", "18446744073709551616",
                             "-170141183460469231731687303715884105728"}) {
    auto one = sent();
    one.arguments = std::string(R"({"room": "vcellar", "times": )") + digits + "}";
    EXPECT_NE(history(by_chat(prompts_, one)).find(digits), std::string::npos) << digits;
  }
}

INSTANTIATE_TEST_SUITE_P(Templates, Histories, ::testing::ValuesIn(models()), test_name);

}  // namespace
}  // namespace pagoda::http::histories
