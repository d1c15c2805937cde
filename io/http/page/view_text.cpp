#include "io/http/page/view_text.hpp"

#include <string_view>

#include "io/wire/engine_facts.hpp"
#include "io/wire/json_writer.hpp"

namespace pagoda::http::page {
namespace {

using wire::JsonWriter;

/// Writes the milliseconds between two times of the engine; null if `to` is not known yet.
void write_ms(JsonWriter& json, std::string_view name, TimeUs from, TimeUs to) {
  json.key(name);
  to < 0 ? json.null() : json.value(static_cast<double>(to - from) / 1000.0);
}

std::string_view word(view::RequestState state) {
  switch (state) {
    case view::RequestState::waiting:
      return "waiting";
    case view::RequestState::running:
      return "running";
    case view::RequestState::swapped:
      return "swapped";
    case view::RequestState::waiting_for_grammar:
      return "waiting_for_grammar";
  }
  return "waiting";
}

std::string_view word(view::MoveKind kind) {
  switch (kind) {
    case view::MoveKind::copy:
      return "copy";
    case view::MoveKind::swap_out:
      return "swap_out";
    case view::MoveKind::swap_in:
      return "swap_in";
  }
  return "copy";
}

void write_live(JsonWriter& json, const view::LiveRequest& request, TimeUs now) {
  json.open_object().field("id", request.id).field("state", word(request.state));
  json.field("replica", request.replica);
  json.field("sequences", request.num_sequences).field("priority", request.priority);
  json.field("prompt_tokens", request.prompt_tokens).field("cached_tokens", request.cached_tokens);
  json.field("computed_tokens", request.computed_tokens).field("generated_tokens", request.generated_tokens);
  json.field("max_tokens", request.max_tokens).key("adapter").value_or_null(request.adapter);
  write_ms(json, "age_ms", request.arrival_us, now);
  write_ms(json, "queue_ms", request.arrival_us, request.first_scheduled_us);
  write_ms(json, "ttft_ms", request.arrival_us, request.first_token_us);
  json.field("preemptions", request.preemptions).field("restarts", request.restarts);
  json.field("draft_tokens", request.draft_tokens).field("drafts_accepted", request.drafts_accepted).close_object();
}

void write_ended(JsonWriter& json, const view::EndedRequest& request, TimeUs now) {
  json.open_object().field("id", request.id);
  json.field("finish_reason", request.finish_reason ? to_string(*request.finish_reason) : "error");
  json.field("prompt_tokens", request.prompt_tokens).field("cached_tokens", request.cached_tokens);
  json.field("generated_tokens", request.completion_tokens).key("adapter").value_or_null(request.adapter);
  write_ms(json, "ended_ms_ago", request.ended_us, now);
  write_ms(json, "queue_ms", request.arrival_us, request.first_scheduled_us);
  write_ms(json, "ttft_ms", request.arrival_us, request.first_token_us);
  write_ms(json, "total_ms", request.arrival_us, request.ended_us);
  json.field("preemptions", request.preemptions).field("restarts", request.restarts);
  json.field("draft_tokens", request.draft_tokens).field("drafts_accepted", request.drafts_accepted).close_object();
}

/// Writes runs of equal cells: number of cells, 1 + owner, number of references, whether cached.
void write_cells(JsonWriter& json, const std::vector<view::Cell>& cells) {
  json.key("cells").open_array();
  for (std::size_t first = 0, end = 0; first < cells.size(); first = end) {
    const view::Cell& cell = cells[first];
    while (end < cells.size() && cells[end] == cell) ++end;
    json.value(end - first).value(cell.owner + 1).value(cell.references).value(cell.is_cached ? 1 : 0);
  }
  json.close_array();
}

void write_blocks(JsonWriter& json, const view::BlockMap& map) {
  json.key("blocks").open_object();
  json.field("step", map.step).field("block_size", map.block_size).field("total", map.num_blocks);
  json.field("per_cell", map.blocks_per_cell);
  write_cells(json, map.cells);
  json.field("num_owners", map.num_owners);
  json.key("owners").array(map.owners, [](JsonWriter& list, const view::Owner& owner) {
    list.open_object().field("sequence", owner.sequence).field("request", owner.request);
    list.field("on_host", owner.on_host).field("blocks", owner.num_blocks).field("tokens", owner.num_tokens);
    list.close_object();
  });
  json.key("moves").array(map.moves, [](JsonWriter& list, const view::Move& move) {
    list.open_object().field("step", move.step).field("kind", word(move.kind));
    list.field("from", move.from).field("to", move.to).close_object();
  });
  json.close_object();
}

void write_spans(JsonWriter& json, const std::vector<trace::Span>& spans) {
  json.key("spans").array(spans, [](JsonWriter& list, const trace::Span& span) {
    list.open_object().field("row", trace::kRowNames[static_cast<std::size_t>(span.row)]).field("name", span.name);
    list.field("replica", span.place.replica).field("rank", span.place.rank);
    list.field("started_us", span.started_us).field("duration_us", span.finished_us - span.started_us);
    for (const trace::Arg& arg : span.args()) list.field(arg.name, arg.value);
    list.close_object();
  });
}

}  // namespace

std::string view_text(const view::EngineView& view) {
  std::string out;
  JsonWriter json(out);
  json.open_object().field("now_us", view.now_us);
  json.key("stats").open_object();
  wire::write_stats(json, view.stats);
  json.close_object();
  json.key("requests").array(view.queues.requests, [&](JsonWriter& list, const view::LiveRequest& request) {
    write_live(list, request, view.now_us);
  });
  json.key("ended").array(view.ended, [&](JsonWriter& list, const view::EndedRequest& request) {
    write_ended(list, request, view.now_us);
  });
  json.key("steps_in_flight").array(view.queues.steps_in_flight, [](JsonWriter& list, const view::StepInFlight& step) {
    list.open_object().field("step", step.step).field("replica", step.replica);
    list.field("tokens", step.num_tokens).field("rows", step.num_rows);
    list.close_object();
  });
  json.field("replicas", view.num_replicas).field("replica", view.replica);
  write_blocks(json, view.blocks);
  write_spans(json, view.spans);
  json.close_object();
  return out;
}

}  // namespace pagoda::http::page
