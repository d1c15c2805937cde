#pragma once

#include <functional>
#include <memory>

#include <boost/asio/io_context.hpp>

#include "io/http/generation.hpp"
#include "io/serving/recovered_request.hpp"

namespace pagoda::http {

class Exchange;
struct ApiContext;

/// Runs a job with an origin like run_generation, but writes its events to a stream that outlives the exchange. The
/// exchange's client is the first that follows the stream. I/O thread.
void run_resumable(const ApiContext& context, std::shared_ptr<Exchange> exchange, GenerationJob job,
                   serving::SharedPrincipal principal);

/// Continues a request of an earlier process. Its stream exists at once and has all events that were generated before.
/// `on_settled` is called once, when the engine has accepted the request or the request has ended. Runs on the I/O
/// thread of `io`.
void resume_recovered(const ApiContext& context, boost::asio::io_context& io, serving::RecoveredRequest recovered,
                      std::function<void()> on_settled);

}  // namespace pagoda::http
