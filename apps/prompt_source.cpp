#include "apps/prompt_source.hpp"

#include <filesystem>
#include <iostream>
#include <system_error>
#include <utility>

#include "apps/conversation.hpp"
#include "io/chat/answer_reading.hpp"

namespace pagoda::apps {

PromptSource PromptSource::single(std::string prompt, GenerateRequest defaults, Form form) {
  PromptSource source(std::move(defaults), std::move(form));
  source.single_ = std::move(prompt);
  return source;
}

Result<PromptSource> PromptSource::open(const std::string& path, GenerateRequest defaults, Form form) {
  PromptSource source(std::move(defaults), std::move(form));
  if (path == "-") {
    source.lines_ = &std::cin;
    return source;
  }
  source.file_ = std::make_unique<std::ifstream>(path, std::ios::binary);
  std::error_code error;
  if (!*source.file_ || std::filesystem::is_directory(path, error)) {
    return fail(ErrorCode::io_failed, "cannot read the prompts file " + path, "prompts");
  }
  if (const auto size = std::filesystem::file_size(path, error); !error) source.file_bytes_ = static_cast<double>(size);
  source.lines_ = source.file_.get();
  return source;
}

std::optional<PromptSource::Prompt> PromptSource::next() {
  if (single_) return of_text("1", *std::exchange(single_, std::nullopt));
  if (lines_ == nullptr) return {};
  for (std::string line; std::getline(*lines_, line);) {
    ++line_number_;
    read_bytes_ += static_cast<double>(line.size() + 1);
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.find_first_not_of(" \t") != std::string::npos) return parse(line);
  }
  return {};
}

PromptSource::Prompt PromptSource::parse(const std::string& line) {
  auto id = std::to_string(line_number_);
  if (line.front() != '{') return of_text(std::move(id), line);
  auto object = json_lines::parse_generate_object(line, defaults_, form_.prompts.get());
  if (!object) return {object.error().id.value_or(id), tl::unexpected(std::move(object.error().error))};
  return {object->id.value_or(id), std::move(object->request), object->timing, std::move(object->reading)};
}

PromptSource::Prompt PromptSource::of_text(std::string id, std::string text) const {
  auto request = defaults_;
  if (!form_.is_chat) {
    request.prompt = std::move(text);
    return {std::move(id), std::move(request)};
  }
  Conversation conversation(form_.system);
  conversation.add_user(std::move(text));
  chat::ChatInput chat;
  chat.messages = conversation.messages();
  chat.add_generation_prompt = true;
  request.add_special_tokens = false;
  if (auto status = form_.prompts->apply(chat, request); !status) {
    return {std::move(id), tl::unexpected(wire::wire_error(status.error()))};
  }
  chat::scope_stop_strings(*form_.prompts, /*continues=*/false, request);
  return {std::move(id), std::move(request)};
}

double PromptSource::fraction_read() {
  return file_bytes_ > 0 ? read_bytes_ / file_bytes_ : -1;
}

}  // namespace pagoda::apps
