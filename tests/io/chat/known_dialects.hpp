#pragma once

#include <ostream>
#include <string>
#include <utility>
#include <vector>

#include "io/chat/answer_dialect.hpp"

/// How models known to the public write their answers.
namespace pagoda::chat::testing {

struct KnownDialect {
  std::string name;
  AnswerDialect dialect;
};
inline void PrintTo(const KnownDialect& known, std::ostream* out) {
  *out << known.name;
}

inline CallPart text_part(std::string text) {
  return {CallPart::Kind::text, std::move(text)};
}
inline const CallPart kName{CallPart::Kind::name};
inline const CallPart kId{CallPart::Kind::id};
inline const CallPart kIndex{CallPart::Kind::index};
inline const CallPart kArguments{CallPart::Kind::arguments};

/// Calls that stand by themselves, as far as the call says.
inline ToolCallForm call_form(std::string trigger, std::vector<CallPart> call, std::string separator = "\n") {
  ToolCallForm form;
  form.trigger = std::move(trigger);
  form.call = std::move(call);
  form.separator = std::move(separator);
  return form;
}

inline ToolCallForm section_form(std::string trigger, Marks section, std::vector<CallPart> call,
                                 std::string separator) {
  ToolCallForm form = call_form(std::move(trigger), std::move(call), std::move(separator));
  form.section_begin = std::move(section.begin);
  form.section_end = std::move(section.end);
  return form;
}

inline ToolCallForm tagged(ToolCallForm form, std::string key_begin, std::string key_end, std::string value_end) {
  form.arguments = ArgumentForm::tagged;
  form.key_begin = std::move(key_begin);
  form.key_end = std::move(key_end);
  form.value_end = std::move(value_end);
  return form;
}

inline ToolCallForm python(ToolCallForm form) {
  form.arguments = ArgumentForm::python;
  return form;
}

inline AnswerDialect with_calls(ToolCallForm form) {
  AnswerDialect dialect;
  dialect.calls = std::move(form);
  return dialect;
}

inline AnswerDialect thinks(AnswerDialect dialect, Marks marks = {"<think>\n", "\n</think>\n\n"}) {
  dialect.thinking = std::move(marks);
  return dialect;
}

inline AnswerDialect hermes() {
  return with_calls(
      call_form("<tool_call>", {text_part("<tool_call>\n{\"name\": \""), kName, text_part("\", \"arguments\": "),
                                kArguments, text_part("}\n</tool_call>")}));
}

inline AnswerDialect qwen3_coder() {
  return with_calls(tagged(call_form("<tool_call>", {text_part("<tool_call>\n<function="), kName, text_part(">\n"),
                                                     kArguments, text_part("</function>\n</tool_call>")}),
                           "<parameter=", ">\n", "\n</parameter>\n"));
}

inline AnswerDialect glm_4_6() {
  return thinks(with_calls(tagged(call_form("<tool_call>", {text_part("<tool_call>"), kName, text_part("\n"),
                                                            kArguments, text_part("</tool_call>")}),
                                  "<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>\n")),
                {"<think>", "</think>\n"});
}

inline AnswerDialect minimax_m2() {
  return thinks(with_calls(tagged(
      section_form("<minimax:tool_call>", {"<minimax:tool_call>\n", "\n</minimax:tool_call>"},
                   {text_part("<invoke name=\""), kName, text_part("\">\n"), kArguments, text_part("</invoke>")}, "\n"),
      "<parameter name=\"", "\">", "</parameter>\n")));
}

inline AnswerDialect seed_oss() {
  return thinks(with_calls(tagged(
                    call_form("<seed:tool_call>", {text_part("<seed:tool_call>\n<function="), kName, text_part(">\n"),
                                                   kArguments, text_part("</function>\n</seed:tool_call>")}),
                    "<parameter=", ">", "</parameter>\n")),
                {"<seed:think>", "</seed:think>"});
}

inline AnswerDialect llama_3_1() {
  auto form =
      call_form("", {text_part("{\"name\": \""), kName, text_part("\", \"parameters\": "), kArguments, text_part("}")});
  form.takes_several = false;
  return with_calls(form);
}

inline AnswerDialect llama_3_2() {
  return with_calls(python(section_form("", {"[", "]"}, {kName, text_part("("), kArguments, text_part(")")}, ", ")));
}

inline AnswerDialect lfm2() {
  return with_calls(python(section_form("<|tool_call_start|>", {"<|tool_call_start|>[", "]<|tool_call_end|>"},
                                        {kName, text_part("("), kArguments, text_part(")")}, ", ")));
}

inline AnswerDialect mistral_v3() {
  auto form = section_form("[TOOL_CALLS]", {"[TOOL_CALLS][", "]"},
                           {text_part("{\"name\": \""), kName, text_part("\", \"arguments\": "), kArguments,
                            text_part(", \"id\": \""), kId, text_part("\"}")},
                           ", ");
  form.id_length = 9;
  return with_calls(form);
}

inline AnswerDialect mistral_v11() {
  auto form =
      call_form("[TOOL_CALLS]",
                {text_part("[TOOL_CALLS]"), kName, text_part("[CALL_ID]"), kId, text_part("[ARGS]"), kArguments}, "");
  form.id_length = 9;
  return with_calls(form);
}

inline AnswerDialect mistral_v13() {
  return thinks(
      with_calls(call_form("[TOOL_CALLS]", {text_part("[TOOL_CALLS]"), kName, text_part("[ARGS]"), kArguments}, "")),
      {"[THINK]", "[/THINK]"});
}

inline AnswerDialect deepseek_r1() {
  return thinks(with_calls(section_form("<｜tool▁calls▁begin｜>", {"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"},
                                        {text_part("<｜tool▁call▁begin｜>function<｜tool▁sep｜>"), kName,
                                         text_part("\n```json\n"), kArguments, text_part("\n```<｜tool▁call▁end｜>")},
                                        "\n")));
}

inline AnswerDialect deepseek_v3_1() {
  return thinks(with_calls(section_form("<｜tool▁calls▁begin｜>", {"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"},
                                        {text_part("<｜tool▁call▁begin｜>"), kName, text_part("<｜tool▁sep｜>"),
                                         kArguments, text_part("<｜tool▁call▁end｜>")},
                                        "")),
                {"<think>", "</think>"});
}

/// What stands behind a key says what the value is.
inline AnswerDialect deepseek_v3_2() {
  auto form =
      tagged(section_form("<｜DSML｜function_calls>", {"<｜DSML｜function_calls>\n", "\n</｜DSML｜function_calls>"},
                          {text_part("<｜DSML｜invoke name=\""), kName, text_part("\">\n"), kArguments,
                           text_part("\n</｜DSML｜invoke>")},
                          "\n"),
             "<｜DSML｜parameter name=\"", "\" string=\"true\">", "</｜DSML｜parameter>");
  form.json_key_end = "\" string=\"false\">";
  form.argument_separator = "\n";
  return thinks(with_calls(form), {"<think>", "</think>"});
}

inline AnswerDialect harmony() {
  auto form = call_form(
      "<|channel|>commentary to=functions.",
      {text_part("<|channel|>commentary to=functions."), kName, text_part(" <|constrain|>json<|message|>"), kArguments},
      "");
  form.takes_several = false;
  AnswerDialect dialect = thinks(with_calls(form), {"<|channel|>analysis<|message|>", "<|end|>"});
  dialect.glue = "<|start|>assistant";
  dialect.content = {{"<|channel|>final<|message|>", ""}, {"<|channel|>commentary<|message|>", "<|end|>"}};
  return dialect;
}

inline std::vector<CallPart> json_call(std::string arguments_key = "arguments") {
  return {text_part("{\"name\": \""), kName, text_part("\", \"" + std::move(arguments_key) + "\": "), kArguments,
          text_part("}")};
}

inline AnswerDialect granite() {
  return thinks(with_calls(section_form("<|tool_call|>", {"<|tool_call|>[", "]"}, json_call(), ", ")),
                {"<think>", "</think>"});
}

inline AnswerDialect phi_4_mini() {
  return with_calls(section_form("<|tool_call|>", {"<|tool_call|>[", "]<|/tool_call|>"}, json_call(), ", "));
}

inline AnswerDialect command_r7b() {
  AnswerDialect dialect =
      thinks(with_calls(section_form("<|START_ACTION|>", {"<|START_ACTION|>[\n    ", "\n]<|END_ACTION|>"},
                                     {text_part("{\"tool_call_id\": \""), kIndex, text_part("\", \"tool_name\": \""),
                                      kName, text_part("\", \"parameters\": "), kArguments, text_part("}")},
                                     ",\n    ")),
             {"<|START_THINKING|>", "<|END_THINKING|>"});
  dialect.content = {{"<|START_RESPONSE|>", "<|END_RESPONSE|>"}};
  return dialect;
}

inline AnswerDialect kimi_k2() {
  return with_calls(
      section_form("<|tool_calls_section_begin|>", {"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"},
                   {text_part("<|tool_call_begin|>functions."), kName, text_part(":"), kIndex,
                    text_part("<|tool_call_argument_begin|>"), kArguments, text_part("<|tool_call_end|>")},
                   ""));
}

inline AnswerDialect functionary_v3_1() {
  return with_calls(call_form(
      "<function=", {text_part("<function="), kName, text_part(">"), kArguments, text_part("</function>")}, ""));
}

/// Calls in bare JSON, one behind the other.
inline AnswerDialect several_in_json() {
  return with_calls(call_form("", json_call("parameters"), "; "));
}

inline std::vector<KnownDialect> known_dialects() {
  return {{"hermes", hermes()},
          {"qwen3", thinks(hermes())},
          {"qwen3_coder", qwen3_coder()},
          {"glm_4_6", glm_4_6()},
          {"minimax_m2", minimax_m2()},
          {"seed_oss", seed_oss()},
          {"llama_3_1", llama_3_1()},
          {"llama_3_2", llama_3_2()},
          {"lfm2", lfm2()},
          {"mistral_v3", mistral_v3()},
          {"mistral_v11", mistral_v11()},
          {"mistral_v13", mistral_v13()},
          {"deepseek_r1", deepseek_r1()},
          {"deepseek_v3_1", deepseek_v3_1()},
          {"deepseek_v3_2", deepseek_v3_2()},
          {"harmony", harmony()},
          {"granite", granite()},
          {"phi_4_mini", phi_4_mini()},
          {"command_r7b", command_r7b()},
          {"smollm3", thinks(hermes(), {"<think>\n", "</think>\n"})},
          {"kimi_k2", kimi_k2()},
          {"functionary_v3_1", functionary_v3_1()},
          {"several_in_json", several_in_json()}};
}

}  // namespace pagoda::chat::testing
