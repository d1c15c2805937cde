#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "io/http/error_body.hpp"
#include "io/http/request.hpp"

namespace pagoda::http {

/// What a request asks of the form of its answer, whatever the answer says.
struct AnswerForm {
  std::string request_id;
  ErrorStyle style = ErrorStyle::openai;
  bool without_body = false;  ///< to HEAD: as to GET, but the head alone
  bool is_http10 = false;     ///< knows no chunks, and keeps no connection without saying so
  bool keep_alive = false;    ///< the connection is kept after the answer
  Pairs cors;                 ///< headers for a page of the allowed origin
  Pairs limits;               ///< headers that tell a key's principal what is left to it
  std::string ignored;        ///< names of the request's fields that were ignored; empty: none
};

/// How the end of a body is found.
enum class Framing : unsigned char { sized, chunked, until_close };

/// Appends the status line and all headers. `size` is what Content-Length says where the framing is `sized`.
void append_head(std::string& out, const AnswerForm& form, unsigned status, std::string_view content_type,
                 Framing framing, std::size_t size, const Pairs& headers);

/// The header Retry-After, in whole seconds.
std::pair<std::string, std::string> retry_after(std::int64_t milliseconds);

/// What the headers of an answer that is an error say of trying again.
void add_error_headers(const ErrorAnswer& error, Pairs& headers);

/// Appends a whole answer that is an error.
void append_error(std::string& out, const AnswerForm& form, const ErrorAnswer& error, Pairs headers = {});

}  // namespace pagoda::http
