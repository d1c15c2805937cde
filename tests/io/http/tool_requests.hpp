#pragma once

#include <string>

#include "io/http/openai/chat.hpp"
#include "tests/io/http/writer_driver.hpp"

/// A model that thinks and calls tools, and requests with tools.
namespace pagoda::http {

/// As Qwen3 writes.
inline const chat::ChatPrompts& tool_prompts() {
  static const auto parsed = chat::ChatPrompts::parse(
      R"({%- if tools %}# Tools{% for t in tools %} {{ t | tojson }}{% endfor %}
{% endif %}{% for m in messages %}<|im_start|>{{ m.role }}
{% if m.role == 'assistant' and m.reasoning_content %}<think>
{{ m.reasoning_content }}
</think>

{% endif %}{{ m.content }}{% if m.tool_calls %}{% for c in m.tool_calls %}
<tool_call>
{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}
</tool_call>{% endfor %}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% if enable_thinking is defined and not enable_thinking %}<think>

</think>

{% endif %}{% endif %})",
      {{"eos_token", "<|im_end|>"}});
  return *parsed;
}

inline constexpr const char* kParameters =
    R"({"type":"object","properties":{"city":{"type":"string"}},"required":["city"]})";

inline std::string openai_tools(const std::string& more = "") {
  return R"("tools":[{"type":"function","function":{"name":"weather","description":"Looks out.","parameters":)" +
         std::string(kParameters) + R"(}},{"type":"function","function":{"name":"now"}}])" + more;
}

inline wire::Json body_of(const std::string& fields) {
  return wire::Json::parse("{" + fields + "}");
}

inline const std::string kMessages = R"("model":"m","messages":[{"role":"user","content":"Hi"}])";

inline ParsedJob chat_job(const std::string& fields) {
  return openai::parse_chat(body_of(kMessages + "," + fields), tool_prompts(), {"chatcmpl-1", "m", 7});
}

}  // namespace pagoda::http
