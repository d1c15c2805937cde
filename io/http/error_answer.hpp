#pragma once

#include "io/http/error_body.hpp"
#include "io/wire/wire_error.hpp"
#include "kernels/result.hpp"

namespace pagoda::http {

/// Converts an error of reading a body to an answer with the matching HTTP status.
ErrorAnswer error_answer(const wire::WireError& error);
/// Converts an error of the engine to an answer with the matching HTTP status.
ErrorAnswer error_answer(const Error& error);

ErrorAnswer invalid_request(std::string message, std::string param = {});

}  // namespace pagoda::http
