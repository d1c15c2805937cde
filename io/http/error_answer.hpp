#pragma once

#include "io/http/error_body.hpp"
#include "io/wire/wire_error.hpp"
#include "kernels/result.hpp"

namespace pagoda::http {

/// Convert errors of reading a body and errors of the engine to answers with the matching HTTP status.
ErrorAnswer error_answer(const wire::WireError& error);
ErrorAnswer error_answer(const Error& error);

ErrorAnswer invalid_request(std::string message, std::string param = {});

}  // namespace pagoda::http
