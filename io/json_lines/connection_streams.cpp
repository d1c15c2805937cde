// Resumable requests of a connection: it sends the events of their streams, from the number that the client requests.

#include <chrono>
#include <memory>
#include <string>
#include <utility>

#include "engine/routing/queue_full.hpp"
#include "io/json_lines/connection.hpp"
#include "io/json_lines/resumable_request.hpp"

namespace pagoda::json_lines {

void Connection::run_resumable(GenerateOp& op) {
  auto& request = *op.request;
  if (op.reading) {
    return refuse(op.id, WireCode::invalid_request,
                  "resumable is not supported if the answer is parsed: with tools, or with structured outputs "
                  "after thinking",
                  "resumable");
  }
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  const serving::RequestOrigin origin{.api = serving::Api::json_lines,
                                      .name = serving::stream_name(principal_, op.id),
                                      .came_ms = std::chrono::duration_cast<std::chrono::milliseconds>(now).count(),
                                      .timeout_ms = request.timeout_ms,
                                      .timing = op.timing,
                                      .stream = request.stream,
                                      .path = {},
                                      .body = {},
                                      .own_id = {},
                                      .created = 0};
  auto stream = context_.streams.open(context_.io, origin.name);
  if (!stream) return append_error(queue_.line(), op.id, wire_error(stream.error()));
  auto record = record_of(op);
  serving::TenantTicket ticket;
  std::int64_t prompt_tokens = 0;
  if (const auto refusal = admit(request, record, ticket, prompt_tokens)) {
    (*stream)->withdraw();
    record.generation->finish_reason = "error";
    context_.telemetry.ended(record);
    return append_error(queue_.line(), op.id, *refusal);
  }
  (*stream)->admitted();
  request.resume = serving::note_of(origin, context_.streams.config());
  attach(*stream, 0);
  json_lines::run_resumable(context_, std::move(op), std::move(*stream), std::move(ticket), prompt_tokens,
                            std::move(record));
}

void Connection::run(AttachOp& op) {
  if (tags_.contains(op.id)) {
    return refuse(op.id, WireCode::duplicate_id, "a request with this id is live on this connection", "id");
  }
  auto stream = context_.streams.find(serving::stream_name(principal_, op.id));
  if (!stream) {
    return refuse(op.id, WireCode::unknown_id, "no resumable request with this id is live or has just ended", "id");
  }
  const auto& history = stream->history();
  const auto from = static_cast<std::uint64_t>(op.from);
  if (from < history.first()) {
    return refuse(op.id, WireCode::invalid_request,
                  "events before number " + std::to_string(history.first()) + " are no longer kept", "from");
  }
  if (stream->has_ended() && from > history.next()) {
    return refuse_from(op.id, history);
  }
  attach(std::move(stream), from);
}

void Connection::refuse_from(const std::string& id, const serving::EventHistory& history) {
  refuse(id, WireCode::invalid_request, "the request has ended after " + std::to_string(history.next()) + " events",
         "from");
}

/// Makes this connection the reader of a stream. The next pump() sends the stream's events.
void Connection::attach(std::shared_ptr<serving::ResumableStream> stream, std::uint64_t from) {
  attached_.erase(stream->name().id);  // an earlier attach of this connection
  auto reader = std::make_unique<Attached>(*this, stream, from);
  stream->attach(*reader);
  attached_.emplace(stream->name().id, std::move(reader));
}

void Connection::on_replaced(const std::string& id) {
  const auto replaced = attached_.extract(id);
  if (!replaced) return;
  refuse(id, WireCode::unknown_id, "another connection has attached to this request", "id");
  pump();
}

/// Queues events up to coalesce_bytes; the rest stays in the streams.
void Connection::read_streams() {
  for (auto next = attached_.begin(); next != attached_.end();) {
    const auto current = next++;
    auto& [id, reader] = *current;
    const auto& history = reader->stream->history();
    if (reader->next < history.first()) {
      refuse(id, WireCode::queue_full, "output is read too slowly: its events are no longer kept", {},
             routing::kRetryAfterMs);
      attached_.erase(current);
      continue;
    }
    while (reader->next < history.next() &&
           queue_.bytes() <= static_cast<std::size_t>(context_.config.coalesce_bytes)) {
      queue_.line() += history.at(reader->next++);
    }
    if (!reader->stream->has_ended() || reader->next < history.next()) continue;
    if (reader->next > history.next()) refuse_from(id, history);  // the stream ended before the requested event
    attached_.erase(current);
  }
}

}  // namespace pagoda::json_lines
