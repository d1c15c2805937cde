#include "io/model_files/chat_template_files.hpp"

#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "io/model_files/file_text.hpp"
#include "io/model_files/tokenizer_config.hpp"

namespace pagoda::io {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxTemplateBytes = std::size_t{4} << 20;

using Source = ChatTemplateSource;

}  // namespace

Result<ChatTemplateSource> read_chat_template(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return fail(ErrorCode::io_failed, "cannot read the chat template " + path.string(), "chat_template");
  std::string text(kMaxTemplateBytes + 1, '\0');
  file.read(text.data(), static_cast<std::streamsize>(text.size()));
  if (file.bad()) return fail(ErrorCode::io_failed, "cannot read the chat template " + path.string(), "chat_template");
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > kMaxTemplateBytes) {
    return fail(ErrorCode::bad_file, path.string() + " has more than " + std::to_string(kMaxTemplateBytes) + " bytes",
                "chat_template");
  }
  return Source{std::move(text), path.filename().string()};
}

namespace {

Result<Source> read_json_source(const fs::path& path) {
  const auto object = read_json_file(path, kMaxTemplateBytes, ErrorCode::bad_file);
  if (!object) return fail(object.error());
  const auto name = path.filename().string();
  const auto found = object->is_object() ? object->find("chat_template") : object->end();
  if (!object->is_object() || found == object->end() || !found->is_string()) {
    return fail(ErrorCode::bad_file, name + ": chat_template is not a string", "chat_template");
  }
  return Source{found->get<std::string>(), name};
}

Result<std::optional<Source>> find_source(const fs::path& model_dir, const fs::path& override_file,
                                          const TokenizerConfig& config) {
  const auto found = [](Result<Source> source) -> Result<std::optional<Source>> {
    if (!source) return fail(std::move(source.error()));
    return std::move(*source);
  };
  std::error_code ignored;
  if (!override_file.empty()) return found(read_chat_template(override_file));
  if (const auto path = model_dir / "chat_template.jinja"; fs::exists(path, ignored))
    return found(read_chat_template(path));
  if (const auto path = model_dir / "chat_template.json"; fs::exists(path, ignored)) {
    return found(read_json_source(path));
  }
  if (config.chat_template) return Source{*config.chat_template, "tokenizer_config.json"};
  return std::nullopt;
}

}  // namespace

Result<std::shared_ptr<const chat::ChatPrompts>> make_chat_prompts(ChatTemplateSource source,
                                                                   std::map<std::string, std::string> special_tokens) {
  auto prompts = chat::ChatPrompts::parse(std::move(source.text), std::move(special_tokens));
  if (prompts) return std::make_shared<const chat::ChatPrompts>(std::move(*prompts));
  return fail(ErrorCode::bad_file, source.file_name + ": " + prompts.error().message, "chat_template");
}

Result<std::shared_ptr<const chat::ChatPrompts>> folder_chat_prompts(const fs::path& model_dir,
                                                                     const fs::path& override_file) {
  const auto config = load_tokenizer_config(model_dir);
  if (!config) return fail(config.error());
  auto source = find_source(model_dir, override_file, *config);
  if (!source) return fail(source.error());
  if (!*source) return std::shared_ptr<const chat::ChatPrompts>();
  std::map<std::string, std::string> special_tokens;
  for (const auto& [key, token] : config->special_tokens) {
    if (!key.empty()) special_tokens.emplace(key, token.content);
  }
  return make_chat_prompts(std::move(**source), std::move(special_tokens));
}

}  // namespace pagoda::io
