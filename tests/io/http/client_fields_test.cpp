// Fields that clients, routers and front ends send: which are taken, which are ignored by name, which are refused.

#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "io/http/anthropic/messages.hpp"
#include "io/http/openai/completions.hpp"
#include "io/http/openai/opaque_reasoning.hpp"
#include "io/http/openai/response_store.hpp"
#include "io/http/openai/responses.hpp"
#include "io/wire/ignored_fields.hpp"
#include "tests/io/http/tool_requests.hpp"

namespace pagoda::http {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

/// The job that a parser makes of a body, and the fields that it ignores.
struct ParsedFields {
  ParsedJob job;
  std::vector<std::string> ignored;

  std::string param() const { return job ? "" : job.error().param; }
  const GenerateRequest& request() const { return job->requests.front(); }
};

template <class Parse>
ParsedFields parsed_fields(Parse parse) {
  wire::IgnoredFields ignored(wire::UnknownFields::ignored);
  const wire::IgnoredFields::Scope scope(ignored);
  auto job = parse();
  return {std::move(job), ignored.names()};
}

/// Asks a model that neither thinks nor calls tools.
ParsedFields of_chat(const std::string& fields) {
  return parsed_fields([&] {
    return openai::parse_chat(body_of(kMessages + "," + fields), chat_prompts(), {"1", "m", 7});
  });
}
/// Asks a model that thinks and calls tools.
ParsedFields of_tool_chat(const std::string& fields) {
  return parsed_fields([&] { return chat_job(fields); });
}
ParsedFields of_completion(const std::string& fields) {
  return parsed_fields([&] { return openai::parse_completion(body_of(R"("prompt":"p",)" + fields), {"1", "m", 7}); });
}
ParsedFields of_response(const std::string& fields) {
  static openai::ResponseStore store;
  return parsed_fields([&] {
    return openai::parse_response(body_of(R"("input":"Hi",)" + fields), tool_prompts(), store, "one", {"1", "m", 7});
  });
}
ParsedFields of_messages(const std::string& fields) {
  return parsed_fields([&] {
    return anthropic::parse_messages(body_of(kMessages + R"(,"max_tokens":8,)" + fields), chat_prompts(), {"1", "m"});
  });
}

TEST(ClientFields, WhatRoutersWriteAsksForNothing) {
  const std::string both =
      R"("no_stop_trim":false,"ignore_eos":false,"continue_final_message":false,"skip_special_tokens":true,
         "return_hidden_states":false,"stream_options":null,"lora_path":null,"session_params":null)";
  const auto chat =
      of_chat(both + R"(,"separate_reasoning":true,"stream_reasoning":true,"include_reasoning":true,"logprobs":false)");
  EXPECT_EQ(chat.param(), "");
  EXPECT_THAT(chat.ignored, IsEmpty());
  const auto completion = of_completion(both + R"(,"suffix":"","echo":false)");
  EXPECT_EQ(completion.param(), "");
  EXPECT_THAT(completion.ignored, IsEmpty());
  EXPECT_TRUE(of_chat(R"("no_stop_trim":true)").request().sampling.include_stop_str_in_output);
}

TEST(ClientFields, WhatWouldChangeTheAnswerIsRefused) {
  for (const char* fields :
       {R"("return_hidden_states":true)", R"("prompt_embeds":"AAAA")", R"("logits_processors":["a"])",
        R"("mirostat":2)", R"("tfs_z":0.5)", R"("typical_p":0.5)", R"("top_a":0.5)", R"("xtc_probability":0.5)",
        R"("dry_multiplier":0.8)", R"("chat_template":"x")", R"("stop_regex":"a")"}) {
    const std::string name(fields + 1, std::string(fields).find('"', 1) - 1);
    EXPECT_EQ(of_chat(fields).param(), name);
    EXPECT_EQ(of_completion(fields).param(), name);
    EXPECT_EQ(of_messages(fields).param(), name);
  }
  EXPECT_EQ(of_chat(R"("audio":{"voice":"a"})").param(), "audio");
  EXPECT_EQ(of_chat(R"("web_search_options":{})").param(), "web_search_options");
  EXPECT_EQ(of_completion(R"("suffix":"x")").param(), "suffix");
  EXPECT_EQ(of_completion(R"("continue_final_message":true)").param(), "continue_final_message");
  EXPECT_EQ(of_response(R"("conversation":"c")").param(), "conversation");
  EXPECT_EQ(of_response(R"("prompt":{"id":"p"})").param(), "prompt");
  EXPECT_EQ(of_response(R"("max_tokens":5)").param(), "max_tokens");
  EXPECT_EQ(of_messages(R"("mcp_servers":[{"type":"url"}])").param(), "mcp_servers");
  EXPECT_EQ(of_messages(R"("container":"c")").param(), "container");
}

