#include "io/http/ollama/chat.hpp"

#include <utility>

#include "io/wire/chat_fields.hpp"
#include "io/wire/tool_fields.hpp"

namespace pagoda::http::ollama {
namespace {

using wire::FieldReader;
using wire::Json;

/// Renames the member tool_name of a message to `name`, as the other APIs call it. A `name` beside it is replaced.
/// Takes time that is linear in the number of members.
void use_common_names(Json& message) {
  if (!message.is_object()) return;
  const auto found = message.find("tool_name");
  if (found == message.end()) return;
  Json name = std::move(*found);
  message.erase(found);
  message["name"] = std::move(name);
}

void read_messages(FieldReader& fields, chat::ChatInput& chat) {
  const auto* messages = fields.find("messages");
  if (messages == nullptr || (messages->is_array() && messages->empty())) return;
  Json renamed = *messages;
  if (renamed.is_array()) {
    for (auto& message : renamed) use_common_names(message);
  }
  auto read = wire::read_messages(renamed);
  if (!read) return fields.refuse(std::move(read.error()));
  chat.messages = std::move(*read);
}

/// Adds "does not support tools", the text that clients search for, to an error about tools.
Error with_ollama_wording(Error error, const std::string& model) {
  const bool is_of_tools = error.code == ErrorCode::unsupported && error.param == "tools";
  if (is_of_tools) error.message.insert(0, "\"" + model + "\" does not support tools: ");
  return error;
}

}  // namespace

ParsedTurn parse_chat(const Json& body, const chat::ChatPrompts& prompts, std::string model) {
  FieldReader fields(body, FieldReader::Nulls::absent);
  Turn turn(AnswerKind::chat, std::move(model));
  fields.skip("model");
  fields.skip("name");
  read_common(fields, turn);
  wire::read_tools(fields, turn.chat, turn.tools);
  read_think(fields, &prompts, turn);
  read_messages(fields, turn.chat);
  if (auto status = fields.finish(); !status) return tl::unexpected(error_answer(status.error()));
  if (!turn.chat.messages.empty()) {
    const auto& last = turn.chat.messages.back();
    const bool has_text = last["content"].is_string() && last["content"] != "";
    turn.chat.continue_final_message = last["role"] == "assistant" && has_text && !last.contains("tool_calls");
    turn.chat.add_generation_prompt = !turn.chat.continue_final_message;
  }
  if (turn.chat.messages.empty())
    return Loaded{loaded_answer(turn.answer, "load"), loaded_answer(turn.answer, "unload")};
  turn.request.add_special_tokens = false;  // the template contains them
  const bool names_tools = !turn.tools.tools.empty() && !turn.request.sampling.structured_outputs;
  auto reading = chat::prepare(prompts, std::move(turn.chat), turn.tools, turn.request);
  if (!reading) return tl::unexpected(error_answer(with_ollama_wording(std::move(reading.error()), turn.answer.model)));
  turn.answer.reading = std::move(*reading);
  GenerationJob job = make_job(std::move(turn), "messages");
  if (names_tools) job.names.insert(job.names.begin(), {"structured_outputs", "tools"});
  return job;
}

}  // namespace pagoda::http::ollama
