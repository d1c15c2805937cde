#include "io/json_lines/protocol.hpp"

#include <cmath>
#include <limits>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/support/listed_texts.hpp"

namespace pagoda::json_lines {
namespace {

using nlohmann::json;
using testing::HasSubstr;

template <class Op>
Op parsed(const std::string& line) {
  auto message = parse_line(line);
  EXPECT_TRUE(message.has_value()) << line << ": " << (message ? "" : message.error().error.message);
  if (!message || !std::holds_alternative<Op>(*message)) {
    ADD_FAILURE() << line << " is not the op that was wanted";
    return Op{};
  }
  return std::get<Op>(*message);
}

struct RefusedCase {
  std::string name;
  std::string line;
  WireCode code = WireCode::invalid_request;
  ClientId id = "x";
  std::string param = {};
};

std::string nested(std::size_t depth) {
  return R"({"id":"x","prompt":)" + std::string(depth, '[') + std::string(depth, ']') + "}";
}

std::string with(const std::string& field, const std::string& value) {
  return R"({"id":"x","prompt":"a",")" + field + "\":" + value + "}";
}

std::vector<RefusedCase> refused_cases() {
  const auto kJson = WireCode::invalid_json;
  const auto kRequest = WireCode::invalid_request;
  std::vector<RefusedCase> cases{
      {"not_json", "{nope", kJson, {}},
      {"empty", "", kJson, {}},
      {"two_values", R"({"op":"ping"} {"op":"ping"})", kJson, {}},
      {"trailing_comma", R"({"op":"ping",})", kJson, {}},
      {"comment", R"({"op":"ping"/*x*/})", kJson, {}},
      {"raw_nul_after_the_object", std::string("{\"op\":\"ping\"}\0x", 15), kJson, {}},
      {"raw_control_character_in_a_string", "{\"op\":\"ping\",\"id\":\"a\x01\"}", kJson, {}},
      {"not_utf8", "{\"id\":\"x\",\"prompt\":\"\xff\xfe\"}", kJson, {}},
      {"overlong_utf8", "{\"id\":\"x\",\"prompt\":\"\xc0\xaf\"}", kJson, {}},
      {"utf8_surrogate", "{\"id\":\"x\",\"prompt\":\"\xed\xa0\x80\"}", kJson, {}},
      {"lone_surrogate_escape", R"({"id":"x","prompt":"\ud800"})", kJson, {}},
      {"deep_arrays", std::string(20000, '[') + std::string(20000, ']'), kJson, {}},
      {"deep_open_arrays", std::string(1000000, '['), kJson, {}},
      {"one_level_too_deep", nested(kMaxDepth), kJson, {}},
      {"deepest_allowed_is_only_a_wrong_type", nested(kMaxDepth - 1), kRequest, "x", "prompt"},
      {"a_list", "[1,2]", kRequest, {}},
      {"a_string", "\"ping\"", kRequest, {}},
      {"null_line", "null", kRequest, {}},
      {"unknown_op", R"({"op":"fly","id":"x"})", WireCode::unknown_op, "x", "op"},
      {"empty_op", R"({"op":"","id":"x"})", WireCode::unknown_op, "x", "op"},
      {"op_of_wrong_type", R"({"op":1,"id":"x"})", kRequest, "x", "op"},
      {"unknown_field", with("temprature", "1"), kRequest, "x", "temprature"},
      {"unknown_field_of_ping", R"({"op":"ping","id":"x","prompt":"a"})", kRequest, "x", "prompt"},
      {"unknown_field_of_cancel", R"({"op":"cancel","id":"x","all":true})", kRequest, "x", "all"},
      {"field_twice", R"({"id":"x","prompt":"a","n":1,"n":2})", kRequest, {}, "n"},
      {"id_missing", R"({"prompt":"a"})", kRequest, {}, "id"},
      {"id_null", R"({"id":null,"prompt":"a"})", kRequest, {}, "id"},
      {"id_number", R"({"id":7,"prompt":"a"})", kRequest, {}, "id"},
      {"id_empty", R"({"id":"","prompt":"a"})", kRequest, {}, "id"},
      {"id_too_long", R"({"id":")" + std::string(129, 'i') + R"(","prompt":"a"})", kRequest, {}, "id"},
      {"cancel_without_id", R"({"op":"cancel"})", kRequest, {}, "id"},
      {"no_prompt", R"({"id":"x"})", kRequest, "x", "prompt"},
      {"prompt_null", R"({"id":"x","prompt":null})", kRequest, "x", "prompt"},
      {"both_prompts", R"({"id":"x","prompt":"a","prompt_token_ids":[1]})", kRequest, "x", "prompt_token_ids"},
      {"tokenize_without_text", R"({"op":"tokenize","id":"x"})", kRequest, "x", "text"},
      {"tokenize_number", R"({"op":"tokenize","id":"x","text":1})", kRequest, "x", "text"},
      {"detokenize_without_ids", R"({"op":"detokenize","id":"x"})", kRequest, "x", "token_ids"},
      {"detokenize_float", R"({"op":"detokenize","id":"x","token_ids":[1.0]})", kRequest, "x", "token_ids"},
      {"auth_without_key", R"({"op":"auth","id":"x"})", kRequest, "x", "key"},
      {"number_beyond_any_double", with("temperature", "1e999"), kRequest, {}, "temperature"},
      {"prompt_token_ids_of_strings", R"({"id":"x","prompt_token_ids":["1"]})", kRequest, "x", "prompt_token_ids"},
      {"prompt_token_ids_not_a_list", R"({"id":"x","prompt_token_ids":1})", kRequest, "x", "prompt_token_ids"},
  };
  const std::vector<std::pair<std::string, std::string>> bad_values{
      {"temperature", R"("hot")"},
      {"temperature", "null"},
      {"temperature", "[1]"},
      {"top_p", "true"},
      {"max_tokens", "9223372036854775808"},
      {"max_tokens", "18446744073709551616"},
      {"max_tokens", "-9223372036854775809"},
      {"max_tokens", "1.5"},
      {"max_tokens", "1.0"},
      {"max_tokens", R"("3")"},
      {"max_tokens", "null"},
      {"min_tokens", "{}"},
      {"thinking_token_budget", "1.5"},
      {"n", "1e3"},
      {"top_k", "0.5"},
      {"stop", "[1]"},
      {"stop", "7"},
      {"stop", R"({"a":"b"})"},
      {"stop_token_ids", R"("2")"},
      {"stop_token_ids", "[null]"},
      {"stop_token_ids", "[9223372036854775808]"},
      {"seed", R"("x")"},
      {"seed", "-1"},
      {"seed", "18446744073709551616"},
      {"logit_bias", "[1]"},
      {"logit_bias", R"({"x":1})"},
      {"logit_bias", R"({"":1})"},
      {"logit_bias", R"({"01":1})"},
      {"logit_bias", R"({"+1":1})"},
      {"logit_bias", R"({"1":"x"})"},
      {"logprobs", "true"},
      {"prompt_logprobs", "1.5"},
      {"ignore_eos", "1"},
      {"skip_special_tokens", R"("yes")"},
      {"add_special_tokens", "null"},
      {"include_stop_str_in_output", "0"},
      {"use_beam_search", "[]"},
      {"early_stopping", R"("maybe")"},
      {"early_stopping", "1"},
      {"length_penalty", R"("1")"},
      {"stream", "1"},
      {"priority", "0.5"},
      {"user", "1"},
      {"cache_salt", "1"},
      {"best_of", R"("2")"},
      {"timing", "1"},
      {"structured_outputs", "1"},
      {"speculation", "0"},
      {"speculation", R"("off")"},
      {"speculation", "null"},
  };
  for (std::size_t i = 0; i < bad_values.size(); ++i) {
    const auto& [field, value] = bad_values[i];
    cases.push_back({field + "_" + std::to_string(i), with(field, value), kRequest, "x", field});
  }
  return cases;
}

class RefusedLines : public testing::TestWithParam<RefusedCase> {};

TEST_P(RefusedLines, SayWhatIsWrongAndWhoseTheyAre) {
  const auto& wrong = GetParam();
  const auto message = parse_line(wrong.line);
  ASSERT_FALSE(message.has_value());
  EXPECT_EQ(to_string(message.error().error.code), to_string(wrong.code)) << message.error().error.message;
  EXPECT_EQ(message.error().id, wrong.id);
  EXPECT_EQ(message.error().error.param, wrong.param);
  EXPECT_FALSE(message.error().error.message.empty());
}

INSTANTIATE_TEST_SUITE_P(Protocol, RefusedLines, testing::ValuesIn(refused_cases()),
                         [](const auto& wrong) { return wrong.param.name; });

TEST(Protocol, ALineWithoutOpIsAGenerateWithDefaultSampling) {
  const auto op = parsed<GenerateOp>(R"({"id":"x","prompt":"Once"})");
  EXPECT_EQ(op.id, "x");
  const auto& request = *op.request;
  EXPECT_EQ(request.prompt, "Once");
  EXPECT_FALSE(request.prompt_token_ids.has_value());
  EXPECT_TRUE(request.stream);
  EXPECT_TRUE(request.add_special_tokens);
  EXPECT_EQ(request.sampling.max_tokens, 16);
  EXPECT_EQ(request.sampling.temperature, 1.0);
  EXPECT_EQ(request.sampling.top_k, -1);
  EXPECT_EQ(request.sampling.n, 1);
  EXPECT_FALSE(request.sampling.seed.has_value());
  EXPECT_FALSE(request.sampling.logprobs.has_value());
  EXPECT_TRUE(request.sampling.speculation);
}

TEST(Protocol, EveryFieldOfGenerateReachesTheRequest) {
  const auto op = parsed<GenerateOp>(
      R"({"op":"generate","id":"x","prompt_token_ids":[1,2,3],"stream":false,"max_tokens":9,"min_tokens":2,)"
      R"("temperature":0,"top_p":0.5,"top_k":7,"min_p":0.25,"n":2,"best_of":3,"seed":18446744073709551615,)"
      R"("stop":["a","b"],"stop_token_ids":[5,-6],"ignore_eos":true,"include_stop_str_in_output":true,)"
      R"("presence_penalty":-1,"frequency_penalty":0.5,"repetition_penalty":1.25,"logit_bias":{"4":-1.5,"-3":2},)"
      R"("logprobs":4,"prompt_logprobs":0,"skip_special_tokens":false,"add_special_tokens":false,)"
      R"("use_beam_search":true,"length_penalty":0.75,"early_stopping":"never","priority":-2,"user":"u",)"
      R"("cache_salt":"s","timing":true,"structured_outputs":{"choice":["a","b"]},)"
      R"("thinking_token_budget":6,"bad_words":["x","y z"],"allowed_token_ids":[8,9],"logprob_token_ids":[7],)"
      R"("truncate_prompt_tokens":-1,"detokenize":false,"spaces_between_special_tokens":false,"stream_interval":5,)"
      R"("prompt_embeds":[],"speculation":false})");
  EXPECT_TRUE(op.timing);
  const auto& request = *op.request;
  EXPECT_FALSE(request.prompt.has_value());
  EXPECT_EQ(request.prompt_token_ids, (std::vector<std::int64_t>{1, 2, 3}));
  EXPECT_FALSE(request.stream);
  EXPECT_FALSE(request.add_special_tokens);
  EXPECT_EQ(request.priority, -2);
  EXPECT_EQ(request.user, "u");
  EXPECT_EQ(request.cache_salt, "s");
  const auto& params = request.sampling;
  EXPECT_EQ(params.max_tokens, 9);
  EXPECT_EQ(params.min_tokens, 2);
  EXPECT_EQ(params.thinking_token_budget, 6);
  EXPECT_EQ(params.temperature, 0.0);
  EXPECT_EQ(params.top_p, 0.5);
  EXPECT_EQ(params.top_k, 7);
  EXPECT_EQ(params.min_p, 0.25);
  EXPECT_EQ(params.n, 2);
  EXPECT_EQ(params.best_of, 3);
  EXPECT_EQ(params.seed, std::numeric_limits<std::uint64_t>::max());
  EXPECT_EQ(params.stop, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(params.stop_token_ids, (std::vector<std::int64_t>{5, -6}));
  EXPECT_TRUE(params.ignore_eos);
  EXPECT_TRUE(params.include_stop_str_in_output);
  EXPECT_EQ(params.presence_penalty, -1.0);
  EXPECT_EQ(params.frequency_penalty, 0.5);
  EXPECT_EQ(params.repetition_penalty, 1.25);
  EXPECT_EQ(params.logit_bias, (std::vector<std::pair<std::int64_t, double>>{{4, -1.5}, {-3, 2.0}}));
  EXPECT_EQ(params.bad_words, (std::vector<std::string>{"x", "y z"}));
  EXPECT_EQ(params.allowed_token_ids, (std::vector<std::int64_t>{8, 9}));
  EXPECT_EQ(params.logprob_token_ids, (std::vector<std::int64_t>{7}));
  EXPECT_EQ(request.truncate_prompt_tokens, -1);
  EXPECT_FALSE(params.detokenize);
  EXPECT_FALSE(params.spaces_between_special_tokens);
  EXPECT_EQ(params.stream_interval, 5);
  EXPECT_EQ(params.logprobs, 4);
  EXPECT_EQ(params.prompt_logprobs, 0);
  EXPECT_FALSE(params.skip_special_tokens);
  EXPECT_TRUE(params.use_beam_search);
  EXPECT_EQ(params.length_penalty, 0.75);
  EXPECT_EQ(params.early_stopping, EarlyStopping::never);
  EXPECT_EQ(params.structured_outputs, (StructuredOutput{GrammarKind::choice, {}, {"a", "b"}}));
  EXPECT_FALSE(params.speculation);
}

TEST(Protocol, NullLeavesAFieldThatMayBeAbsentAbsent) {
  const auto op = parsed<GenerateOp>(
      R"({"id":"x","prompt":"a","prompt_token_ids":null,"logprobs":null,"prompt_logprobs":null,"seed":null,)"
      R"("best_of":null,"stop":null,"logit_bias":null})");
  EXPECT_FALSE(op.request->sampling.logprobs.has_value());
  EXPECT_FALSE(op.request->sampling.best_of.has_value());
  EXPECT_TRUE(op.request->sampling.stop.empty());
}

TEST(Protocol, AStopMayBeOneString) {
  EXPECT_EQ(parsed<GenerateOp>(with("stop", R"("end")")).request->sampling.stop, std::vector<std::string>{"end"});
}

TEST(Protocol, ValuesOutOfRangeAreLeftToTheRequestRouter) {
  EXPECT_EQ(parsed<GenerateOp>(with("max_tokens", "-3")).request->sampling.max_tokens, -3);
  EXPECT_EQ(parsed<GenerateOp>(with("max_tokens", "9223372036854775807")).request->sampling.max_tokens, INT64_MAX);
  EXPECT_EQ(parsed<GenerateOp>(R"({"id":"x","prompt_token_ids":[]})").request->prompt_token_ids->size(), 0U);
}

TEST(Protocol, TheOtherOpsAreReadWithAndWithoutId) {
  EXPECT_EQ(parsed<CancelOp>(R"({"op":"cancel","id":"x"})").id, "x");
  EXPECT_EQ(parsed<TokenizeOp>(R"({"op":"tokenize","text":"a","id":"t"})").text, "a");
  EXPECT_TRUE(parsed<TokenizeOp>(R"({"op":"tokenize","text":"a"})").add_special_tokens);
  EXPECT_EQ(parsed<DetokenizeOp>(R"({"op":"detokenize","token_ids":[1,2]})").token_ids.size(), 2U);
  EXPECT_FALSE(parsed<ModelOp>(R"({"op":"model"})").id.has_value());
  EXPECT_EQ(parsed<StatsOp>(R"({"op":"stats","id":"s"})").id, "s");
  EXPECT_EQ(parsed<PingOp>(R"( { "op" : "ping" , "id" : "p" } )").id, "p");
  EXPECT_EQ(parsed<AuthOp>(R"({"op":"auth","key":"k"})").key, "k");
}

TEST(Protocol, IdsAreBytesOfUtf8UpToTheLimit) {
  EXPECT_EQ(parsed<CancelOp>(R"({"op":"cancel","id":")" + std::string(128, 'i') + "\"}").id.size(), 128U);
  EXPECT_EQ(parsed<CancelOp>("{\"op\":\"cancel\",\"id\":\"\\u00e9\"}").id, "\xc3\xa9");
}

TEST(Protocol, FieldsThatALineDoesNotHaveStayOpenForTheModelsDefaults) {
  const auto request = parsed<GenerateOp>(R"({"id":"a","prompt":"x","temperature":1.0,"top_k":-1})").request;
  EXPECT_FALSE(request->open.temperature);
  EXPECT_FALSE(request->open.top_k);
  EXPECT_TRUE(request->open.top_p);
  EXPECT_TRUE(request->open.min_p);
  EXPECT_TRUE(request->open.repetition_penalty);
  EXPECT_TRUE(request->open.max_tokens);
  EXPECT_EQ(request->sampling.max_tokens, 16);
}

TEST(Protocol, AGenerateObjectOfAFileInheritsWhatItDoesNotSay) {
  GenerateRequest defaults;
  defaults.sampling.max_tokens = 99;
  defaults.sampling.temperature = 0;
  defaults.open.temperature = true;
  defaults.open.top_p = true;
  const auto object = parse_generate_object(R"({"prompt":"a","temperature":0.5})", defaults);
  ASSERT_TRUE(object.has_value());
  EXPECT_FALSE(object->request.open.temperature);
  EXPECT_TRUE(object->request.open.top_p);
  EXPECT_FALSE(object->request.open.max_tokens);
  EXPECT_FALSE(object->id.has_value());
  EXPECT_EQ(object->request.sampling.max_tokens, 99);
  EXPECT_EQ(object->request.sampling.temperature, 0.5);
  const auto wrong = parse_generate_object(R"({"op":"ping","id":"p"})", defaults);
  ASSERT_FALSE(wrong.has_value());
  EXPECT_EQ(wrong.error().error.param, "op");
  EXPECT_EQ(wrong.error().id, "p");
}

json written(const std::string& line) {
  EXPECT_EQ(line.find('\n'), line.size() - 1) << line;
  return json::parse(line);
}

/// One entry: "u" is token 9, all others are "t".
Logprobs entry(TokenId id, float logprob) {
  static const auto texts = [] {
    const auto listed = std::make_shared<test::ListedTexts>();
    while (listed->add("t") < 8) {
    }
    listed->add("u");
    return listed;
  }();
  return test::one_logprob(texts, id, logprob, 1, {{id, logprob}, {9, -2.5F}});
}

TEST(Events, ADeltaCarriesTextIdsAndLogprobsOnlyWhenAsked) {
  std::string line;
  append_delta(line, "a\"b", {1, "é\n\"", {7, -1}});
  EXPECT_EQ(written(line), json::parse(R"({"event":"delta","id":"a\"b","index":1,"text":"é\n\"","token_ids":[7,-1]})"));
  line.clear();
  append_delta(line, "a", {0, "t", {7}, entry(7, -0.5F)});
  EXPECT_EQ(written(line)["logprobs"], json::parse(R"([{"token_id":7,"logprob":-0.5,"rank":1,"token":"t",
    "bytes":[116],"top":[{"token_id":7,"logprob":-0.5,"token":"t","bytes":[116]},
                         {"token_id":9,"logprob":-2.5,"token":"u","bytes":[117]}]}])"));
}

