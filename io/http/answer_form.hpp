#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "io/http/error_body.hpp"
#include "io/http/request.hpp"

namespace pagoda::http {

/// Properties of an answer that the request decides, independent of the answer's content.
struct AnswerForm {
  std::string request_id;
  ErrorStyle style = ErrorStyle::openai;
  bool without_body = false;  ///< whether only the head is sent, as the answer to HEAD
  bool is_http10 = false;     ///< whether the client speaks HTTP/1.0: no chunks, and no keep-alive without a header
  bool keep_alive = false;    ///< whether the connection stays open after the answer
  Pairs cors;                 ///< CORS headers for a page of the allowed origin
  Pairs limits;               ///< headers with the remaining rate limits of the key's principal
  std::string ignored;        ///< names of the ignored fields of the request; empty: none
};

/// How the client finds the end of a body.
enum class Framing : unsigned char { sized, chunked, until_close };

/// Appends the status line and all headers. `size` is the Content-Length if the framing is `sized`.
void append_head(std::string& out, const AnswerForm& form, unsigned status, std::string_view content_type,
                 Framing framing, std::size_t size, const Pairs& headers);

/// Returns the header Retry-After, in seconds rounded up.
std::pair<std::string, std::string> retry_after(std::int64_t milliseconds);

/// Adds the headers of an error answer: Retry-After if the error has a time, and x-should-retry: false for 504.
void add_error_headers(const ErrorAnswer& error, Pairs& headers);

/// Appends a complete error answer.
void append_error(std::string& out, const AnswerForm& form, const ErrorAnswer& error, Pairs headers = {});

}  // namespace pagoda::http
