#include "io/chat/known_dialects.hpp"

#include <string>
#include <vector>

namespace pagoda::chat {
namespace {

CallPart literal(const char* words) {
  return {CallPart::Kind::text, words};
}

constexpr auto kName = CallPart::Kind::name;
constexpr auto kIndex = CallPart::Kind::index;
constexpr auto kArguments = CallPart::Kind::arguments;

AnswerDialect harmony() {
  AnswerDialect dialect;
  dialect.glue = "<|start|>assistant";
  dialect.thinking = Marks{"<|channel|>analysis<|message|>", "<|end|>"};
  dialect.content = {{"<|channel|>final<|message|>", ""}, {"<|channel|>commentary<|message|>", "<|end|>"}};
  dialect.calls = ToolCallForm{
      .call = {literal("<|channel|>commentary to=functions."),
               {kName},
               literal(" <|constrain|>json<|message|>"),
               {kArguments}},
      .trigger = "<|channel|>commentary to=functions.",
      .takes_several = false,
  };
  return dialect;
}

ToolCallForm kimi_k2() {
  return {
      .section_begin = "<|tool_calls_section_begin|>",
      .section_end = "<|tool_calls_section_end|>",
      .call = {literal("<|tool_call_begin|>functions."),
               {kName},
               literal(":"),
               {kIndex},
               literal("<|tool_call_argument_begin|>"),
               {kArguments},
               literal("<|tool_call_end|>")},
      .trigger = "<|tool_calls_section_begin|>",
  };
}

ToolCallForm lfm2() {
  return {
      .section_begin = "<|tool_call_start|>[",
      .separator = ", ",
      .section_end = "]<|tool_call_end|>",
      .call = {{kName}, literal("("), {kArguments}, literal(")")},
      .trigger = "<|tool_call_start|>",
      .arguments = ArgumentForm::python,
  };
}

ToolCallForm list_of_objects(const char* begin, const char* end, const char* trigger) {
  return {
      .section_begin = begin,
      .separator = ", ",
      .section_end = end,
      .call = {literal(R"({"name": ")"), {kName}, literal(R"(", "arguments": )"), {kArguments}, literal("}")},
      .trigger = trigger,
  };
}

ToolCallForm deepseek_r1() {
  return {
      .section_begin = "<｜tool▁calls▁begin｜>",
      .separator = "\n",
      .section_end = "<｜tool▁calls▁end｜>",
      .call = {literal("<｜tool▁call▁begin｜>function<｜tool▁sep｜>"),
               {kName},
               literal("\n```json\n"),
               {kArguments},
               literal("\n```<｜tool▁call▁end｜>")},
      .trigger = "<｜tool▁calls▁begin｜>",
  };
}

/// A call is NAME\n{...} and ends the turn. Contents begin with a line end.
ToolCallForm glm_4() {
  return {.call = {{kName}, literal("\n"), {kArguments}}, .takes_several = false};
}

}  // namespace

std::optional<AnswerDialect> known_dialect(const ProbeRenderer& renderer) {
  const bool is_harmony =
      renderer.names("<|channel|>") && renderer.names("<|message|>") && renderer.names("<|start|>assistant");
  if (is_harmony) return harmony();
  // vLLM's template for Phi-4-mini, which describes one form to the model and shows calls in another form.
  if (renderer.names("prefix function calls with functools marker"))
    return AnswerDialect{.calls = list_of_objects("functools[", "]", "functools[")};
  return std::nullopt;
}

std::optional<ToolCallForm> known_calls(const ProbeRenderer& renderer) {
  if (renderer.names("<|tool_calls_section_begin|>") && renderer.names("<|tool_call_argument_begin|>"))
    return kimi_k2();
  if (renderer.names("<|tool_list_start|>")) return lfm2();
  // LFM2.5, whose template shows neither calls nor the marks of tools.
  if (renderer.names("List of tools: [") && renderer.names("keep_past_thinking")) return lfm2();
  if (renderer.names("<|tool_call|> followed by a JSON list"))
    return list_of_objects("<|tool_call|>[", "]", "<|tool_call|>");
  if (renderer.names("<|tool|>") && renderer.names("<|/tool|>"))  // Phi-4-mini
    return list_of_objects("<|tool_call|>[", "]<|/tool_call|>", "<|tool_call|>");
  // SmolLM3's template describes calls in Hermes' form, and leaves calls out.
  if (renderer.names("<function-name>") && renderer.names("<args-json-object>}") && renderer.names("</tool_call>"))
    return hermes_calls();
  if (renderer.names("<｜tool▁calls▁begin｜>") && renderer.names("```json")) return deepseek_r1();
  // GLM-4 9B and 0414; later models have marks.
  if (renderer.names("[gMASK]") && renderer.names("<|observation|>") && !renderer.names("<tool_call>")) return glm_4();
  return std::nullopt;
}

ToolCallForm hermes_calls() {
  return {
      .separator = "\n",
      .call = {literal("<tool_call>\n{\"name\": \""),
               {kName},
               literal(R"(", "arguments": )"),
               {kArguments},
               literal("}\n</tool_call>")},
      .trigger = "<tool_call>",
  };
}

}  // namespace pagoda::chat