TEST(Events, DoneCarriesEveryOutputUsageAndTiming) {
  RequestResult result;
  result.outputs.push_back({0, "x", {1, 2}, {}, FinishReason::stop, std::string("x"), -1.5, std::nullopt});
  result.outputs.push_back({1, "", {}, {}, FinishReason::abort, {}, 0, entry(3, -1)});
  result.outputs.push_back({2, "", {2}, {}, FinishReason::stop, TokenId{2}, 0, std::nullopt});
  result.prompt_logprobs = entry(4, -3);
  result.usage = {5, 2, 4};
  result.timing = {.queue_ms = 0.5,
                   .ttft_ms = 1.25,
                   .total_ms = 10,
                   .cache_miss = 1,
                   .preemptions = 3,
                   .restarts = 2,
                   .draft_tokens = 9,
                   .drafts_accepted = 5};
  std::string line;
  append_done(line, "x", result);
  const auto done = written(line);
  EXPECT_EQ(done["event"], "done");
  EXPECT_EQ(done["id"], "x");
  EXPECT_EQ(done["outputs"][0],
            json::parse(R"({"index":0,"text":"x","token_ids":[1,2],"finish_reason":"stop","stop_reason":"x",
                            "cumulative_logprob":-1.5})"));
  EXPECT_EQ(done["outputs"][1]["finish_reason"], "abort");
  EXPECT_TRUE(done["outputs"][1]["stop_reason"].is_null());
  EXPECT_EQ(done["outputs"][1]["logprobs"].size(), 1U);
  EXPECT_EQ(done["outputs"][2]["stop_reason"], 2);
  EXPECT_TRUE(done["prompt_logprobs"][0].is_null());
  EXPECT_EQ(done["prompt_logprobs"][1]["token_id"], 4);
  EXPECT_EQ(done["usage"], json::parse(R"({"prompt_tokens":5,"completion_tokens":2,"cached_tokens":4})"));
  EXPECT_EQ(done["timing"], json::parse(R"({"queue_ms":0.5,"ttft_ms":1.25,"total_ms":10.0})"));
  line.clear();
  append_done(line, "x", result, true);
  EXPECT_EQ(written(line)["timing"], json::parse(R"({"queue_ms":0.5,"ttft_ms":1.25,"total_ms":10.0,"cached_tokens":4,
      "cache_miss":1,"preemptions":3,"draft_tokens":9,"drafts_accepted":5,"restarts":2})"));
}

