#pragma once

/// Answers about the served models. Their digest is made of what is known of the model, not of its files.

#include <string>

#include "io/http/api_context.hpp"

namespace pagoda::http::ollama {

/// GET /api/tags: all models.
std::string list_models(const ApiContext& context);

/// GET /api/ps: those that are loaded.
std::string list_running(const ApiContext& context);

/// POST /api/show. The template is the model's own, in Jinja: clients look whether it has tools, and do not run it.
std::string show_model(const ApiContext& context, const serving::ServedModel& model);

/// GET /api/version: of Ollama's API, by which clients tell what they may send. Our own stands beside it.
std::string version_answer();

}  // namespace pagoda::http::ollama
