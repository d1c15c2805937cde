#pragma once

#include "io/http/error_body.hpp"
#include "io/wire/wire_error.hpp"
#include "kernels/result.hpp"

namespace pagoda::http {

/// Errors of reading a body and of the engine, with the status that HTTP has for them.
ErrorAnswer error_answer(const wire::WireError& error);
ErrorAnswer error_answer(const Error& error);

ErrorAnswer invalid_request(std::string message, std::string param = {});

}  // namespace pagoda::http
