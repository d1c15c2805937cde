// How the models of well-known templates write their answers.

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "io/chat/dialect_probe.hpp"
#include "io/dialect_file.hpp"
#include "tests/io/chat/known_dialects.hpp"
#include "tests/io/chat/template_files.hpp"

namespace pagoda::chat {
namespace {

using testing::Json;
using testing::kArguments;
using testing::kName;
using testing::text_part;

/// BEFORE name BETWEEN {...} BEHIND
std::vector<CallPart> call_of(const std::string& before, const std::string& between, const std::string& after) {
  std::vector<CallPart> call;
  if (!before.empty()) call.push_back(text_part(before));
  call.push_back(kName);
  if (!between.empty()) call.push_back(text_part(between));
  call.push_back(kArguments);
  if (!after.empty()) call.push_back(text_part(after));
  return call;
}

const std::vector<CallPart> kObject = call_of(R"({"name": ")", R"(", "arguments": )", "}");
const Marks kThink{"<think>", "</think>"};

/// <tool_call>\n{"name": "f", "arguments": {...}}\n</tool_call>
ToolCallForm hermes(const std::string& separator = "\n") {
  return {.separator = separator,
          .call = call_of("<tool_call>\n{\"name\": \"", R"(", "arguments": )", "}\n</tool_call>"),
          .trigger = "<tool_call>"};
}

/// A list of objects between marks.
ToolCallForm list_of(const std::string& begin, const std::string& trigger, const std::string& end) {
  return {.section_begin = begin, .separator = ", ", .section_end = end, .call = kObject, .trigger = trigger};
}

/// <tool_call>\n<function=f>\n<parameter=k>\nv\n</parameter>\n</function>\n</tool_call>
ToolCallForm qwen3_coder() {
  return {.separator = "\n",
          .call = call_of("<tool_call>\n<function=", ">\n", "\n</function>\n</tool_call>"),
          .trigger = "<tool_call>",
          .arguments = ArgumentForm::tagged,
          .key_begin = "<parameter=",
          .key_end = ">\n",
          .value_end = "\n</parameter>",
          .argument_separator = "\n"};
}

ToolCallForm seed_oss() {
  return {.separator = "\n",
          .call = call_of("<seed:tool_call>\n<function=", ">\n", "\n</function>\n</seed:tool_call>"),
          .trigger = "<seed:tool_call>",
          .arguments = ArgumentForm::tagged,
          .key_begin = "<parameter=",
          .key_end = ">",
          .value_end = "</parameter>",
          .argument_separator = "\n"};
}

/// <tool_call>f<arg_key>k</arg_key><arg_value>v</arg_value></tool_call>, with `space` between all of it.
ToolCallForm glm(const std::string& space) {
  return {.separator = space,
          .call = call_of("<tool_call>", space, space + "</tool_call>"),
          .trigger = "<tool_call>",
          .arguments = ArgumentForm::tagged,
          .key_begin = "<arg_key>",
          .key_end = "</arg_key>" + space + "<arg_value>",
          .value_end = "</arg_value>",
          .argument_separator = space};
}

ToolCallForm minimax_m2() {
  return {.section_begin = "<minimax:tool_call>\n",
          .separator = "\n",
          .section_end = "\n</minimax:tool_call>",
          .call = call_of("<invoke name=\"", "\">\n", "\n</invoke>"),
          .trigger = "<minimax:tool_call>",
          .arguments = ArgumentForm::tagged,
          .key_begin = "<parameter name=\"",
          .key_end = "\">",
          .value_end = "</parameter>",
          .argument_separator = "\n"};
}

ToolCallForm llama3() {
  return {.call = call_of(R"({"name": ")", R"(", "parameters": )", "}"), .takes_several = false};
}

ToolCallForm mistral_nemo() {
  auto form = list_of("[TOOL_CALLS][", "[TOOL_CALLS]", "]");
  form.call = {text_part(R"({"name": ")"),
               kName,
               text_part(R"(", "arguments": )"),
               kArguments,
               text_part(R"(, "id": ")"),
               {CallPart::Kind::id},
               text_part("\"}")};
  form.id_length = 9;
  return form;
}

ToolCallForm mistral_small_3_2() {
  return {.call = {text_part("[TOOL_CALLS]"),
                   kName,
                   text_part("[CALL_ID]"),
                   {CallPart::Kind::id},
                   text_part("[ARGS]"),
                   kArguments},
          .trigger = "[TOOL_CALLS]",
          .id_length = 9};
}

ToolCallForm devstral() {
  return {.call = call_of("[TOOL_CALLS]", "[ARGS]", ""), .trigger = "[TOOL_CALLS]"};
}

ToolCallForm deepseek(const std::string& before_name, const std::string& before_arguments,
                      const std::string& after_arguments, const std::string& separator) {
  return {
      .section_begin = "<｜tool▁calls▁begin｜>",
      .separator = separator,
      .section_end = "<｜tool▁calls▁end｜>",
      .call = call_of("<｜tool▁call▁begin｜>" + before_name, before_arguments, after_arguments + "<｜tool▁call▁end｜>"),
      .trigger = "<｜tool▁calls▁begin｜>"};
}

ToolCallForm deepseek_r1() {
  return deepseek("function<｜tool▁sep｜>", "\n```json\n", "\n```", "\n");
}

/// <DSMLinvoke name="f">\n<DSMLparameter name="k" string="true">v</DSMLparameter>\n</DSMLinvoke>
ToolCallForm deepseek_v3_2(const std::string& section) {
  return {.section_begin = "<｜DSML｜" + section + ">\n",
          .separator = "\n",
          .section_end = "\n</｜DSML｜" + section + ">",
          .call = call_of("<｜DSML｜invoke name=\"", "\">\n", "\n</｜DSML｜invoke>"),
          .trigger = "<｜DSML｜" + section + ">",
          .arguments = ArgumentForm::tagged,
          .key_begin = "<｜DSML｜parameter name=\"",
          .key_end = "\" string=\"true\">",
          .json_key_end = "\" string=\"false\">",
          .value_end = "</｜DSML｜parameter>",
          .argument_separator = "\n"};
}

ToolCallForm kimi_k2() {
  return {.section_begin = "<|tool_calls_section_begin|>",
          .section_end = "<|tool_calls_section_end|>",
          .call = {text_part("<|tool_call_begin|>functions."),
                   kName,
                   text_part(":"),
                   {CallPart::Kind::index},
                   text_part("<|tool_call_argument_begin|>"),
                   kArguments,
                   text_part("<|tool_call_end|>")},
          .trigger = "<|tool_calls_section_begin|>"};
}

ToolCallForm lfm2() {
  return {.section_begin = "<|tool_call_start|>[",
          .separator = ", ",
          .section_end = "]<|tool_call_end|>",
          .call = call_of("", "(", ")"),
          .trigger = "<|tool_call_start|>",
          .arguments = ArgumentForm::python};
}

ToolCallForm command_r_plus() {
  return {.section_begin = "Action:\n```json\n[\n    ",
          .separator = ",\n    ",
          .section_end = "\n]```",
          .call = call_of("{\n        \"tool_name\": \"", "\",\n        \"parameters\": ", "\n    }")};
}

ToolCallForm command_r7b() {
  return {.section_begin = "<|START_ACTION|>[\n    ",
          .separator = ",\n    ",
          .section_end = "\n]<|END_ACTION|>",
          .call = {text_part(R"({"tool_call_id": ")"),
                   {CallPart::Kind::index},
                   text_part(R"(", "tool_name": ")"),
                   kName,
                   text_part(R"(", "parameters": )"),
                   kArguments,
                   text_part("}")},
          .trigger = "<|START_ACTION|>"};
}

ToolCallForm functionary_3_1() {
  return {.call = call_of("<function=", ">", "</function>"), .trigger = "<function="};
}

ToolCallForm apertus() {
  auto form = list_of("<|tools_prefix|>[", "<|tools_prefix|>", "]<|tools_suffix|>");
  form.call = call_of("{\"", "\": ", "}");
  return form;
}

ToolCallForm gigachat() {
  return {.call = call_of(R"(<|function_call|>{"name": ")", R"(", "arguments": )", "}"),
          .trigger = "<|function_call|>",
          .takes_several = false};
}

ToolCallForm minicpm5() {
  return {.separator = "\n",
          .call = call_of("<function name=\"", "\">", "</function>"),
          .trigger = "<function name=\"",
          .arguments = ArgumentForm::tagged,
          .key_begin = "<param name=\"",
          .key_end = "\">",
          .value_end = "</param>"};
}

ToolCallForm hy3() {
  auto form = glm("\n");
  form.section_begin = "<tool_calls:opensource>\n";
  form.section_end = "\n</tool_calls:opensource>";
  form.call = call_of("<tool_call:opensource>", "<tool_sep:opensource>\n", "\n</tool_call:opensource>");
  form.trigger = "<tool_calls:opensource>";
  form.key_begin = "<arg_key:opensource>";
  form.key_end = "</arg_key:opensource>\n<arg_value:opensource>";
  form.value_end = "</arg_value:opensource>";
  return form;
}

ToolCallForm ling() {
  auto form = glm("\n");
  form.argument_separator = "";
  return form;
}

AnswerDialect harmony() {
  return {
      .glue = "<|start|>assistant",
      .thinking = Marks{"<|channel|>analysis<|message|>", "<|end|>"},
      .content = {{"<|channel|>final<|message|>", ""}, {"<|channel|>commentary<|message|>", "<|end|>"}},
      .calls = ToolCallForm{.call = call_of("<|channel|>commentary to=functions.", " <|constrain|>json<|message|>", ""),
                            .trigger = "<|channel|>commentary to=functions.",
                            .takes_several = false}};
}

struct Expected {
  const char* name;
  AnswerDialect dialect;
};

AnswerDialect says(std::optional<Marks> thinking, std::optional<ToolCallForm> calls) {
  return {.thinking = std::move(thinking), .calls = std::move(calls)};
}

std::vector<Expected> expectations() {
  const std::optional<Marks> no_thinking;
  const std::optional<ToolCallForm> no_calls;
  return {
      {"Apertus-8B-Instruct", says(Marks{"<|inner_prefix|>", "<|inner_suffix|>"}, apertus())},
      {"Apriel-1.6-15b-Thinker-fixed", says(Marks{"Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]"},
                                            list_of("<tool_calls>[", "<tool_calls>", "]</tool_calls>"))},
      {"Bielik-11B-v3.0-Instruct", says(kThink, hermes())},
      {"ByteDance-Seed-OSS", says(Marks{"<seed:think>", "</seed:think>"}, seed_oss())},
      {"CohereForAI-c4ai-command-r-plus-tool_use", says(no_thinking, command_r_plus())},
      {"CohereForAI-c4ai-command-r7b-12-2024-tool_use",
       {.thinking = Marks{"<|START_THINKING|>", "<|END_THINKING|>"},
        .content = {{"<|START_RESPONSE|>", "<|END_RESPONSE|>"}},
        .calls = command_r7b()}},
      {"GLM-4.6", says(kThink, glm("\n"))},
      {"GLM-4.7-Flash", says(kThink, glm(""))},
      {"GigaChat3.1-10B-A1.8B", says(no_thinking, gigachat())},
      {"HuggingFaceTB-SmolLM3-3B", says(kThink, no_calls)},  // leaves calls out
      {"Kimi-K2-Instruct", says(no_thinking, kimi_k2())},
      {"Kimi-K2-Thinking", says(kThink, kimi_k2())},
      {"LFM2-8B-A1B", says(no_thinking, lfm2())},
      {"LFM2.5-8B-A1B", says(kThink, lfm2())},
      {"LFM2.5-Instruct", says(no_thinking, lfm2())},  // leaves calls out
      {"MiMo-VL", says(no_thinking, hermes())},
      {"MiniMax-M2", says(kThink, minimax_m2())},
      {"MiniMax-M3", says(Marks{"<mm:think>", "</mm:think>"}, no_calls)},  // tags of the keys' names
      {"Mistral-Small-3.2-24B-Instruct-2506", says(no_thinking, mistral_small_3_2())},
      {"NVIDIA-Nemotron-3-Nano-30B-A3B-BF16", says(kThink, qwen3_coder())},
      {"NousResearch-Hermes-2-Pro-Llama-3-8B-tool_use", says(no_thinking, hermes())},
      {"NousResearch-Hermes-3-Llama-3.1-8B-tool_use", says(no_thinking, hermes())},
      {"Qwen-QwQ-32B", says(kThink, hermes())},
      {"Qwen-Qwen2.5-7B-Instruct", says(no_thinking, hermes())},
      {"Qwen3-Coder", says(no_thinking, qwen3_coder())},
      {"Qwen3.5-4B", says(kThink, qwen3_coder())},
      {"Reka-Edge", says(kThink, hermes(""))},
      {"Spark2.5", says(kThink, glm(""))},
      {"deepseek-ai-DeepSeek-R1-Distill-Llama-8B", says(kThink, deepseek_r1())},
      {"deepseek-ai-DeepSeek-R1-Distill-Qwen-32B", says(kThink, deepseek_r1())},
      {"deepseek-ai-DeepSeek-V3.1", says(kThink, deepseek("", "<｜tool▁sep｜>", "", ""))},
      {"deepseek-ai-DeepSeek-V3.2", says(kThink, deepseek_v3_2("function_calls"))},
      {"deepseek-ai-DeepSeek-V4", says(kThink, deepseek_v3_2("tool_calls"))},
      {"fireworks-ai-llama-3-firefunction-v2", says(no_thinking, list_of("functools[", "functools[", "]"))},
      {"google-gemma-2-2b-it", says(no_thinking, no_calls)},
      {"google-gemma-4-31B-it-interleaved", says(Marks{"<|channel>thought", "<channel|>"}, no_calls)},  // own quotes
      {"ibm-granite-granite-3.3-2B-Instruct", says(kThink, list_of("<|tool_call|>[", "<|tool_call|>", "]"))},
      {"ibm-granite-granite-4.0", says(no_thinking, hermes())},
      {"ibm-granite-granite-4.1", says(no_thinking, hermes())},
      {"inclusionai-ling-3.0-flash", says(kThink, ling())},
      {"meetkai-functionary-medium-v3.1", says(no_thinking, functionary_3_1())},
      {"meetkai-functionary-medium-v3.2", says(no_thinking, no_calls)},  // calls begin with the name itself
      {"meta-llama-Llama-3.1-8B-Instruct", says(no_thinking, llama3())},
      {"meta-llama-Llama-3.3-70B-Instruct", says(no_thinking, llama3())},
      {"microsoft-Phi-3.5-mini-instruct", says(no_thinking, no_calls)},
      {"mistralai-Ministral-3-14B-Reasoning-2512", says(Marks{"[THINK]", "[/THINK]"}, devstral())},
      {"mistralai-Mistral-Nemo-Instruct-2407", says(no_thinking, mistral_nemo())},
      {"muse-glimmer",  // names the tool twice
       {.glue = "<|start|>assistant",
        .thinking = Marks{"to=self<|message|>", "<|eom|>"},
        .content = {{"to=user<|message|>", ""}},
        .calls = {}}},
      {"openai-gpt-oss-120b", harmony()},
      {"openbmb-MiniCPM5-1B", says(kThink, minicpm5())},
      {"poolside-Laguna-S-2.1", says(kThink, glm(""))},
      {"poolside-Laguna-XS.2", says(kThink, glm("\n"))},
      {"tencent-Hy3", says(Marks{"<think:opensource>", "</think:opensource>"}, hy3())},
      {"unsloth-mistral-Devstral-Small-2507", says(no_thinking, devstral())},
  };
}

TEST(TemplateDialects, AreThoseOfTheirModels) {
  if (!std::filesystem::exists(testing::kTemplatesDir)) GTEST_SKIP() << "no shared templates";
  for (const auto& [name, dialect] : expectations()) {
    const auto source = testing::read_file(testing::kTemplatesDir / (std::string(name) + ".jinja"));
    ASSERT_FALSE(source.empty()) << name;
    const auto prompts = ChatPrompts::parse(source, {{"bos_token", "<s>"}, {"eos_token", "</s>"}});
    ASSERT_TRUE(prompts) << name;
    EXPECT_EQ(io::to_text(derive_dialect(*prompts)), io::to_text(dialect)) << name;
  }
}

// What a file may hold, and what is made out, are the same.
TEST(TemplateDialects, CanBeWrittenToFiles) {
  if (!std::filesystem::exists(testing::kTemplatesDir)) GTEST_SKIP() << "no shared templates";
  for (const auto& file : std::filesystem::directory_iterator(testing::kTemplatesDir)) {
    const auto prompts = ChatPrompts::parse(testing::read_file(file.path()), {{"eos_token", "</s>"}});
    ASSERT_TRUE(prompts) << file.path();
    const auto dialect = derive_dialect(*prompts);
    const auto read = io::parse_dialect(io::to_text(dialect), file.path());
    ASSERT_TRUE(read) << read.error().message;
    EXPECT_EQ(*read, dialect) << file.path();
  }
}

}  // namespace
}  // namespace pagoda::chat
