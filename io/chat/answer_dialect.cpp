#include "io/chat/answer_dialect.hpp"

namespace pagoda::chat {

std::vector<std::string> ToolCallForm::begins(const std::vector<std::string>& tool_names) const {
  if (!begins_with_name()) return {begin()};
  const bool has_text = call.size() > 1 && call[1].kind == CallPart::Kind::text;
  std::vector<std::string> all;
  for (const std::string& name : tool_names) all.push_back(has_text ? name + call[1].text : name);
  return all;
}

std::vector<std::string> marks_of(const AnswerDialect& dialect) {
  std::vector<std::string> texts{dialect.glue};
  const auto add = [&texts](const Marks& marks) {
    texts.push_back(marks.begin);
    texts.push_back(marks.end);
  };
  if (dialect.thinking) add(*dialect.thinking);
  for (const Marks& marks : dialect.content) add(marks);
  if (dialect.calls) {
    const ToolCallForm& calls = *dialect.calls;
    for (const CallPart& part : calls.call) texts.push_back(part.text);
    for (const std::string* text : {&calls.section_begin, &calls.separator, &calls.section_end, &calls.key_begin,
                                    &calls.key_end, &calls.json_key_end, &calls.value_end, &calls.argument_separator}) {
      texts.push_back(*text);
    }
  }
  std::erase(texts, "");
  return texts;
}

}  // namespace pagoda::chat
