#pragma once

/// Answers about the served models. A model's digest is computed from the known facts about the model, not from its
/// files.

#include <string>

#include "io/http/api_context.hpp"

namespace pagoda::http::ollama {

/// Answers GET /api/tags: all models.
std::string list_models(const ApiContext& context);

/// Answers GET /api/ps: the models that are loaded.
std::string list_running(const ApiContext& context);

/// Answers POST /api/show. The template is the model's own, in Jinja. Clients only check whether it mentions tools and
/// do not run it.
std::string show_model(const ApiContext& context, const serving::ServedModel& model);

/// Answers GET /api/version with a version of Ollama, from which clients derive the fields that they may send, and the
/// version of this server.
std::string version_answer();

}  // namespace pagoda::http::ollama
