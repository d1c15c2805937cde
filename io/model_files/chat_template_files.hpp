#pragma once

#include <filesystem>
#include <memory>

#include "io/chat/chat_prompts.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// The chat template of a model folder: chat_template.jinja, else chat_template.json, else what tokenizer_config.json
/// says; or of `override_file`, a Jinja source, unless that is empty. Null when there is none. Errors: io_failed,
/// bad_file or bad_config with the file's name, for a template also with the line.
Result<std::shared_ptr<const chat::ChatPrompts>> load_chat_prompts(const std::filesystem::path& model_dir,
                                                                   const std::filesystem::path& override_file = {});

}  // namespace pagoda::io
