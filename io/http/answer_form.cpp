#include "io/http/answer_form.hpp"

#include <ctime>

#include <boost/beast/http/status.hpp>

#include "kernels/result.hpp"

namespace pagoda::http {
namespace {

namespace beast_http = boost::beast::http;

void append_header(std::string& out, std::string_view name, std::string_view value) {
  PAGODA_ASSERT(name.find_first_of("\r\n: ") == std::string_view::npos &&
                    value.find_first_of(std::string_view("\r\n\0", 3)) == std::string_view::npos,
                "a header of an answer contains a character that would end it");
  out += name;
  out += ": ";
  out += value;
  out += "\r\n";
}

std::string now_as_http_date() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  ::gmtime_r(&now, &parts);
  char text[32];
  const auto size = std::strftime(text, sizeof text, "%a, %d %b %Y %H:%M:%S GMT", &parts);
  return {text, size};
}

}  // namespace

void append_head(std::string& out, const AnswerForm& form, unsigned status, std::string_view content_type,
                 Framing framing, std::size_t size, const Pairs& headers) {
  const auto reason = beast_http::obsolete_reason(beast_http::int_to_status(status));
  out += "HTTP/1.1 " + std::to_string(status) + " ";
  out.append(reason.data(), reason.size());
  out += "\r\n";
  append_header(out, "date", now_as_http_date());
  if (!form.request_id.empty()) append_header(out, "x-request-id", form.request_id);
  // Anthropic's clients expect the id in this header.
  if (form.style == ErrorStyle::anthropic && !form.request_id.empty())
    append_header(out, "request-id", form.request_id);
  if (!content_type.empty()) append_header(out, "content-type", content_type);
  const bool may_have_body = status >= 200 && status != 204 && status != 304;
  if (framing == Framing::sized && may_have_body) append_header(out, "content-length", std::to_string(size));
  if (framing == Framing::chunked) append_header(out, "transfer-encoding", "chunked");
  if (!form.keep_alive) {
    append_header(out, "connection", "close");
  } else if (form.is_http10) {
    append_header(out, "connection", "keep-alive");
  }
  if (!form.ignored.empty()) append_header(out, "x-pagoda-ignored", form.ignored);
  for (const auto& [name, value] : form.cors) append_header(out, name, value);
  for (const auto& [name, value] : form.limits) append_header(out, name, value);
  for (const auto& [name, value] : headers) append_header(out, name, value);
  out += "\r\n";
}

std::pair<std::string, std::string> retry_after(std::int64_t milliseconds) {
  return {"retry-after", std::to_string((milliseconds + 999) / 1000)};
}

void add_error_headers(const ErrorAnswer& error, Pairs& headers) {
  constexpr unsigned kOutOfTime = 504;
  if (error.retry_after_ms >= 0) headers.push_back(retry_after(error.retry_after_ms));
  // Otherwise OpenAI's and Anthropic's clients would automatically retry a request that has just timed out.
  if (error.status == kOutOfTime) headers.emplace_back("x-should-retry", "false");
}

void append_error(std::string& out, const AnswerForm& form, const ErrorAnswer& error, Pairs headers) {
  add_error_headers(error, headers);
  const auto body = error_body(form.style, error);
  append_head(out, form, error.status, "application/json", Framing::sized, body.size(), headers);
  if (!form.without_body) out += body;
}

}  // namespace pagoda::http
