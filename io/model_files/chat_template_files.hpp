#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "io/chat/chat_prompts.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// A Jinja source, and the name that messages give it.
struct ChatTemplateSource {
  std::string text;
  std::string file_name;
};

/// A template in a file of its own. Errors: io_failed, bad_file (too large).
Result<ChatTemplateSource> read_chat_template(const std::filesystem::path& path);

/// `special_tokens` are the variables that templates know tokens by. Error: bad_file with the source's name and line.
Result<std::shared_ptr<const chat::ChatPrompts>> make_chat_prompts(ChatTemplateSource source,
                                                                   std::map<std::string, std::string> special_tokens);

/// The chat template of a model folder: chat_template.jinja, else chat_template.json, else what tokenizer_config.json
/// says; or of `override_file`, a Jinja source, unless that is empty. Null when there is none. Errors: io_failed,
/// bad_file or bad_config with the file's name, for a template also with the line.
Result<std::shared_ptr<const chat::ChatPrompts>> folder_chat_prompts(const std::filesystem::path& model_dir,
                                                                     const std::filesystem::path& override_file);

}  // namespace pagoda::io
