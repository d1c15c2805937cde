#include "io/http/body.hpp"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <limits>
#include <utility>

#include <spdlog/spdlog.h>

#include "io/http/adapter_scales.hpp"
#include "io/http/gate.hpp"
#include "io/serving/nearest_model.hpp"

namespace pagoda::http {
namespace {

constexpr std::size_t kMaxDepth = 64;

}  // namespace

tl::expected<wire::Json, ErrorAnswer> read_object(std::string_view body) {
  auto object = wire::read_json(body, kMaxDepth, wire::Integers::exact);
  if (!object) return tl::unexpected(error_answer(object.error()));
  if (!object->is_object()) return tl::unexpected(invalid_request("the body must be one JSON object"));
  return std::move(*object);
}

namespace {

tl::expected<serving::SharedModel, ErrorAnswer> named_model(const ApiContext& context, const wire::Json& object) {
  const auto named = object.find("model");
  if (named == object.end() || named->is_null()) {
    if (!context.models.are_several()) return context.models.shared(context.models.first());
    return tl::unexpected(
        invalid_request("model is required: this server has " + context.models.listed("`", "`"), "model"));
  }
  if (!named->is_string()) return tl::unexpected(invalid_request("model must be a string", "model"));
  const auto& name = named->get_ref<const std::string&>();
  auto model = context.models.find(name);
  if (model == nullptr) return tl::unexpected(no_such_model(context, name));
  return model;
}

}  // namespace

tl::expected<ModelBody, ErrorAnswer> read_body(const ApiContext& context, std::string_view body) {
  auto object = read_object(body);
  if (!object) return tl::unexpected(std::move(object.error()));
  auto model = named_model(context, *object);
  if (!model) return tl::unexpected(std::move(model.error()));
  const auto lora = object->find("lora");
  if (lora == object->end()) return ModelBody{std::move(*object), std::move(*model)};
  if (!lora->is_null()) {
    const auto adapter = selected_adapter(*lora, **model);
    if (!adapter) return tl::unexpected(adapter.error());
    if (*adapter != (*model)->adapter()) {
      *model = std::make_shared<const serving::ServedModel>((*model)->with_adapter(*adapter));
    }
  }
  object->erase(lora);
  return ModelBody{std::move(*object), std::move(*model)};
}

tl::expected<const serving::ServedModel*, ErrorAnswer> model_of_query(const ApiContext& context,
                                                                      const Request& request) {
  const auto name = find_value(request.query, "model");
  if (name.empty()) return &context.models.first();
  if (const auto* model = context.models.find_model(name)) return model;
  return tl::unexpected(no_such_model(context, std::string(name)));
}

ErrorAnswer no_such_model(const ApiContext& context, const std::string& name) {
  return {404,
          "The model `" + name + "` does not exist." + serving::did_you_mean(name, context.models, "`") +
              " Served: " + context.models.listed("`", "`"),
          "model", "model_not_found"};
}

ErrorAnswer no_chat_template() {
  return {400, "the model has no chat template: use /v1/completions, or start the server with --chat-template",
          "messages"};
}

void respond_failure(Exchange& exchange, const std::string& why) {
  spdlog::error("request {}: {}", exchange.request_id(), why);
  exchange.respond_error({500, "the server failed on this request"});
}

void report_ignored(const ApiContext& context, Exchange& exchange, const wire::IgnoredFields& ignored) {
  if (ignored.names().empty()) return;
  context.telemetry->ignored_fields.add(ignored.names(), exchange.request_id());
  exchange.set_ignored_fields(ignored.header());
}

bool refuses_new_work(const ApiContext& context, Exchange& exchange) {
  auto refusal = io::refusal(context.reserve);
  if (context.is_draining) refusal = Error{ErrorCode::shutting_down, "the server is shutting down"};
  if (refusal) exchange.respond_error(error_answer(*refusal));
  return refusal.has_value();
}

namespace {

/// Adds the origin of a resumable request to its job, so that the stream can outlive the connection. Error: the request
/// cannot be resumable.
ParsedJob with_origin(const ApiContext& context, GenerationJob job, const std::string& path, Request request) {
  const auto& config = context.streams.config();
  const auto refused = [](std::string why) { return tl::unexpected(invalid_request(std::move(why), "resumable")); };
  if (!job.stream) return refused("resumable needs stream: true");
  if (job.requests.size() > 1) return refused("resumable supports one prompt only");
  if (config.is_recorded && request.body.size() > serving::kMaxOriginBytes) {
    return refused("resumable supports bodies of at most " + std::to_string(serving::kMaxOriginBytes) +
                   " bytes if streams are recorded (--journal)");
  }
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  job.origin = serving::RequestOrigin{.api = serving::Api::http,
                                      .name = serving::stream_name(request.principal, request.request_id),
                                      .arrival_ms = std::chrono::duration_cast<std::chrono::milliseconds>(now).count(),
                                      .timeout_ms = job.requests.front().timeout_ms,
                                      .path = path,
                                      .body = std::move(request.body),
                                      .own_id = std::move(request.own_id),
                                      .created = request.created};
  return job;
}

}  // namespace

Handler generating(const ApiContext& context, std::string path, ParseJob parse,
                   bool (*may_take_long)(const Request& request)) {
  context.parsers.emplace(path, parse);
  return [&context, path = std::move(path), parse = std::move(parse), may_take_long](std::shared_ptr<Exchange> exchange,
                                                                                     Request request) {
    if (refuses_new_work(context, *exchange)) return;
    const bool takes_long = may_take_long != nullptr && may_take_long(request);
    const auto body_bytes = takes_long ? std::numeric_limits<std::size_t>::max() : request.body.size();
    auto principal = request.principal;
    request.own_id = new_request_id();
    request.created = static_cast<std::int64_t>(std::time(nullptr));
    auto prepare = [&context, path, parse, request = std::move(request)]() mutable -> ParsedJob {
      auto body = read_body(context, request.body);
      if (!body) return tl::unexpected(std::move(body.error()));
      auto job = parse(*body->model, body->json, request);
      if (!job) return job;
      job->set_model(body->model);
      if (!job->requests.front().resumable) return job;
      return with_origin(context, std::move(*job), path, std::move(request));
    };
    prepared(context, body_bytes, std::move(exchange), std::move(prepare),
             [&context, principal = std::move(principal)](auto answering, auto job) {
               if (job) {
                 run_generation(context, std::move(answering), std::move(*job), principal);
               } else {
                 answering->respond_error(job.error());
               }
             });
  };
}

namespace {

/// Reads the body of a recovered request that used `adapter`; empty = none, or that of a request which had ended before
/// an earlier recovery. This server may not know the adapter, because a client had loaded it. Then the engine refuses
/// the request, unless the request has ended.
tl::expected<ModelBody, ErrorAnswer> read_recovered_body(const ApiContext& context, std::string_view body,
                                                         const std::string& adapter) {
  if (adapter.empty()) {
    auto known = read_body(context, body);
    if (known || context.models.are_several()) return known;
  }
  auto object = read_object(body);
  if (!object) return tl::unexpected(std::move(object.error()));
  object->erase("lora");
  auto model = named_model(context, *object);
  const bool is_unknown = !model && !context.models.are_several();
  if (!model && !is_unknown) return tl::unexpected(std::move(model.error()));
  const serving::ServedModel& named = is_unknown ? context.models.first() : **model;
  if (!is_unknown && named.adapter() == adapter) return ModelBody{std::move(*object), std::move(*model)};
  const auto in_body = object->find("model");
  const bool is_named = in_body != object->end() && in_body->is_string();
  const std::string name = adapter.empty() && is_named ? in_body->get<std::string>() : adapter;
  return ModelBody{std::move(*object), std::make_shared<const serving::ServedModel>(named.with_adapter(name))};
}

}  // namespace

ParsedJob reparse_job(const ApiContext& context, const Request& request, const std::string& adapter) {
  const auto parser = context.parsers.find(request.path);
  if (parser == context.parsers.end()) return tl::unexpected(ErrorAnswer{404, "there is no route " + request.path});
  const auto parse = [&]() -> ParsedJob {
    const auto body = read_recovered_body(context, request.body, adapter);
    if (!body) return tl::unexpected(body.error());
    auto job = parser->second(*body->model, body->json, request);
    if (job) job->set_model(body->model);
    return job;
  };
  return prepare_body(context, parse).result;
}

}  // namespace pagoda::http
