#include "io/http/stream_routes.hpp"

#include <charconv>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <tl/expected.hpp>

#include "io/http/error_answer.hpp"
#include "io/http/exchange.hpp"
#include "io/http/stream_follower.hpp"
#include "io/wire/json_writer.hpp"

namespace pagoda::http {
namespace {

using SharedStream = std::shared_ptr<serving::ResumableStream>;

std::optional<std::uint64_t> read_number(std::string_view text) {
  std::uint64_t number = 0;
  const auto* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, number);
  if (text.empty() || read.ec != std::errc() || read.ptr != end) return std::nullopt;
  return number;
}

/// Returns the number of the first event to send: `from` of the query; or, for a browser that reconnects, the number
/// after its header Last-Event-ID; or else 0.
tl::expected<std::uint64_t, ErrorAnswer> first_wanted(const Request& request) {
  for (const auto& [name, value] : request.query) {
    if (name != "from") return tl::unexpected(invalid_request(name + " is not supported", name));
    const auto from = read_number(value);
    if (!from) return tl::unexpected(invalid_request("from must be the number of an event, from 0", "from"));
    return *from;
  }
  const auto last = read_number(request.header("last-event-id"));
  return last ? *last + 1 : 0;
}

std::string id_of(const Request& request) {
  return std::string(find_value(request.params, "id"));
}

SharedStream stream_of(const ApiContext& context, const Request& request) {
  return context.streams.find(serving::stream_name(request.principal, id_of(request)));
}

ErrorAnswer no_such_stream(const Request& request) {
  return {404, "no stream is kept for a request " + id_of(request) + " of this key", {}, "not_found"};
}

void follow(const ApiContext& context, std::shared_ptr<Exchange> exchange, const Request& request) {
  const auto from = first_wanted(request);
  if (!from) return exchange->respond_error(from.error());
  auto stream = stream_of(context, request);
  if (!stream) return exchange->respond_error(no_such_stream(request));
  const auto& history = stream->history();
  if (*from < history.first()) {
    return exchange->respond_error(
        {410, "events before number " + std::to_string(history.first()) + " are no longer kept", "from"});
  }
  if (stream->has_ended() && *from > history.next()) {
    return exchange->respond_error(
        invalid_request("the stream has ended after " + std::to_string(history.next()) + " events", "from"));
  }
  if (request.verb != Verb::head) return follow_stream(std::move(exchange), std::move(stream), *from);
  exchange->begin_stream(200, "text/event-stream");  // does not replace the stream's reader
}

void cancel(const ApiContext& context, Exchange& exchange, const Request& request) {
  const auto stream = stream_of(context, request);
  if (!stream) return exchange.respond_error(no_such_stream(request));
  const bool was_live = !stream->has_ended();
  stream->cancel();
  std::string out;
  wire::JsonWriter json(out);
  json.open_object().field("id", stream->name().id).field("object", "stream").field("cancelled", was_live);
  json.close_object();
  exchange.respond(200, "application/json", std::move(out));
}

}  // namespace

void add_stream_routes(Routes& routes, const ApiContext& context) {
  routes.add(Verb::get, "/v1/streams/{id}", Access::key,
             [&context](std::shared_ptr<Exchange> exchange, const Request& request) {
               follow(context, std::move(exchange), request);
             });
  routes.add(Verb::delete_, "/v1/streams/{id}", Access::key,
             [&context](const auto& exchange, const Request& request) { cancel(context, *exchange, request); });
}

}  // namespace pagoda::http