TEST(Events, ImpossibleLogprobsAreAVeryLowNumberSinceJsonHasNoInfinity) {
  std::string line;
  append_delta(line, "a", {0, "", {7}, {entry(7, -std::numeric_limits<float>::infinity())}});
  append_delta(line, "a", {0, "", {7}, {entry(7, std::numeric_limits<float>::quiet_NaN())}});
  EXPECT_THAT(line, HasSubstr(R"("logprob":-9999)"));
  EXPECT_EQ(line.find("inf"), std::string::npos);
  EXPECT_EQ(line.find("nan"), std::string::npos);
}

TEST(Events, AnErrorHasANullIdWhenThereIsNone) {
  std::string line;
  append_error(line, {}, {WireCode::invalid_json, "bad"});
  EXPECT_EQ(written(line),
            json::parse(R"({"event":"error","id":null,"error":{"code":"invalid_json","message":"bad"}})"));
  line.clear();
  append_error(line, "x", {WireCode::queue_full, "later", "n", 250});
  EXPECT_EQ(written(line)["error"],
            json::parse(R"({"code":"queue_full","message":"later","param":"n","retry_after_ms":250})"));
}

TEST(Events, OnlyCodesOfTheProtocolGoOut) {
  std::string line;
  append_error(line, "x", wire_error({ErrorCode::unsupported, "no", "n"}));
  EXPECT_EQ(written(line)["error"]["code"], "invalid_request");
  line.clear();
  for (const ErrorCode code : {ErrorCode::out_of_memory, ErrorCode::device_failed}) {
    line.clear();
    append_error(line, "x", wire_error({code, "no"}));
    EXPECT_EQ(written(line)["error"]["code"], "internal");
  }
}

