#include "apps/parser_names.hpp"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>

namespace pagoda::apps {
namespace {

/// A text that distinguishes the dialect of a parser from others. Both are compared without white space.
struct ParserMark {
  std::string_view names;  ///< names of parsers, with commas around each
  std::string_view mark;
};

constexpr std::array kCallMarks{
    ParserMark{",hermes,qwen,qwen25,longcat,", R"(<tool_call>{")"},
    ParserMark{",qwen3_coder,qwen3_xml,", "<function="},
    ParserMark{",llama3_json,llama4_json,", R"({"name":")"},
    ParserMark{",pythonic,llama4_pythonic,", "["},
    ParserMark{",mistral,", "[TOOL_CALLS]"},
    ParserMark{",deepseek_v3,deepseek_v31,deepseek_r1,", "<｜tool▁calls▁begin｜>"},
    ParserMark{",deepseek_v32,", "<｜DSML｜"},
    ParserMark{",kimi_k2,", "<|tool_calls_section_begin|>"},
    ParserMark{",openai,", "<|channel|>commentaryto=functions."},
    ParserMark{",granite,", "<|tool_call|>"},
    ParserMark{",granite-20b-fc,", "<function_call>"},
    ParserMark{",glm45,glm47,", "<tool_call>"},
    ParserMark{",internlm,", "<|action_start|>"},
    ParserMark{",jamba,minimax,hunyuan_a13b,", "<tool_calls>"},
    ParserMark{",minimax_m2,", "<minimax:tool_call>"},
    ParserMark{",phi4_mini_json,", "functools["},
    ParserMark{",seed_oss,", "<seed:tool_call>"},
    ParserMark{",olmo3,", "<function_calls>"},
    ParserMark{",functiongemma,", "<start_function_call>"},
    ParserMark{",ernie45,", "<tool_call>"},
    ParserMark{",step3,", "<｜tool_calls_begin｜>"},
    ParserMark{",lfm2,", "<|tool_call_start|>"},
};

constexpr std::array kThinkingMarks{
    ParserMark{
        ",deepseek_r1,deepseek_v3,qwen3,glm45,hunyuan_a13b,step3,ernie45,minimax_m2,minimax_m2_append_think,olmo3,"
        "kimi_k2,holo2,",
        "</think>"},
    ParserMark{",mistral,", "[/THINK]"},
    ParserMark{",granite,", "Hereismyresponse:"},
    ParserMark{",openai_gptoss,GptOss,", "<|channel|>analysis<|message|>"},
    ParserMark{",seed_oss,", "</seed:think>"},
};

std::string without_spaces(std::string text) {
  std::erase_if(text, [](char c) { return c == ' ' || c == '\n' || c == '\t'; });
  return text;
}

/// Returns the mark of a parser, or nothing for an unknown parser.
template <std::size_t N>
std::optional<std::string_view> mark_of(const std::string& name, const std::array<ParserMark, N>& marks) {
  const auto found = std::ranges::find_if(
      marks, [&](const ParserMark& each) { return each.names.find("," + name + ",") != std::string_view::npos; });
  if (found == marks.end()) return std::nullopt;
  return found->mark;
}

std::string in_quotes(const std::string& text) {
  std::string out = "\"";
  for (const char c : text) out += c == '\n' ? std::string("\\n") : std::string(1, c);
  return out + "\"";
}

/// Returns the message. `what`: "tool calls" or "thoughts". `begin`: the beginning of these in the model's answers.
/// `marks`: the text that is compared.
std::string comparison(const std::string& flag, const char* what, bool has_template, const std::string& begin,
                       const std::string& marks, const std::optional<std::string_view>& mark) {
  const std::string may_differ = "; --answer-dialect FILE overrides the template";
  if (!has_template) return flag + " has no effect: the model has no chat template";
  if (marks.empty()) {
    return flag + " has no effect: the chat template shows no " + what + ", and answers are read without them" +
           may_differ;
  }
  const auto found = std::string("the chat template has ") + what + " with " + in_quotes(begin);
  if (!mark) return flag + " has no effect and is an unknown name: " + found + may_differ;
  if (without_spaces(marks).find(*mark) != std::string::npos) return flag + " has no effect: " + found + " already";
  return flag + " has no effect and is the name of another dialect: " + found +
         ", and answers are parsed in this dialect" + may_differ;
}

}  // namespace

std::string compare_tool_call_parser(const std::string& name, const chat::AnswerDialect* dialect) {
  const bool has_calls = dialect != nullptr && dialect->calls.has_value();
  auto begin = has_calls ? dialect->calls->begin() : std::string();
  const auto marks = has_calls && begin.empty() ? std::string("NAME") : begin;
  return comparison("--tool-call-parser " + name, "tool calls", dialect != nullptr, marks, marks,
                    mark_of(name, kCallMarks));
}

std::string compare_reasoning_parser(const std::string& name, const chat::AnswerDialect* dialect) {
  const bool has_thinking = dialect != nullptr && dialect->thinking.has_value();
  const auto& begin = has_thinking ? dialect->thinking->begin : std::string();
  const auto& end = has_thinking ? dialect->thinking->end : std::string();
  return comparison("--reasoning-parser " + name, "thoughts", dialect != nullptr, begin.empty() ? end : begin,
                    begin + end, mark_of(name, kThinkingMarks));
}

}  // namespace pagoda::apps