TEST(ClientFields, EveryApiTakesTheSamplingFieldsOfVllm) {
  constexpr const char* kFields =
      R"("bad_words":["a"," b"],"allowed_token_ids":[5,6],"truncate_prompt_tokens":7,"spaces_between_special_tokens":false,
         "stream_interval":4,"repetition_penalty":3.5)";
  for (const auto& read : {of_chat(kFields), of_completion(kFields), of_messages(kFields), of_response(kFields)}) {
    ASSERT_EQ(read.param(), "");
    const GenerateRequest& request = read.request();
    EXPECT_EQ(request.sampling.bad_words, (std::vector<std::string>{"a", " b"}));
    EXPECT_EQ(request.sampling.allowed_token_ids, (std::vector<std::int64_t>{5, 6}));
    EXPECT_EQ(request.truncate_prompt_tokens, 7);
    EXPECT_FALSE(request.sampling.spaces_between_special_tokens);
    EXPECT_EQ(request.sampling.stream_interval, 4);
    EXPECT_EQ(request.sampling.repetition_penalty, 3.5);
    EXPECT_THAT(read.ignored, IsEmpty());
  }
  EXPECT_FALSE(of_completion(R"("detokenize":false)").request().sampling.detokenize);
  EXPECT_EQ(of_messages(R"("detokenize":false)").param(), "detokenize");
  EXPECT_EQ(of_messages(R"("logprob_token_ids":[3])").param(), "logprob_token_ids");
  constexpr const char* kTool = R"("tools":[{"type":"function","function":{"name":"f","parameters":{}}}],)";
  EXPECT_EQ(of_tool_chat(std::string(kTool) + R"("detokenize":false)").param(), "detokenize");
}

TEST(ClientFields, TokensWhoseLogprobsAreAskedForNeedLogprobs) {
  EXPECT_EQ(of_chat(R"("logprob_token_ids":[3])").param(), "logprob_token_ids");
  EXPECT_EQ(of_completion(R"("logprob_token_ids":[3])").param(), "logprob_token_ids");
  const std::vector<std::int64_t> ids{3, 4};
  EXPECT_EQ(of_chat(R"("logprobs":true,"logprob_token_ids":[3,4])").request().sampling.logprob_token_ids, ids);
  EXPECT_EQ(of_completion(R"("logprobs":0,"logprob_token_ids":[3,4])").request().sampling.logprob_token_ids, ids);
  EXPECT_EQ(of_chat(R"("logprobs":true,"top_logprobs":-1)").request().sampling.logprobs, -1);
  EXPECT_EQ(of_completion(R"("logprobs":-1)").request().sampling.logprobs, -1);
  EXPECT_EQ(of_completion(R"("logprobs":-2)").param(), "logprobs");
}

TEST(ClientFields, SamplersThatAreOffAskForNothing) {
  const auto off = of_chat(R"("mirostat":0,"mirostat_tau":5,"mirostat_eta":0.1,"tfs_z":1.0,"typical_p":1,"top_a":0,
      "xtc_probability":0,"xtc_threshold":0.1,"dry_multiplier":0,"dry_base":1.75,"repeat_last_n":-1,"bad_words":[],
      "allowed_token_ids":null,"n_probs":0,"dynatemp_range":0.0,"guidance_scale":1,"stop_regex":[])");
  EXPECT_EQ(off.param(), "");
}

