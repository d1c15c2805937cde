#pragma once

#include <string>

#include <tl/expected.hpp>

#include "io/http/api_context.hpp"
#include "io/http/error_answer.hpp"
#include "io/wire/json_reader.hpp"

namespace pagoda::http::ollama {

/// A name as this API lists it: with a tag, which is "latest" where the name has none.
std::string with_tag(const std::string& name);

/// A model of this server, and its name as the client wrote it.
struct NamedModel {
  const serving::ServedModel* model = nullptr;
  std::string name;
};
/// That in `model` (or in `name`, as old clients call it): one that is served here, with or without ":latest".
tl::expected<NamedModel, ErrorAnswer> read_model_name(const ApiContext& context, const wire::Json& body);

}  // namespace pagoda::http::ollama
