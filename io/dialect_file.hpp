#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "io/chat/answer_dialect.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// How a model writes its answers, from a file of the operator's, for models whose chat template does not show it.
///
///   {"glue": "", "thinking": {"begin": "<think>", "end": "</think>"}, "content": [{"begin": "...", "end": "..."}],
///    "calls": {"section_begin": "", "separator": "\n", "section_end": "",
///              "call": [{"text": "<tool_call>\n{\"name\": \""}, "name", {"text": "\", \"arguments\": "}, "arguments",
///                       {"text": "}\n</tool_call>"}],
///              "trigger": "<tool_call>", "arguments": "json"}}
///
/// Any field may be absent, but for begins and ends, `call`, and with "arguments": "tagged" key_begin, key_end and
/// value_end. Errors (bad_config) name the file and the field.
Result<chat::AnswerDialect> load_dialect(const std::filesystem::path& path);
/// The same of a text, which `name` stands for in messages.
Result<chat::AnswerDialect> parse_dialect(std::string_view text, const std::string& name);
/// A text that gives this dialect when it is parsed.
std::string to_text(const chat::AnswerDialect& dialect);

}  // namespace pagoda::io
