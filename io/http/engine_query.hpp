#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <vector>

#include <boost/asio/steady_timer.hpp>

#include "io/http/api_context.hpp"
#include "io/http/exchange.hpp"
#include "io/serving/session.hpp"

namespace pagoda::http {

/// Sends one question to a model's engine and answers the exchange with the result. I/O thread. An error of the engine
/// becomes the exchange's answer, with the status `error_status` if this is not 0. `on_answer` gets every other answer.
/// `on_sent` is called on any thread when the question has been sent.
void query_model(const ApiContext& context, const serving::ServedModel& model, std::shared_ptr<Exchange> exchange,
                 serving::Query question, std::function<void(Exchange&, serving::Answer&)> on_answer,
                 unsigned error_status = 0, std::function<void()> on_sent = {});

/// Sends one or more questions to a model's engine. `on_answers` gets the answers in the order of the questions. The
/// first error becomes the exchange's answer.
void query_model_each(const ApiContext& context, const serving::ServedModel& model, std::shared_ptr<Exchange> exchange,
                      std::vector<serving::Query> questions,
                      std::function<void(Exchange&, std::vector<serving::Answer>&)> on_answers);

/// Sends a question to the engine of every model. `on_answers` gets one answer for each model, in the order of the
/// models. The first error becomes the exchange's answer.
void query_all_models(const ApiContext& context, std::shared_ptr<Exchange> exchange, const serving::Query& question,
                      std::function<void(Exchange&, std::vector<serving::Answer>&)> on_answers,
                      unsigned error_status = 0);

/// Limits the time until the exchange is answered: `on_late` runs after `time` unless the answer has begun or the
/// returned timer was cancelled.
std::shared_ptr<boost::asio::steady_timer> answer_within(std::chrono::steady_clock::duration time,
                                                         const std::shared_ptr<Exchange>& exchange,
                                                         std::function<void(Exchange&)> on_late);

}  // namespace pagoda::http