TEST(ClientFields, ThePenaltyHasTwoNames) {
  EXPECT_EQ(of_chat(R"("repeat_penalty":1.25)").request().sampling.repetition_penalty, 1.25);
  EXPECT_FALSE(of_chat(R"("repeat_penalty":1.25)").request().open.repetition_penalty);
  EXPECT_EQ(of_chat(R"("repeat_penalty":1.25,"repetition_penalty":1.25)").param(), "");
  EXPECT_EQ(of_chat(R"("repeat_penalty":1.25,"repetition_penalty":1.5)").param(), "repeat_penalty");
}

TEST(ClientFields, ThePenaltiesHaveAWindow) {
  EXPECT_EQ(of_chat(R"("repeat_penalty":1.25)").request().sampling.repeat_last_n, -1);
  EXPECT_EQ(of_chat(R"("repeat_last_n":64)").request().sampling.repeat_last_n, 64);
  EXPECT_EQ(of_completion(R"("repeat_last_n":0)").request().sampling.repeat_last_n, 0);
}

TEST(ClientFields, EveryApiMayTurnSpeculationOff) {
  for (const auto& of_api : {of_chat, of_completion, of_messages, of_response}) {
    EXPECT_TRUE(of_api(R"("temperature":0)").request().sampling.speculation);
    const auto off = of_api(R"("speculation":false)");
    EXPECT_FALSE(off.request().sampling.speculation);
    EXPECT_THAT(off.ignored, IsEmpty());
    for (const char* wrong : {"0", R"("off")", R"({"method":"ngram"})"}) {
      EXPECT_EQ(of_api(std::string(R"("speculation":)") + wrong).param(), "speculation") << wrong;
    }
  }
}

TEST(ClientFields, SeedsMayBeNegativeAndTopPZero) {
  EXPECT_EQ(of_chat(R"("seed":-1)").request().sampling.seed, 0xFFFFFFFFFFFFFFFFU);
  EXPECT_EQ(of_chat(R"("seed":-9223372036854775808)").request().sampling.seed, 0x8000000000000000U);
  EXPECT_EQ(of_completion(R"("seed":18446744073709551615)").request().sampling.seed, 0xFFFFFFFFFFFFFFFFU);
  EXPECT_EQ(of_chat(R"("seed":1.5)").param(), "seed");
  const double least = of_chat(R"("top_p":0)").request().sampling.top_p;
  EXPECT_GT(least, 0);
  EXPECT_LT(least, 1e-8);
}

TEST(ClientFields, WhatTheModelRecommendsIsTheDefault) {
  for (const auto& read :
       {of_chat(R"("n":1)"), of_completion(R"("n":1)"), of_response(R"("n":1)"), of_messages(R"("n":1)")}) {
    const auto& open = read.request().open;
    EXPECT_TRUE(open.temperature && open.top_p && open.top_k && open.min_p && open.repetition_penalty);
    EXPECT_EQ(read.request().sampling.temperature, 1);
    EXPECT_EQ(read.request().sampling.top_p, 1);
  }
  EXPECT_TRUE(of_chat(R"("n":1)").request().open.max_tokens);
  EXPECT_FALSE(of_chat(R"("max_completion_tokens":5)").request().open.max_tokens);
  EXPECT_FALSE(of_chat(R"("temperature":0.5)").request().open.temperature);
}

TEST(ClientFields, MaxTokensHasTwoNames) {
  for (const char* fields :
       {R"("max_tokens":5)", R"("max_completion_tokens":5)", R"("max_tokens":5,"max_completion_tokens":5)"}) {
    EXPECT_EQ(of_chat(fields).request().sampling.max_tokens, 5);
    EXPECT_EQ(of_completion(fields).request().sampling.max_tokens, 5);
  }
  EXPECT_EQ(of_chat(R"("max_tokens":5,"max_completion_tokens":6)").param(), "max_completion_tokens");
  for (const char* fields : {R"("max_completion_tokens":5)", R"("max_tokens":null,"max_completion_tokens":5)"}) {
    const FieldNames::value_type renamed{"max_tokens", "max_completion_tokens"};
    EXPECT_THAT(of_chat(fields).job->names, testing::Contains(renamed)) << fields;
    EXPECT_THAT(of_completion(fields).job->names, testing::Contains(renamed)) << fields;
  }
}

