#pragma once

/// What is told of the served models, whose bytes, digest and number of parameters nobody asks for here: they are 0.

#include <string>

#include "io/http/api_context.hpp"

namespace pagoda::http::ollama {

/// GET /api/tags: all models.
std::string list_models(const ApiContext& context);

/// GET /api/ps: those that are loaded.
std::string list_running(const ApiContext& context);

/// POST /api/show. The template is left out: it is Jinja, where Ollama's clients expect Go's language.
std::string show_model(const ApiContext& context, const serving::ServedModel& model);

/// GET /api/version: of Ollama's API, by which clients tell what they may send. Our own stands beside it.
std::string version_answer();

}  // namespace pagoda::http::ollama
