#include "io/http/gate.hpp"

#include <algorithm>
#include <array>
#include <random>

#include "engine/request/generate_request.hpp"
#include "io/http/ascii.hpp"
#include "io/http/target.hpp"

namespace pagoda::http {
namespace {

/// Headers of answers that pages of an allowed origin may read.
constexpr const char* kExposedHeaders =
    "x-request-id, x-pagoda-ignored, retry-after, x-ratelimit-limit-requests, x-ratelimit-remaining-requests, "
    "x-ratelimit-reset-requests, "
    "x-ratelimit-limit-tokens, x-ratelimit-remaining-tokens, x-ratelimit-reset-tokens";

bool is_usable_id(std::string_view id) {
  return !id.empty() && id.size() <= kMaxRequestIdBytes &&
         std::all_of(id.begin(), id.end(), [](char c) { return c > ' ' && c <= '~'; });
}

std::string joined_names(const std::vector<Verb>& verbs) {
  std::string out;
  for (const auto verb : verbs) {
    const auto name = boost::beast::http::to_string(verb);
    if (!out.empty()) out += ", ";
    out.append(name.data(), name.size());
  }
  return out;
}

bool is_served(Verb verb) {
  constexpr std::array kServed{Verb::get, Verb::head, Verb::post, Verb::put, Verb::patch, Verb::delete_, Verb::options};
  return std::find(kServed.begin(), kServed.end(), verb) != kServed.end();
}

/// Returns the key from "Authorization: Bearer KEY" (`Bearer` in upper or lower case), or else from x-api-key.
std::string_view key_of(const Request& request) {
  constexpr std::string_view kBearer = "Bearer ";
  const auto authorization = request.header("authorization");
  if (equals_ignoring_case(authorization.substr(0, kBearer.size()), kBearer))
    return authorization.substr(kBearer.size());
  return request.header("x-api-key");
}

/// Returns whether the type is application/json, with any parameters.
bool is_json(std::string_view content_type) {
  auto type = content_type.substr(0, content_type.find(';'));
  while (!type.empty() && (type.back() == ' ' || type.back() == '\t')) type.remove_suffix(1);
  return equals_ignoring_case(type, "application/json");
}

/// Returns whether the host is localhost or a numeric address, with any port.
bool is_name_of_this_machine(std::string_view host) {
  if (host.starts_with('[')) return true;
  host = host.substr(0, host.find(':'));
  return equals_ignoring_case(host, "localhost") ||
         std::all_of(host.begin(), host.end(), [](char c) { return (c >= '0' && c <= '9') || c == '.'; });
}

/// Returns whether the request comes from a program with Ollama's API. Such programs send JSON with any content type or
/// none, as in Ollama's own documentation. Browsers are recognized by the headers Origin and Sec-Fetch-Site.
bool is_ollama_program(const Request& request) {
  return error_style(request.path) == ErrorStyle::ollama && request.header("origin").empty() &&
         request.header("sec-fetch-site").empty();
}

}  // namespace

std::string new_request_id() {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::random_device random;
  std::string id = "req-";
  for (int word = 0; word < 4; ++word) {
    auto bits = random();
    for (int digit = 0; digit < 8; ++digit, bits >>= 4) id += kDigits[bits & 15];
  }
  return id;
}

Admission Gate::admit(RequestHead& head) const {
  Admission out;
  auto target = parse_target(head.target);
  if (target) out.form.style = error_style(target->path);
  out.form.without_body = head.verb == Verb::head;
  out.form.is_http10 = head.is_http10;
  out.form.keep_alive = head.keep_alive;
  out.form.cors = cors_headers(head.header("origin"));
  out.form.request_id = is_usable_id(head.header("x-request-id")) ? head.header("x-request-id") : new_request_id();
  out.request.verb = head.verb;
  out.request.request_id = out.form.request_id;
  out.request.headers = std::move(head.headers);
  if (!is_served(head.verb)) {
    out.refusal = ErrorAnswer{501, "this method is not supported"};
  } else if (!target) {
    out.refusal = ErrorAnswer{400, target.error().message};
  } else {
    out.request.path = std::move(target->path);
    out.request.query = std::move(target->query);
    look_up(out, target->raw_path);
    if (!out.refusal) check_page(out);
    if (out.route != nullptr && !out.refusal) check_key(out);
    if (out.route == nullptr && !out.refusal && head.has_body) {
      out.refusal = ErrorAnswer{400, "this request must not have a body"};
    }
    if (!out.refusal) check_body(out, head);
  }
  return out;
}

/// Sets the route, or the refusal if there is none, or the headers of the answer to a preflight.
void Gate::look_up(Admission& out, const std::string& raw_path) const {
  auto match = routes_.match(out.request.verb, raw_path);
  out.route = match.route;
  out.request.params = std::move(match.params);
  if (out.route != nullptr) return;
  if (match.allowed.empty()) {
    out.refusal = ErrorAnswer{404, "there is no route " + out.request.path, {}, "not_found"};
    return;
  }
  const bool is_preflight = out.request.verb == Verb::options && !out.form.cors.empty() &&
                            !out.request.header("access-control-request-method").empty();
  const auto allowed = joined_names(match.allowed);
  if (!is_preflight) {
    out.headers.emplace_back("allow", allowed);
    out.refusal = ErrorAnswer{405, out.request.path + " supports only " + allowed, {}, "method_not_allowed"};
    return;
  }
  out.headers.emplace_back("access-control-allow-methods", allowed);
  const auto wanted = out.request.header("access-control-request-headers");
  if (!wanted.empty()) out.headers.emplace_back("access-control-allow-headers", wanted);
  out.headers.emplace_back("access-control-max-age", "600");
}

/// If no keys are required, refuses requests of pages from other sites. For the browser, a page whose host name was
/// redirected to this machine (DNS rebinding) has the same origin as this server. But the browser still sends the host
/// name that the page used, and headers which show that the request comes from a page.
void Gate::check_page(Admission& out) const {
  const auto& request = out.request;
  const bool is_page = !request.header("origin").empty() || !request.header("sec-fetch-site").empty();
  if (config_.keys->requires_keys() || !is_page || !out.form.cors.empty() ||
      is_name_of_this_machine(request.header("host"))) {
    return;
  }
  out.refusal =
      ErrorAnswer{403, "this server has no API keys, so web pages may call it only at localhost or a numeric address"};
}

void Gate::check_key(Admission& out) const {
  const auto key = key_of(out.request);
  const auto& keys = *config_.keys;
  if (!key.empty()) out.request.principal = keys.find(key);
  const bool is_known = out.request.principal != nullptr;
  const auto access = out.route->access;
  const bool is_closed = access == Access::admin || (access == Access::key && keys.requires_keys()) ||
                         (access == Access::monitor && (keys.requires_keys() || keys.has_admins()));
  if (!is_closed || out.request.is_admin() || (access == Access::key && is_known)) return;
  if (is_known || (access != Access::key && !keys.has_admins())) {
    out.refusal = ErrorAnswer{403, "this route needs an admin key", {}, "admin_key_required"};
    return;
  }
  out.headers.emplace_back("www-authenticate", "Bearer");
  out.refusal =
      key.empty()
          ? ErrorAnswer{401, "an API key is required: send the header Authorization: Bearer KEY", {}, "missing_api_key"}
          : ErrorAnswer{401, "this API key is unknown", {}, "invalid_api_key"};
}

/// Requires JSON as content type. This also stops pages of other sites: without a CORS preflight a browser lets such
/// pages send only plain text and forms.
void Gate::check_body(Admission& out, const RequestHead& head) const {
  const auto& request = out.request;
  const auto expect = request.header("expect");
  out.expects_continue = !expect.empty() && !head.is_http10;
  if (lower_case(request.header("upgrade")).find("websocket") != std::string::npos) {
    out.refusal = ErrorAnswer{400, "WebSocket is not supported"};
  } else if (!expect.empty() && !equals_ignoring_case(expect, "100-continue")) {
    out.refusal = ErrorAnswer{417, "the only supported value of Expect is 100-continue"};
  } else if (head.content_length.value_or(0) > static_cast<std::uint64_t>(config_.max_body_bytes)) {
    out.refusal = ErrorAnswer{413, "the body is longer than " + std::to_string(config_.max_body_bytes) + " bytes"};
  } else if (head.has_body && !is_json(request.header("content-type")) && !is_ollama_program(request)) {
    out.refusal = ErrorAnswer{415, "the body must be JSON, with the header Content-Type: application/json"};
  } else if (const auto coding = request.header("content-encoding");
             !coding.empty() && !equals_ignoring_case(coding, "identity")) {
    out.refusal = ErrorAnswer{415, "a body with a Content-Encoding is not supported"};
  }
}

Pairs Gate::cors_headers(std::string_view origin) const {
  const auto& allowed = config_.cors_origin;
  if (allowed.empty() || origin.empty() || (allowed != "*" && allowed != origin)) return {};
  Pairs headers{{"access-control-allow-origin", allowed}, {"access-control-expose-headers", kExposedHeaders}};
  if (allowed != "*") headers.emplace_back("vary", "origin");
  return headers;
}

}  // namespace pagoda::http
