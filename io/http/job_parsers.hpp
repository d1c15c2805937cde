#pragma once

#include <functional>
#include <map>
#include <string>

#include "io/http/generation.hpp"
#include "io/http/request.hpp"
#include "io/wire/json_reader.hpp"

namespace pagoda::http {

/// Makes a job of the body of a request that generates.
using ParseJob =
    std::function<ParsedJob(const serving::ServedModel& model, const wire::Json& body, const Request& request)>;

/// Parsers by the path of their route.
using JobParsers = std::map<std::string, ParseJob>;

}  // namespace pagoda::http