TEST(ClientFields, ContextsThatLlamaServerWouldShiftAreNotShifted) {
  EXPECT_EQ(of_chat(R"("n_keep":-1,"n_discard":4)").param(), "");
}

TEST(ClientFields, SwitchesOfTheThinkingAreTheTemplates) {
  for (const char* off : {R"("enable_thinking":false)", R"("think":false)", R"("thinking":{"type":"disabled"})",
                          R"("reasoning_effort":"none")"}) {
    const auto read = of_tool_chat(off);
    ASSERT_EQ(read.param(), "") << off;
    EXPECT_THAT(*read.request().prompt, HasSubstr("</think>")) << off;
    EXPECT_THAT(read.ignored, IsEmpty()) << off;
  }
  EXPECT_THAT(of_chat(R"("thinking":{"type":"enabled"},"enable_thinking":true,"reasoning_effort":"low")").ignored,
              ElementsAre("enable_thinking", "thinking", "reasoning_effort"));
  EXPECT_THAT(of_chat(R"("thinking":{"type":"disabled"},"enable_thinking":false)").ignored, IsEmpty())
      << "there is none in any case";
}

TEST(ClientFields, ThinkingThatIsNotSeparatedStaysInTheContent) {
  const auto answer = result_of("<think>\nWhere?\n</think>\n\nHere.");
  auto read = of_tool_chat(R"("separate_reasoning":false)");
  auto message = whole(*read.job->writer, answer)["choices"][0]["message"];
  EXPECT_EQ(message["content"], "<think>\nWhere?\n</think>\n\nHere.");
  EXPECT_FALSE(message.contains("reasoning"));
}

TEST(ClientFields, ThinkingThatIsNotStreamedComesInOneChunk) {
  const auto reasoning_of = [](const std::string& fields) {
    auto read = of_tool_chat(R"("stream":true)" + fields);
    const auto text =
        streamed(*read.job->writer, {text_delta("<think>\nWhe"), text_delta("re?"), text_delta("\n</think>\n\nHere.")},
                 result_of("<think>\nWhere?\n</think>\n\nHere."));
    std::vector<std::string> pieces;
    for (auto at = text.find(R"("reasoning":)"); at != std::string::npos; at = text.find(R"("reasoning":)", at + 1)) {
      const auto begin = at + std::string(R"("reasoning":")").size();
      pieces.push_back(text.substr(begin, text.find('"', begin) - begin));
    }
    return pieces;
  };
  EXPECT_THAT(reasoning_of(R"(,"stream_reasoning":false)"), ElementsAre("Where?"));
  EXPECT_GT(reasoning_of("").size(), 1U);
}

TEST(ClientFields, UsageMayBeInEveryChunk) {
  const std::string constraint =
      R"("stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":true})";
  for (const bool is_chat : {true, false}) {
    auto read = is_chat ? of_chat(constraint) : of_completion(constraint);
    ASSERT_EQ(read.param(), "");
    const auto text = streamed(*read.job->writer, {text_delta("a"), text_delta("b")}, result_of("ab"));
    for (const char* usage : {R"("usage":{"prompt_tokens":20,"completion_tokens":1,"total_tokens":21})",
                              R"("usage":{"prompt_tokens":20,"completion_tokens":2,"total_tokens":22})"}) {
      EXPECT_THAT(text, HasSubstr(usage));
    }
    EXPECT_THAT(text, testing::Not(HasSubstr(R"("usage":null)")));
  }
  const auto off =
      of_completion(R"("stream":true,"stream_options":{"include_usage":true,"continuous_usage_stats":false})");
  EXPECT_THAT(streamed(*off.job->writer, {text_delta("a")}, result_of("a")), HasSubstr(R"("usage":null)"));
  EXPECT_THAT(of_chat(R"("stream_options":{"include_usage":true})").ignored, ElementsAre("stream_options"));
}

