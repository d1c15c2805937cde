#include "io/http/error_body.hpp"

#include "io/wire/json_text.hpp"

namespace pagoda::http {
namespace {

bool is_below(std::string_view path, std::string_view folder) {
  return path.substr(0, folder.size()) == folder && (path.size() == folder.size() || path[folder.size()] == '/');
}

std::string_view openai_type(unsigned status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 429:
      return "rate_limit_error";
    case 503:
      return "service_unavailable_error";
    case 504:
      return "timeout_error";
    default:
      return status < 500 ? "invalid_request_error" : "server_error";
  }
}

std::string_view anthropic_type(unsigned status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 403:
      return "permission_error";
    case 404:
      return "not_found_error";
    case 413:
      return "request_too_large";
    case 429:
      return "rate_limit_error";
    case 503:
    case 529:
      return "overloaded_error";
    case 504:
      return "timeout_error";
    default:
      return status < 500 ? "invalid_request_error" : "api_error";
  }
}

void append_member(std::string& out, std::string_view name, std::string_view value) {
  out += ",\"";
  out += name;
  out += "\":";
  if (value.empty()) {
    out += "null";
  } else {
    wire::append_string(out, value);
  }
}

}  // namespace

ErrorStyle error_style(std::string_view path) {
  if (is_below(path, "/v1/messages")) return ErrorStyle::anthropic;
  if (is_below(path, "/api")) return ErrorStyle::ollama;
  return ErrorStyle::openai;
}

std::string error_body(ErrorStyle style, const ErrorAnswer& error) {
  std::string out;
  const auto type = [&](std::string_view of_status) { return error.type.empty() ? of_status : error.type; };
  switch (style) {
    case ErrorStyle::openai:
      out = R"({"error":{"message":)";
      wire::append_string(out, error.message);
      append_member(out, "type", type(openai_type(error.status)));
      append_member(out, "param", error.param);
      append_member(out, "code", error.code);
      out += "}}";
      break;
    case ErrorStyle::anthropic:
      out = R"({"type":"error","error":{"type":)";
      wire::append_string(out, type(anthropic_type(error.status)));
      append_member(out, "message", error.message);
      if (!error.code.empty()) {
        out += R"(,"details":{"error_code":)";
        wire::append_string(out, error.code);
        out += "}";
      }
      out += "}}";
      break;
    case ErrorStyle::ollama:
      out = R"({"error":)";
      wire::append_string(out, error.message);
      out += "}";
      break;
  }
  return out;
}

}  // namespace pagoda::http
