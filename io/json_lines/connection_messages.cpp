/// Handles the messages of a connection's client.

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "engine/routing/prompt_estimate.hpp"
#include "engine/routing/queue_full.hpp"
#include "io/json_lines/connection.hpp"
#include "io/memory_reserve.hpp"
#include "io/serving/prompt_log.hpp"
#include "io/serving/tenancy.hpp"
#include "io/version.hpp"

namespace pagoda::json_lines {

bool Connection::is_authorized() {
  if (principal_ && principal_->is_outdated) principal_ = context_.config.keys->find(*key_);
  return principal_ || !context_.config.keys->requires_keys();
}

LineModels Connection::line_models() {
  return is_authorized() ? context_.line_models : context_.closed_models;
}

serving::RequestRecord Connection::record_of(const GenerateOp& op) const {
  serving::RequestRecord record{
      .api = serving::kJsonLines, .request_id = op.id, .client = client_, .route = "generate"};
  const std::string& adapter = op.request->adapter;
  record.generation.emplace().model = adapter.empty() ? model(op.model).info.name : adapter;
  record.generation->asked(op.request->sampling, op.request->open);
  return record;
}

void Connection::run(GenerateOp& op) {
  if (tags_.contains(op.id) || attached_.contains(op.id)) {
    return refuse(op.id, WireCode::duplicate_id, "a request with this id is live on this connection", "id");
  }
  const auto num_live = live_.size() + attached_.size();
  if (num_live >= static_cast<std::size_t>(context_.config.max_live_requests_per_connection)) {
    return refuse(op.id, WireCode::queue_full,
                  "this connection has " + std::to_string(num_live) + " live requests, which is its limit", {},
                  routing::kRetryAfterMs);
  }
  op.request->request_id = op.id;
  if (op.request->resumable) return run_resumable(op);
  const auto& router = model(op.model).router;
  Live live{op.id, op.timing, op.request->stream, router, record_of(op), op.reading};
  if (live.reading && live.stream) live.calls.emplace(live.reading);
  auto& request = *op.request;
  if (auto refusal = admit(request, live.record, live.ticket, live.prompt_tokens)) {
    report(live);
    return append_error(queue_.line(), op.id, *refusal);
  }
  request.stream |= live.ticket.counts_tokens();  // else tokens before a disconnect would not be charged
  const auto tag = ++last_tag_;
  live_.emplace(tag, std::move(live));
  tags_.emplace(op.id, tag);
  session_.submit(router, tag, std::move(op.request));
}

std::optional<WireError> Connection::admit(GenerateRequest& request, serving::RequestRecord& record,
                                           serving::TenantTicket& ticket, std::int64_t& prompt_tokens) {
  if (const auto refusal = io::refusal(context_.config.reserve)) {
    auto reported = wire_error(*refusal);
    record.error = to_string(reported.code);
    return reported;
  }
  if (!has_room()) {
    auto reported = no_room();
    record.error = to_string(reported.code);
    return reported;
  }
  serving::apply_tenant(*context_.config.keys, principal_, request);
  if (principal_) {
    record.tenant = principal_->tenant.name;
    prompt_tokens = routing::estimated_prompt_tokens(request);
    if (const auto refusal = ticket.admit(principal_->usage, 1, prompt_tokens)) {
      const auto wait = static_cast<int>(refusal->retry_after.count());
      const auto code = wait == 0 ? WireCode::invalid_request : WireCode::rate_limited;
      record.error = to_string(code);
      return WireError{code, refusal->message, {}, wait == 0 ? -1 : wait};
    }
  }
  if (context_.config.log_prompts) serving::log_prompt(request);
  return std::nullopt;
}

void Connection::run(CancelOp& op) {
  if (const auto attached = attached_.find(op.id); attached != attached_.end()) {
    return attached->second->stream->cancel();
  }
  const auto it = tags_.find(op.id);
  if (it == tags_.end()) return refuse(op.id, WireCode::unknown_id, "no live request has this id", "id");
  session_.cancel(live_.at(it->second).router, it->second);
}

void Connection::run(PingOp& op) {
  append_pong(queue_.line(), op.id, version());
}

void Connection::run(AuthOp& op) {
  const auto digest = serving::digest_of(op.key);
  auto principal = context_.config.keys->find(digest);
  if (!principal && context_.config.keys->requires_keys()) {
    return refuse(op.id, WireCode::unauthorized, "this key is not known", "key");
  }
  key_ = digest;
  principal_ = std::move(principal);
  append_ok(queue_.line(), op.id);
}

void Connection::run(TokenizeOp& op) {
  ask(op.model, std::move(op.id), actors::TokenizeRequest{std::move(op.text), op.add_special_tokens});
}

void Connection::run(DetokenizeOp& op) {
  ask(op.model, std::move(op.id), actors::DetokenizeRequest{std::move(op.token_ids), op.skip_special_tokens});
}

void Connection::run(ApplyTemplateOp& op) {
  append_text(queue_.line(), op.id, op.text);
}

void Connection::run(ModelOp& op) {
  ask(op.model, std::move(op.id), actors::GetModelInfo{});
}

void Connection::run(StatsOp& op) {
  ask(op.model, std::move(op.id), actors::GetStats{});
}

void Connection::run(ChangeAdapterOp& op) {
  if (principal_ == nullptr || !principal_->is_admin()) {
    return refuse(op.id, WireCode::unauthorized, "this op needs an admin key");
  }
  const auto& adapters = model(op.model).adapters;
  if (adapters == nullptr) {
    return refuse(op.id, WireCode::invalid_request,
                  "the model has no adapters: start with --enable-lora or --enable-prompt-adapter");
  }
  const auto has_name = [&](const serving::ServedModel& other) { return other.serves(op.name); };
  if (op.path && std::ranges::any_of(context_.models.all(), has_name)) {
    return refuse(op.id, WireCode::invalid_request, "`" + op.name + "` is the name of a model", "name");
  }
  auto change = op.path ? adapters->begin_add(op.name, *op.path) : adapters->begin_remove(op.name);
  if (!change) return append_error(queue_.line(), op.id, adapter_error(change.error()));
  ask(op.model, std::move(op.id), std::move(*change));
}

void Connection::run(AdaptersOp& op) {
  append_adapters(queue_.line(), op.id, model(op.model).adapters.get());
}

void Connection::ask(std::size_t index, ClientId id, serving::Query question) {
  const auto tag = ++last_tag_;
  asked_.emplace(tag, std::move(id));
  session_.ask(model(index).router, tag, std::move(question));
}

void Connection::refuse(const ClientId& id, WireCode code, std::string message, std::string param, int retry_after_ms) {
  append_error(queue_.line(), id, {code, std::move(message), std::move(param), retry_after_ms});
}

}  // namespace pagoda::json_lines
