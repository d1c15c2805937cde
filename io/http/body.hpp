#pragma once

#include <exception>
#include <functional>
#include <limits>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>

#include <boost/asio/post.hpp>
#include <tl/expected.hpp>

#include "io/http/api_context.hpp"
#include "io/http/error_answer.hpp"
#include "io/http/exchange.hpp"
#include "io/http/generation.hpp"
#include "io/http/routes.hpp"
#include "io/memory_reserve.hpp"
#include "io/serving/post_result.hpp"
#include "io/serving/small_text.hpp"
#include "io/wire/ignored_fields.hpp"
#include "io/wire/json_reader.hpp"

namespace pagoda::http {

/// Parses the body as a JSON object. Errors: 400.
tl::expected<wire::Json, ErrorAnswer> read_object(std::string_view body);

/// A body as a JSON object, and the model or adapter that its member `model` names. The member is optional if only one
/// model is served. `lora`, with which llama-server's clients select an adapter, is taken out of the object.
struct ModelBody {
  wire::Json json;
  serving::SharedModel model;
};
tl::expected<ModelBody, ErrorAnswer> read_body(const ApiContext& context, std::string_view body);

/// Returns the model that `model` in the target's query names, or the first model without `model`. The name of an
/// adapter selects its model.
tl::expected<const serving::ServedModel*, ErrorAnswer> model_of_query(const ApiContext& context,
                                                                      const Request& request);
ErrorAnswer no_such_model(const ApiContext& context, const std::string& name);
ErrorAnswer no_chat_template();

/// Answers a request whose processing failed in the server: sends 500 and logs `why`.
void respond_failure(Exchange& exchange, const std::string& why);

/// Result of `prepare`, and the fields that `prepare` ignored.
template <class Prepare>
struct Prepared {
  std::invoke_result_t<Prepare&> result;
  wire::IgnoredFields ignored;
};

/// Runs `prepare` under the context's rule for unknown fields.
template <class Prepare>
Prepared<Prepare> prepare_body(const ApiContext& context, Prepare& prepare) {
  wire::IgnoredFields ignored(context.unknown_fields);
  const wire::IgnoredFields::Scope scope(ignored);
  auto result = prepare();
  return {std::move(result), std::move(ignored)};
}

/// Reports the ignored fields in the answer's header, the log and the metrics.
void report_ignored(const ApiContext& context, Exchange& exchange, const wire::IgnoredFields& ignored);

/// Runs `prepare` and then, on the I/O thread, `then(exchange, result)`. A small body is prepared at once. A large body
/// would block the I/O thread, so it is prepared on the context's worker thread. If `prepare` or `then` throws for a
/// large body, the answer is 503 for std::bad_alloc and 500 otherwise; an answer that has begun is cut off. Unknown
/// fields follow the context's rule.
template <class Prepare, class Then>
void prepared(const ApiContext& context, std::size_t body_bytes, std::shared_ptr<Exchange> exchange, Prepare prepare,
              Then then) {
  if (body_bytes <= serving::kSmallTextBytes) {
    auto [result, ignored] = prepare_body(context, prepare);
    report_ignored(context, *exchange, ignored);
    return then(std::move(exchange), std::move(result));
  }
  struct Job {
    const ApiContext& context;
    std::shared_ptr<Exchange> exchange;  // used and destroyed on the I/O thread only
    Prepare prepare;
    Then then;
    std::optional<Prepared<Prepare>> made = std::nullopt;
    std::exception_ptr failure = nullptr;
  };
  auto& io = exchange->io();
  auto job = std::make_shared<Job>(Job{context, std::move(exchange), std::move(prepare), std::move(then)});
  boost::asio::post(context.worker, [&io, job = std::move(job)] {
    try {
      const io::WithoutReserve large;
      job->made.emplace(prepare_body(job->context, job->prepare));
    } catch (...) {
      job->failure = std::current_exception();
    }
    serving::post_result(io, job, [](Job& done) {
      try {
        if (done.failure) std::rethrow_exception(done.failure);
        report_ignored(done.context, *done.exchange, done.made->ignored);
        done.then(done.exchange, std::move(done.made->result));
      } catch (const std::bad_alloc& error) {
        if (done.exchange->has_begun()) return done.exchange->cut_off(error.what());
        done.exchange->respond_error(error_answer(io::no_memory()));
      } catch (const std::exception& error) {
        if (done.exchange->has_begun()) return done.exchange->cut_off(error.what());
        respond_failure(*done.exchange, error.what());
      }
    });
  });
}

/// Returns a handler that reads the body with `parse(model, body, request)` and then calls `then(model, exchange,
/// parsed)`. `takes_long` returns whether a request with a small body may still block the I/O thread for too long.
template <class Parse, class Then>
Handler reading_request(const ApiContext& context, Parse parse, Then then,
                        bool (*takes_long)(const Request& request) = nullptr) {
  return [&context, parse, then, takes_long](std::shared_ptr<Exchange> exchange, Request request) {
    const bool is_long = takes_long != nullptr && takes_long(request);
    const auto body_bytes = is_long ? std::numeric_limits<std::size_t>::max() : request.body.size();
    using Parsed = decltype(parse(std::declval<const serving::ServedModel&>(), wire::Json(), request));
    auto prepare = [&context, parse, request = std::move(request)] {
      auto body = read_body(context, request.body);
      using Read = std::pair<serving::SharedModel, Parsed>;
      if (!body) return Read{nullptr, tl::unexpected(std::move(body.error()))};
      auto parsed = parse(*body->model, body->json, request);
      return Read{std::move(body->model), std::move(parsed)};
    };
    prepared(context, body_bytes, std::move(exchange), std::move(prepare), [then](auto answering, auto read) {
      auto& [model, parsed] = read;
      if (!parsed) return answering->respond_error(parsed.error());
      then(*model, std::move(answering), std::move(*parsed));
    });
  };
}

/// Returns a handler like reading_request, with `parse(model, body)`.
template <class Parse, class Then>
Handler reading(const ApiContext& context, Parse parse, Then then) {
  return reading_request(
      context,
      [parse](const serving::ServedModel& model, const wire::Json& body, const Request&) { return parse(model, body); },
      then);
}

/// Refuses new work if the server drains or is out of memory. Returns whether it has answered the exchange.
bool refuses_new_work(const ApiContext& context, Exchange& exchange);

/// Returns the handler of a route at `path` that generates: reads the body, makes a job with `parse(model, body,
/// request)` and runs it. `may_take_long` returns whether a request with a small body may still block the I/O thread
/// for too long.
Handler generating(const ApiContext& context, std::string path, ParseJob parse,
                   bool (*may_take_long)(const Request& request) = nullptr);

/// Makes the job of a request that an earlier process received. `request.path` selects the parser that `generating` has
/// registered. `adapter`: the one that the request used; empty: none.
ParsedJob reparse_job(const ApiContext& context, const Request& request, const std::string& adapter);

}  // namespace pagoda::http