TEST(ClientFields, ClaudeCodesFieldsAreTakenOrIgnoredByName) {
  const auto asked =
      of_messages(R"("output_config":{"effort":"high"},"thinking":{"type":"enabled","budget_tokens":1024},
      "context_management":{"edits":[{"type":"clear_thinking_20251015","keep":"all"},
                                     {"type":"clear_tool_uses_20250919","trigger":{"type":"input_tokens","value":9}}]},
      "mcp_servers":[],"container":null,"speed":"fast","betas":["a"])");
  ASSERT_EQ(asked.param(), "");
  EXPECT_THAT(asked.ignored, testing::UnorderedElementsAre("output_config.effort", "thinking.type=enabled",
                                                           "context_management.edits[].type=clear_tool_uses_20250919",
                                                           "speed", "betas"));
  const auto tools = parsed_fields([] {
    return anthropic::parse_messages(
        body_of(kMessages + R"(,"max_tokens":8,"tools":[{"type":"tool_search_tool_regex_20251119","name":"s"},
            {"name":"f","input_schema":{"type":"object"},"defer_loading":true,"input_examples":[{}]},
            {"name":"g","input_schema":{"type":"object"},"defer_loading":false}])"),
        tool_prompts(), {"1", "m"});
  });
  EXPECT_EQ(tools.param(), "");
  EXPECT_THAT(tools.ignored, ElementsAre("tools[].type=tool_search_tool_regex_20251119", "tools[].defer_loading",
                                         "tools[].input_examples"));
}

TEST(ClientFields, CodexsFieldsAreTakenOrIgnoredByName) {
  const auto read = of_response(R"("include":["reasoning.encrypted_content"],"client_metadata":{"a":"b"},
      "text":{"verbosity":"low"},"reasoning":{"effort":"medium","summary":"detailed"},"prompt_cache_key":"k",
      "parallel_tool_calls":true,"tool_choice":"auto","store":false,
      "tools":[{"type":"function","name":"shell","description":"d","strict":false,
                "parameters":{"type":"object","properties":{}}},
               {"type":"web_search","search_context_size":"low"},
               {"type":"custom","name":"apply_patch","format":{"type":"grammar"}}])");
  ASSERT_EQ(read.param(), "");
  EXPECT_THAT(read.ignored, testing::UnorderedElementsAre("text.verbosity", "reasoning.summary",
                                                          "tools[].type=web_search", "tools[].type=custom"));
  EXPECT_THAT(*read.request().prompt, HasSubstr("shell"));
  EXPECT_EQ(of_response(R"("tools":[{"type":"web_search"}],"tool_choice":"required")").param(), "tool_choice");
}

TEST(ClientFields, ReasoningItemsCarryAnEncryptedContentWhereItIsAskedFor) {
  const auto item_of = [](const std::string& fields) {
    auto read = of_response(fields);
    return whole(*read.job->writer, result_of("<think>\nWhere?\n</think>\n\nHere."))["output"][0];
  };
  EXPECT_FALSE(item_of(R"("n":1)").contains("encrypted_content"));
  const auto item = item_of(R"("include":["reasoning.encrypted_content"])");
  EXPECT_EQ(item["type"], "reasoning");
  EXPECT_EQ(openai::read_opaque_reasoning(item["encrypted_content"].get<std::string>()), "Where?");
}

TEST(OpaqueThought, IsReadBack) {
  for (const std::string thought : {"", "a", "ab", "abc", "abcd", "\xf0\x9f\x98\x80 \n"}) {
    EXPECT_EQ(openai::read_opaque_reasoning(openai::opaque_reasoning(thought)), thought);
  }
  EXPECT_EQ(openai::read_opaque_reasoning("gAAAAABo"), std::nullopt);
  EXPECT_EQ(openai::read_opaque_reasoning("pagoda1:???"), std::nullopt);
  EXPECT_EQ(openai::read_opaque_reasoning("pagoda1:????"), std::nullopt);
}

TEST(ClientFields, APromptThatIsTooLongKeepsItsWords) {
  const Error error{ErrorCode::context_too_long, "prompt is too long: 9 tokens > 7 maximum: why", "prompt"};
  const auto worded = rename_field(field_names("messages"), error);
  EXPECT_EQ(worded.message, error.message);
  EXPECT_EQ(worded.param, "messages");
}

}  // namespace
}  // namespace pagoda::http
