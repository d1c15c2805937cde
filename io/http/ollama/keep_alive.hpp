#pragma once

#include <optional>

#include <tl/expected.hpp>

#include "engine/types.hpp"
#include "io/http/error_answer.hpp"
#include "io/wire/json_reader.hpp"

namespace pagoda::http::ollama {

/// The field keep_alive: seconds, or a duration as Go writes it ("5m", "1h30m", "300ms"); below 0 for ever
/// (model_pool::kForever). In microseconds; nothing where the body has none.
tl::expected<std::optional<TimeUs>, ErrorAnswer> read_keep_alive(const wire::Json& body);

}  // namespace pagoda::http::ollama
