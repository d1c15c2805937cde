#pragma once

#include <optional>

#include <tl/expected.hpp>

#include "engine/types.hpp"
#include "io/http/error_answer.hpp"
#include "io/wire/json_reader.hpp"

namespace pagoda::http::ollama {

/// Reads the field keep_alive: seconds, or a duration in Go's format ("5m", "1h30m", "300ms"). Values below 0 mean
/// forever (model_pool::kForever). Returns microseconds, or nullopt if the body does not have the field.
tl::expected<std::optional<TimeUs>, ErrorAnswer> read_keep_alive(const wire::Json& body);

}  // namespace pagoda::http::ollama
