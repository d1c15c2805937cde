#include "io/http/ollama/generate.hpp"

#include <utility>

namespace pagoda::http::ollama {

ParsedTurn parse_generate(const wire::Json& body, const chat::ChatPrompts* prompts, std::string model) {
  wire::FieldReader fields(body, wire::FieldReader::Nulls::absent);
  Turn turn(AnswerKind::generate, std::move(model));
  std::string prompt;
  std::string system;
  bool raw = false;
  fields.skip("model");
  fields.skip("name");
  read_common(fields, turn);
  read_think(fields, prompts, turn);
  fields.read("prompt", prompt);
  fields.read("system", system);
  fields.read("raw", raw);
  refuse_unless_empty(fields, "template", "the server's template applies; to send a formatted prompt, set raw to true");
  refuse_unless_empty(fields, "context",
                      "send the whole prompt, or use /api/chat; the server caches the beginnings of prompts");
  refuse_unless_empty(fields, "tools", "use /api/chat");
  refuse_unless_empty(fields, "suffix", "this server does not fill in text before a suffix");
  if (!system.empty() && raw) fields.refuse("system", "system and raw exclude each other");
  if (!system.empty() && !raw && prompts == nullptr) {
    fields.refuse("system", "system needs a chat template, and this model has none");
  }
  if (auto status = fields.finish(); !status) return tl::unexpected(error_answer(status.error()));
  if (prompt.empty()) return Loaded{loaded_answer(turn.answer, "load"), loaded_answer(turn.answer, "unload")};

  if (raw || prompts == nullptr) {
    turn.request.prompt = std::move(prompt);
    return make_job(std::move(turn), "prompt");
  }
  if (!system.empty()) turn.chat.messages.push_back({{"role", "system"}, {"content", system}});
  turn.chat.messages.push_back({{"role", "user"}, {"content", prompt}});
  turn.request.add_special_tokens = false;  // the template contains them
  auto reading = chat::prepare(*prompts, std::move(turn.chat), {}, turn.request);
  if (!reading) return tl::unexpected(error_answer(reading.error()));
  turn.answer.reading = std::move(*reading);
  return make_job(std::move(turn), "prompt");
}

}  // namespace pagoda::http::ollama
