#pragma once

#include <filesystem>
#include <string>
#include <string_view>

#include "io/chat/answer_dialect.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// Reads from the operator's file how a model writes its answers, for models whose chat template does not show it.
///
///   {"glue": "", "thinking": {"begin": "<think>", "end": "</think>"}, "content": [{"begin": "...", "end": "..."}],
///    "calls": {"section_begin": "", "separator": "\n", "section_end": "",
///              "call": [{"text": "<tool_call>\n{\"name\": \""}, "name", {"text": "\", \"arguments\": "}, "arguments",
///                       {"text": "}\n</tool_call>"}],
///              "trigger": "<tool_call>", "arguments": "json"}}
///
/// All fields are optional except `begin` and `end`, `call`, and, with "arguments": "tagged", key_begin, key_end and
/// value_end. Errors (bad_config) name the file and the field.
Result<chat::AnswerDialect> load_dialect(const std::filesystem::path& path);
/// Like load_dialect, for a text; `name` names the text in messages.
Result<chat::AnswerDialect> parse_dialect(std::string_view text, const std::string& name);
/// Returns a text that parse_dialect turns into this dialect.
std::string to_text(const chat::AnswerDialect& dialect);

}  // namespace pagoda::io
