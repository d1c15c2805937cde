#pragma once

#include <string>

#include <tl/expected.hpp>

#include "io/http/api_context.hpp"
#include "io/http/error_answer.hpp"
#include "io/wire/json_reader.hpp"

namespace pagoda::http::ollama {

/// Returns a name as this API lists it: with the tag "latest" if the name has no tag.
std::string with_tag(const std::string& name);

/// A served model, and its name as the client wrote it.
struct NamedModel {
  serving::SharedModel model;
  std::string name;
};
/// Finds the served model that `model` names, or `name`, its old name. The tag ":latest" is optional.
tl::expected<NamedModel, ErrorAnswer> read_model_name(const ApiContext& context, const wire::Json& body);

}  // namespace pagoda::http::ollama