TEST(Events, AnswersEchoTheIdTheyWereGiven) {
  std::string line;
  append_pong(line, "p", "1.2.3");
  EXPECT_EQ(written(line), json::parse(R"({"event":"pong","id":"p","version":"1.2.3","protocol":1})"));
  line.clear();
  append_ok(line, {});
  EXPECT_EQ(written(line), json::parse(R"({"event":"ok"})"));
  line.clear();
  append_tokens(line, "t", {1, 2});
  EXPECT_EQ(written(line), json::parse(R"({"event":"tokens","id":"t","token_ids":[1,2]})"));
  line.clear();
  append_text(line, {}, "a");
  EXPECT_EQ(written(line), json::parse(R"({"event":"text","text":"a"})"));
}

TEST(Events, ModelAndStatsCarryTheNamesOfTheProtocol) {
  std::string line;
  append_model(line, "m", {});
  for (const char* key : {"name", "architecture", "dtype", "vocab_size", "max_model_len", "block_size",
                          "num_device_blocks", "num_host_blocks"}) {
    EXPECT_TRUE(written(line).contains(key)) << key;
  }
  line.clear();
  append_stats(line, "s", {});
  for (const char* key :
       {"requests_waiting", "requests_running", "requests_swapped", "device_blocks_total", "device_blocks_free",
        "device_blocks_cached", "host_blocks_total", "host_blocks_free", "prompt_tokens_total",
        "generation_tokens_total", "steps_total", "preemptions_recompute_total", "preemptions_swap_total",
        "prefix_cache_queries_total", "prefix_cache_hits_total", "uptime_s", "health"}) {
    EXPECT_TRUE(written(line).contains(key)) << key;
  }
}

