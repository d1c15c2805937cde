#include "io/model_files/chat_template_files.hpp"

#include <algorithm>
#include <fstream>
#include <utility>

#include <spdlog/spdlog.h>

#include "io/model_files/file_text.hpp"
#include "io/model_files/tokenizer_config.hpp"

namespace pagoda::io {
namespace {

namespace fs = std::filesystem;

using chat::NamedTemplate;

constexpr std::size_t kMaxTemplateBytes = std::size_t{4} << 20;

Result<NamedTemplate> read_json_template(const fs::path& path) {
  const auto object = read_json_file(path, kMaxTemplateBytes, ErrorCode::bad_file);
  if (!object) return fail(object.error());
  auto origin = path.filename().string();
  const auto found = object->is_object() ? object->find("chat_template") : object->end();
  if (!object->is_object() || found == object->end() || !found->is_string()) {
    return fail(ErrorCode::bad_file, origin + ": chat_template is not a string", "chat_template");
  }
  return NamedTemplate{.source = found->get<std::string>(), .origin = std::move(origin)};
}

/// Finds the templates of a folder, without those of additional_chat_templates.
Result<std::vector<NamedTemplate>> find_main_templates(const fs::path& model_dir, const TokenizerConfig& config) {
  const auto alone = [](Result<NamedTemplate> read) -> Result<std::vector<NamedTemplate>> {
    if (!read) return fail(std::move(read.error()));
    return std::vector<NamedTemplate>{std::move(*read)};
  };
  if (const auto path = model_dir / "chat_template.jinja"; has_entry(path)) return alone(read_chat_template(path));
  if (const auto path = model_dir / "chat_template.json"; has_entry(path)) return alone(read_json_template(path));
  std::vector<NamedTemplate> templates;
  for (const auto& [name, source] : config.chat_templates) templates.push_back({name, source, "tokenizer_config.json"});
  return templates;
}

Result<std::vector<NamedTemplate>> find_templates(const fs::path& model_dir, const TokenizerConfig& config) {
  auto templates = find_main_templates(model_dir, config);
  if (!templates) return templates;
  for (const char* name : chat::ChatPrompts::kSpecialNames) {
    const auto path = model_dir / "additional_chat_templates" / (std::string(name) + ".jinja");
    if (!has_entry(path)) continue;
    auto read = read_chat_template(path, name);
    if (!read) {
      spdlog::warn("{}; it is left out", read.error().message);
      continue;
    }
    std::erase_if(*templates, [&](const NamedTemplate& other) { return other.name == name; });
    templates->push_back(std::move(*read));
  }
  return templates;
}

TokenizerNames names_of(const TokenizerConfig& config) {
  TokenizerNames names{config.tokenizer_class, {}};
  for (const auto& [key, token] : config.special_tokens) {
    if (!key.empty()) names.special_tokens.emplace(key, token.content);
  }
  return names;
}

}  // namespace

Result<NamedTemplate> read_chat_template(const fs::path& path, std::string name) {
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
  return NamedTemplate{std::move(name), std::move(text), path.filename().string()};
}

Result<std::shared_ptr<const chat::ChatPrompts>> make_chat_prompts(std::vector<NamedTemplate> templates,
                                                                   std::map<std::string, std::string> special_tokens) {
  const auto is_default = [](const NamedTemplate& each) { return each.name == NamedTemplate().name; };
  if (std::ranges::none_of(templates, is_default)) return std::shared_ptr<const chat::ChatPrompts>();
  // A template that is never chosen is not parsed, so that its errors do no harm.
  std::erase_if(templates, [&](const NamedTemplate& each) {
    return !is_default(each) &&
           std::ranges::find(chat::ChatPrompts::kSpecialNames, each.name) == chat::ChatPrompts::kSpecialNames.end();
  });
  auto prompts = chat::ChatPrompts::parse(std::move(templates), std::move(special_tokens));
  if (prompts) return std::make_shared<const chat::ChatPrompts>(std::move(*prompts));
  return fail(ErrorCode::bad_file, prompts.error().message, "chat_template");
}

Result<std::vector<NamedTemplate>> folder_chat_templates(const fs::path& model_dir) {
  const auto config = load_tokenizer_config(model_dir);
  if (!config) return fail(config.error());
  return find_templates(model_dir, *config);
}

Result<std::shared_ptr<const chat::ChatPrompts>> folder_chat_prompts(const fs::path& model_dir,
                                                                     const fs::path& override_file) {
  const auto config = load_tokenizer_config(model_dir);
  if (!config) return fail(config.error());
  std::vector<NamedTemplate> templates;
  if (override_file.empty()) {
    auto found = find_templates(model_dir, *config);
    if (!found) return fail(std::move(found.error()));
    templates = std::move(*found);
  } else {
    auto read = read_chat_template(override_file);
    if (!read) return fail(std::move(read.error()));
    templates.push_back(std::move(*read));
  }
  return make_chat_prompts(std::move(templates), names_of(*config).special_tokens);
}

Result<TokenizerNames> folder_tokenizer_names(const fs::path& model_dir) {
  const auto config = load_tokenizer_config(model_dir);
  if (!config) return fail(config.error());
  return names_of(*config);
}

}  // namespace pagoda::io
