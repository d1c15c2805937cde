// libFuzzer entry for the bodies of the HTTP APIs: any bytes are either a job, whose requests are whole, or a refusal
// with a status of the client's own, which can be written in the shape of each API.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>

#include "engine/grammar/grammar_rules.hpp"
#include "io/chat/chat_prompts.hpp"
#include "io/http/anthropic/messages.hpp"
#include "io/http/error_answer.hpp"
#include "io/http/ollama/chat.hpp"
#include "io/http/openai/chat.hpp"
#include "io/http/openai/completions.hpp"
#include "io/http/openai/responses.hpp"
#include "io/wire/json_reader.hpp"

namespace {

using namespace pagoda;
using namespace pagoda::http;

constexpr std::size_t kMaxDepth = 64;
constexpr const char* kTemplate =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}{% for c in m.tool_calls "
    "%}\n<tool_call>{\"name\": "
    "\"{{ c.function.name }}\", \"arguments\": {{ c.function.arguments | tojson }}}</tool_call>{% endfor %}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

void check_refusal(const ErrorAnswer& error) {
  if (error.status < 400 || error.status >= 500 || error.message.empty()) std::abort();
  for (const auto style : {ErrorStyle::openai, ErrorStyle::anthropic, ErrorStyle::ollama}) {
    if (!nlohmann::json::accept(error_body(style, error))) std::abort();
  }
}

void check(const ParsedJob& job) {
  if (!job) return check_refusal(job.error());
  if (job->requests.empty() || !job->writer) std::abort();
  for (const auto& request : job->requests) {
    if (request.prompt.has_value() == request.prompt_token_ids.has_value()) std::abort();
    for (const auto& range : request.prompt_literals) {
      if (range.end < range.begin || range.end > request.prompt->size()) std::abort();
    }
    if (request.sampling.structured_outputs)
      static_cast<void>(grammar::grammar_rules(*request.sampling.structured_outputs));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto prompts = chat::ChatPrompts::parse(kTemplate, {});
  const auto body = wire::read_json({reinterpret_cast<const char*>(data), size}, kMaxDepth);
  if (!body) {
    check_refusal(error_answer(body.error()));
    return 0;
  }
  if (!body->is_object()) return 0;
  check(openai::parse_completion(*body, {}));
  check(openai::parse_chat(*body, *prompts, {}));
  check(anthropic::parse_messages(*body, *prompts, {}));
  openai::ResponseStore store;
  check(openai::parse_response(*body, *prompts, store, {}, {}));
  const auto turn = ollama::parse_chat(*body, *prompts, "m");
  if (!turn) check_refusal(turn.error());
  return 0;
}
