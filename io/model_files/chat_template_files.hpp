#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "io/chat/chat_prompts.hpp"
#include "io/model_files/model_files.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// Reads a template from a file that holds nothing else. Errors: io_failed, bad_file (too large).
Result<chat::NamedTemplate> read_chat_template(const std::filesystem::path& path, std::string name = "default");

/// Parses `templates`, as ChatPrompts::parse does. `special_tokens` are the variables that hold special tokens in
/// templates. Returns null where none of `templates` is the default template. Errors: bad_file with the template's
/// origin and line.
Result<std::shared_ptr<const chat::ChatPrompts>> make_chat_prompts(std::vector<chat::NamedTemplate> templates,
                                                                   std::map<std::string, std::string> special_tokens);

/// Returns the sources of all chat templates of a model folder, as folder_chat_prompts finds them. Errors: as there.
Result<std::vector<chat::NamedTemplate>> folder_chat_templates(const std::filesystem::path& model_dir);

/// Reads the chat templates of a model folder: chat_template.jinja, else chat_template.json, else those of
/// tokenizer_config.json; and additional_chat_templates/NAME.jinja. Where `override_file` is not empty, this Jinja
/// source is the only template. Returns null when there is no template. Errors: io_failed, bad_file or bad_config with
/// the file's name, for a template also with the line.
Result<std::shared_ptr<const chat::ChatPrompts>> folder_chat_prompts(const std::filesystem::path& model_dir,
                                                                     const std::filesystem::path& override_file);

/// Returns the tokenizer's names of a model folder (ModelFiles::tokenizer_names). Errors: bad_config, bad_file.
Result<TokenizerNames> folder_tokenizer_names(const std::filesystem::path& model_dir);

}  // namespace pagoda::io
