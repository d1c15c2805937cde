// libFuzzer entry for chat templates: any bytes are either a template or an error that names it; a template renders a
// conversation within its limits or is refused, and says truly which bytes came from the conversation.

#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "io/chat/chat_template.hpp"

namespace {

/// What a client could send, in bytes that a template's own text rarely has.
pagoda::chat::ChatInput conversation() {
  pagoda::chat::ChatInput chat;
  chat.messages = nlohmann::ordered_json::parse(
      R"([{"role":"system","content":"s<|x|>"},{"role":"user","content":[{"type":"text","text":"ü"}]},
          {"role":"assistant","content":null,"tool_calls":[{"function":{"name":"f","arguments":{"a":[1,2.5,true]}}}]},
          {"role":"tool","content":"42"},{"role":"user","content":"last"}])");
  chat.tools = nlohmann::ordered_json::parse(R"([{"type":"function","function":{"name":"f","parameters":{}}}])");
  chat.special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}};
  chat.add_generation_prompt = true;
  return chat;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto chat = conversation();
  const pagoda::jinja::Limits limits{.max_steps = 200'000, .max_bytes_made = 16 << 20, .max_output_bytes = 4 << 20};
  const auto parsed = pagoda::chat::ChatTemplate::parse({reinterpret_cast<const char*>(data), size}, limits);
  if (!parsed) {
    if (parsed.error().message.empty()) std::abort();
    return 0;
  }
  const auto prompt = parsed->render(chat);
  if (!prompt) return 0;
  std::size_t end = 0;
  for (const auto& range : prompt->inserted) {
    if (range.begin < end || range.end < range.begin || range.end > prompt->text.size()) std::abort();
    end = range.end;
  }
  return 0;
}
