#include "io/serving/prompt_log.hpp"

#include <string>

#include <spdlog/spdlog.h>

#include "io/wire/json_writer.hpp"

namespace pagoda::serving {

void log_prompt(const GenerateRequest& request) {
  std::string line;
  wire::JsonWriter json(line);  // so that a client's text cannot begin a new log line
  json.open_object().field("request_id", request.request_id).key("user").value_or_null(request.user);
  if (request.prompt) json.field("prompt", *request.prompt);
  if (request.prompt_token_ids) {
    json.key("prompt_token_ids").array(*request.prompt_token_ids, [](wire::JsonWriter& list, std::int64_t id) {
      list.value(id);
    });
  }
  json.close_object();
  spdlog::info("prompt {}", line);
}

}  // namespace pagoda::serving
