#include "io/http/adapter_routes.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include <spdlog/spdlog.h>

#include "io/http/adapter_scales.hpp"
#include "io/http/body.hpp"
#include "io/http/engine_query.hpp"
#include "io/http/error_answer.hpp"
#include "io/wire/exact_json.hpp"
#include "io/wire/foreign_fields.hpp"
#include "io/wire/json_text.hpp"

namespace pagoda::http {
namespace {

using serving::ServedModel;
using serving::SharedAdapterChange;
using ParsedChange = tl::expected<SharedAdapterChange, ErrorAnswer>;

/// Returns the adapters of the model or of the model of an adapter.
tl::expected<std::shared_ptr<serving::ServedAdapters>, ErrorAnswer> adapters_of(const ServedModel& model) {
  if (model.adapters) return model.adapters;
  return tl::unexpected(invalid_request("the model `" + model.info.name +
                                        "` has no adapters: start with --enable-lora or --enable-prompt-adapter"));
}

ParsedChange begun(Result<SharedAdapterChange> change) {
  if (!change) return tl::unexpected(error_answer(change.error()));
  return std::move(*change);
}

ParsedChange parse_load(const ApiContext& context, const ServedModel& model, const wire::Json& body) {
  const auto adapters = adapters_of(model);
  if (!adapters) return tl::unexpected(adapters.error());
  wire::FieldReader fields(body, wire::FieldReader::Nulls::absent);
  std::string name;
  std::string path;
  fields.skip("model");
  fields.read_required("lora_name", name);
  fields.read_required("lora_path", path);
  wire::refuse_unless(fields, "load_inplace", {false}, ": unload the adapter first");
  wire::refuse_unless(fields, "is_3d_lora_weight", {false}, ": weights of adapters are matrices");
  if (auto status = fields.finish(); !status) return tl::unexpected(error_answer(status.error()));
  const auto has_name = [&](const ServedModel& other) { return other.serves(name); };
  if (std::ranges::any_of(context.models.all(), has_name)) {
    return tl::unexpected(invalid_request("lora_name `" + name + "` is the name of a model", "lora_name"));
  }
  return begun((*adapters)->begin_add(name, path));
}

ParsedChange parse_unload(const ServedModel& model, const wire::Json& body) {
  const auto adapters = adapters_of(model);
  if (!adapters) return tl::unexpected(adapters.error());
  wire::FieldReader fields(body, wire::FieldReader::Nulls::absent);
  std::string name;
  fields.skip("model");
  fields.skip("lora_int_id");  // vLLM ignores it too
  fields.read_required("lora_name", name);
  if (auto status = fields.finish(); !status) return tl::unexpected(error_answer(status.error()));
  return begun((*adapters)->begin_remove(name));
}

/// Sends a change to the engine and answers in vLLM's words.
void change(const ApiContext& context, const ServedModel& model, std::shared_ptr<Exchange> exchange,
            SharedAdapterChange change) {
  query_model(context, model, std::move(exchange), std::move(change), [](Exchange& answering, serving::Answer& answer) {
    const auto& made = *std::get<serving::AdapterChanged>(answer).change;
    const bool is_new = made.kind == serving::AdapterChange::Kind::add;
    std::string quoted;
    wire::append_string(quoted, made.adapter.name);
    spdlog::info("adapter {} is {}", quoted, is_new ? "loaded" : "unloaded");
    answering.respond(
        200, "text/plain; charset=utf-8",
        "Success: LoRA adapter '" + made.adapter.name + "' " + (is_new ? "added" : "removed") + " successfully.");
  });
}

template <class Parse>
Handler changing(const ApiContext& context, Parse parse) {
  return reading(context, parse, [&context](const ServedModel& model, auto exchange, SharedAdapterChange begun) {
    change(context, model, std::move(exchange), std::move(begun));
  });
}

/// Answers in llama-server's form.
void list_adapters(const ApiContext& context, Exchange& exchange, const Request& request) {
  const auto model = model_of_query(context, request);
  if (!model) return exchange.respond_error(model.error());
  auto list = wire::Json::array();
  if ((*model)->adapters != nullptr) {
    for (const auto& adapter : (*model)->adapters->list()) list.push_back(scale_entry(adapter));
  }
  exchange.respond(200, "application/json", wire::json_text(list));
}

/// Scales of the whole server cannot be set, except to 0, which they are.
void set_scales(const ApiContext& context, Exchange& exchange, const Request& request) {
  constexpr std::size_t kMaxDepth = 4;
  const auto model = model_of_query(context, request);
  if (!model) return exchange.respond_error(model.error());
  const auto list = wire::read_json(request.body, kMaxDepth, wire::Integers::exact);
  if (!list) return exchange.respond_error(error_answer(list.error()));
  const auto scales = read_scales(*list, **model);
  if (!scales) return exchange.respond_error(invalid_request(scales.error().message));
  if (std::ranges::any_of(*scales, &AdapterScale::is_applied)) {
    return exchange.respond_error(
        invalid_request("adapters cannot be applied to all requests: name one as `model`, or in a request's `lora`"));
  }
  exchange.respond(200, "application/json", R"({"success":true})");
}

}  // namespace

void add_adapter_routes(Routes& routes, const ApiContext& context) {
  const auto load = changing(context, [&context](const ServedModel& model, const wire::Json& body) {
    return parse_load(context, model, body);
  });
  routes.add(Verb::post, "/v1/load_lora_adapter", Access::admin,
             [&context, load](std::shared_ptr<Exchange> exchange, Request request) {
               if (!refuses_new_work(context, *exchange)) load(std::move(exchange), std::move(request));
             });
  routes.add(Verb::post, "/v1/unload_lora_adapter", Access::admin, changing(context, parse_unload));
  routes.add(Verb::get, "/lora-adapters", Access::key,
             [&context](const auto& exchange, const Request& request) { list_adapters(context, *exchange, request); });
  routes.add(Verb::post, "/lora-adapters", Access::key,
             [&context](const auto& exchange, const Request& request) { set_scales(context, *exchange, request); });
}

}  // namespace pagoda::http
