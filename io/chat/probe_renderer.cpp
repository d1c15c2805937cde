#include "io/chat/probe_renderer.hpp"

#include <ctime>
#include <utility>

namespace pagoda::chat {
namespace {

using nlohmann::ordered_json;

constexpr int kMaxProbes = 64;
constexpr double kMaxProbeCpuSeconds = 2;  // usual templates take some milliseconds
// Limit on the text after the user's text: finding calls may take quadratic time.
constexpr std::size_t kMaxProbeBytes = 16384;
constexpr const char* kNextUser = "uq7next";

ordered_json probe_tools() {
  auto tools = ordered_json::array();
  ordered_json properties;
  for (const auto* key : ProbeRenderer::kKeys) properties[key] = {{"type", "string"}, {"description", "a text"}};
  properties[ProbeRenderer::kNumberKey] = {{"type", "integer"}, {"description", "a number"}};
  for (const auto* name : ProbeRenderer::kTools) {
    ordered_json parameters{
        {"type", "object"}, {"properties", properties}, {"required", ordered_json::array({ProbeRenderer::kKeys[0]})}};
    tools.push_back({{"type", "function"},
                     {"function", {{"name", name}, {"description", "a tool"}, {"parameters", std::move(parameters)}}}});
  }
  return tools;
}

double thread_cpu_seconds() {
  std::timespec now{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

ordered_json user_message(std::string_view text) {
  return {{"role", "user"}, {"content", text}};
}

}  // namespace

ProbeRenderer::ProbeRenderer(const ChatPrompts& prompts)
    : prompts_(prompts), tools_(probe_tools()), num_left_(kMaxProbes), cpu_seconds_left_(kMaxProbeCpuSeconds) {
  const auto try_it = [&] {
    auto prompt = after_user(ordered_json::array({user_message(kUser)}), ordered_json::object(), true);
    if (prompt) generation_prompt_ = std::move(*prompt);
    is_usable_ = prompt.has_value();
    return is_usable_;
  };
  if (try_it()) return;
  variables_ = unusual_variables();
  if (try_it()) return;
  tools_ = nullptr;
  try_it();
}

ordered_json ProbeRenderer::unusual_variables() {
  return {{"functions", "[]"}, {"datetime", "2026-01-01"}};  // variables of firefunction
}

std::vector<std::string> ProbeRenderer::special_tokens() const {
  std::vector<std::string> tokens;
  for (const auto& [name, text] : prompts_.special_tokens()) tokens.push_back(text);
  return tokens;
}

bool ProbeRenderer::names(std::string_view text) const {
  ChatInput chat;
  chat.tools = tools_;
  return prompts_.knows(text, chat);
}

std::optional<std::string> ProbeRenderer::render(ordered_json message, const ordered_json& kwargs) {
  return after_user(ordered_json::array({user_message(kUser), std::move(message)}), kwargs, false);
}

std::optional<std::string> ProbeRenderer::render_before_user(ordered_json message) {
  auto text = after_user(ordered_json::array({user_message(kUser), std::move(message), user_message(kNextUser)}),
                         ordered_json::object(), false);
  const auto end = text ? text->find(kNextUser) : std::string::npos;
  if (end == std::string::npos) return std::nullopt;
  text->resize(end);
  return text;
}

std::optional<std::string> ProbeRenderer::after_user(ordered_json messages, const ordered_json& kwargs,
                                                     bool add_generation_prompt) {
  if (num_left_ <= 0 || cpu_seconds_left_ <= 0) return std::nullopt;
  --num_left_;
  ChatInput chat;
  chat.messages = std::move(messages);
  chat.tools = tools_;
  chat.chat_template_kwargs = variables_;
  chat.chat_template_kwargs.update(kwargs);
  chat.add_generation_prompt = add_generation_prompt;
  const double begun = thread_cpu_seconds();
  auto prompt = prompts_.render_plain(std::move(chat));
  cpu_seconds_left_ -= thread_cpu_seconds() - begun;
  if (!prompt) return std::nullopt;
  const auto at = prompt->rfind(kUser);
  if (at == std::string::npos || prompt->size() - at > kMaxProbeBytes) return std::nullopt;
  return prompt->substr(at + kUser.size());
}

ProbeCall ProbeRenderer::usual_call() {
  return {kTools[0], kId, ordered_json::object({{kKeys[0], "vq7a"}})};
}

ordered_json ProbeRenderer::message(ordered_json content) {
  return {{"role", "assistant"}, {"content", std::move(content)}};
}

ordered_json ProbeRenderer::message(ordered_json content, const std::vector<ProbeCall>& calls, bool arguments_as_text) {
  auto written = ordered_json::array();
  for (const auto& call : calls) {
    const ordered_json arguments = arguments_as_text ? ordered_json(call.arguments.dump()) : call.arguments;
    ordered_json one;
    if (!call.id.empty()) one["id"] = call.id;
    one["type"] = "function";
    one["function"] = {{"name", call.name}, {"arguments", arguments}};
    written.push_back(std::move(one));
  }
  auto made = message(std::move(content));
  made["tool_calls"] = std::move(written);
  return made;
}

}  // namespace pagoda::chat