TEST(Models, ALineNamesOneOfSeveralAndNeedNotNameTheOnlyOne) {
  const std::vector<LineModel> several{{{"a", "alias"}, nullptr}, {{"b"}, nullptr}};
  const auto generate = parse_line(R"({"id": "1", "prompt": "x", "model": "b"})", several);
  ASSERT_TRUE(generate.has_value());
  EXPECT_EQ(std::get<GenerateOp>(*generate).model, 1U);
  EXPECT_EQ(std::get<StatsOp>(*parse_line(R"({"op": "stats", "model": "alias"})", several)).model, 0U);
  EXPECT_TRUE(parse_line(R"({"op": "ping"})", several).has_value());
  for (const char* line : {R"({"id": "1", "prompt": "x"})", R"({"id": "1", "prompt": "x", "model": "c"})",
                           R"({"op": "tokenize", "text": "x"})", R"({"op": "model"})"}) {
    const auto refused = parse_line(line, several);
    ASSERT_FALSE(refused.has_value()) << line;
    EXPECT_EQ(refused.error().error.param, "model");
    EXPECT_NE(refused.error().error.message.find("`a`, `alias`, `b`"), std::string::npos);
  }
  const std::vector<LineModel> one{{{"a"}, nullptr}};
  EXPECT_TRUE(parse_line(R"({"id": "1", "prompt": "x"})", one).has_value());
  EXPECT_TRUE(parse_line(R"({"id": "1", "prompt": "x", "model": "a"})", one).has_value());
  EXPECT_FALSE(parse_line(R"({"id": "1", "prompt": "x", "model": "b"})", one).has_value());
}

}  // namespace
}  // namespace pagoda::json_lines
