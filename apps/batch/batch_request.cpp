#include "apps/batch/batch_request.hpp"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "io/chat/json_span.hpp"
#include "io/wire/json_reader.hpp"
#include "io/wire/json_writer.hpp"

namespace pagoda::apps::batch {
namespace {

using http::ErrorAnswer;
using wire::Json;

constexpr std::size_t kMaxDepth = 512;  // the routes have their own limit for the body
constexpr std::array<std::string_view, 3> kUrls{"/v1/chat/completions", "/v1/completions", "/v1/responses"};
constexpr unsigned kAnswered = 200;

tl::unexpected<ErrorAnswer> refused(std::string message, std::string param = {}, std::string code = {}) {
  return tl::unexpected(ErrorAnswer{400, std::move(message), std::move(param), std::move(code)});
}

/// Returns the JSON value with which `text` begins, as it is written.
std::string_view value_text(std::string_view text) {
  if (!chat::JsonSpan::begins_with(text.front())) return text.substr(0, text.find_first_of(",} \t\r"));
  chat::JsonSpan span;
  return text.substr(0, span.consume(text));
}

/// Returns the value of a member as it is written, so that numbers keep their digits. `object` is valid JSON.
std::string_view member_text(std::string_view object, std::string_view name) {
  for (std::size_t at = object.find('{') + 1;;) {
    const auto next = [&] {
      at = object.find_first_not_of(" \t\r:,", at);
      const auto text = value_text(object.substr(at));
      at += text.size();
      return text;
    };
    const auto key = next();
    const auto value = next();
    if (Json::parse(key) == name) return value;
  }
}

const Json* find(const Json& object, const char* name) {
  const auto found = object.find(name);
  return found == object.end() ? nullptr : &*found;
}

}  // namespace

std::string BatchParser::id_of_next(const LineReader::Line& line) const {
  std::uint64_t hash = 14695981039346656037U;  // FNV-1a
  const auto mix = [&hash](std::uint8_t byte) { hash = (hash ^ byte) * 1099511628211U; };
  for (const char c : line.text) mix(static_cast<std::uint8_t>(c));
  for (int shift = 0; shift < 64; shift += 8) mix(static_cast<std::uint8_t>(std::uint64_t{num_parsed_} >> shift));
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string id = "batch_req_";
  for (int shift = 60; shift >= 0; shift -= 4) id += kDigits[(hash >> shift) & 15];
  return id;
}

BatchRequest BatchParser::parse(const LineReader::Line& line) {
  BatchRequest out{.id = id_of_next(line), .custom_id = {}, .request = {}};
  ++num_parsed_;
  out.request = read(line, out);
  if (!out.request) {
    auto& message = out.request.error().message;
    message = "line " + std::to_string(line.number) + ": " + message;
  }
  return out;
}

tl::expected<http::LocalRequest, ErrorAnswer> BatchParser::read(const LineReader::Line& line, BatchRequest& out) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  std::string_view text = line.text;
  if (line.number == 1 && text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  if (line.is_too_long) {
    return tl::unexpected(ErrorAnswer{413, "the line is longer than " + std::to_string(max_line_bytes_) + " bytes"});
  }
  const auto json = wire::read_json(text, kMaxDepth);
  if (!json) return refused(json.error().message, {}, "invalid_json_line");
  if (!json->is_object()) return refused("must be an object with custom_id, method, url and body");
  const Json* custom_id = find(*json, "custom_id");
  if (custom_id == nullptr || !custom_id->is_string()) return refused("custom_id must be a string", "custom_id");
  out.custom_id = custom_id->get<std::string>();
  if (!custom_ids_.insert(*out.custom_id).second) {
    return refused("custom_id is already used by an earlier line", "custom_id", "duplicate_custom_id");
  }
  const Json* method = find(*json, "method");
  if (method == nullptr || *method != "POST") return refused("method must be \"POST\"", "method");
  const Json* url = find(*json, "url");
  const bool is_known =
      url != nullptr && url->is_string() && std::ranges::find(kUrls, url->get_ref<const std::string&>()) != kUrls.end();
  if (!is_known) {
    return refused("url must be /v1/chat/completions, /v1/completions or /v1/responses" +
                       (url == nullptr ? std::string() : ", not " + url->dump()),
                   "url", "invalid_url");
  }
  const Json* body = find(*json, "body");
  if (body == nullptr || !body->is_object()) return refused("body must be an object", "body");
  if (const Json* stream = find(*body, "stream"); stream != nullptr && *stream == true) {
    return refused("stream must be false in a batch", "stream");
  }
  return http::LocalRequest{url->get<std::string>(), std::string(member_text(text, "body")), out.id};
}

std::string result_begin(const std::string& id) {
  return R"({"id":")" + id + R"(",)";
}

std::string result_line(const BatchRequest& request, unsigned status, std::string body) {
  std::ranges::replace(body, '\n', ' ');  // line ends are only between values: within values they are escaped
  std::string line;
  wire::JsonWriter json(line);
  json.open_object().field("id", request.id).key("custom_id");
  if (request.custom_id) {
    json.value(*request.custom_id);
  } else {
    json.null();
  }
  json.key("response").open_object().field("status_code", std::int64_t{status}).field("request_id", request.id);
  json.key("body").raw(body).close_object().key("error");
  if (status == kAnswered) {
    json.null();
  } else {
    const auto answer = Json::parse(body, nullptr, /*allow_exceptions=*/false);
    const auto error = answer.is_object() ? answer.value("error", Json::object()) : Json::object();
    const auto code = error.value("code", Json());
    const auto message = error.value("message", Json());
    json.open_object().field("code", code.is_string() ? code.get<std::string>() : "http_" + std::to_string(status));
    json.field("message", message.is_string() ? message.get<std::string>() : "status " + std::to_string(status));
    json.close_object();
  }
  json.close_object();
  return line + "\n";
}

std::string result_line(const BatchRequest& request, const ErrorAnswer& error) {
  return result_line(request, error.status, http::error_body(http::ErrorStyle::openai, error));
}

}  // namespace pagoda::apps::batch
