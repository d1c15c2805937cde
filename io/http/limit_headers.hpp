#pragma once

#include "io/http/error_body.hpp"
#include "io/http/exchange.hpp"
#include "io/http/request.hpp"
#include "io/serving/tenant.hpp"
#include "io/serving/tenant_usage.hpp"

namespace pagoda::http {

/// Returns x-ratelimit-limit-requests, -remaining-requests and -reset-requests, and these three for tokens, in OpenAI's
/// format.
Pairs limit_headers(const serving::LimitLevels& levels);

/// Sets the limit headers of the principal (null: no limits, no headers) on the exchange's answer.
void add_limit_headers(Exchange& exchange, const serving::SharedPrincipal& principal);

/// Returns 429, or 400 if the request would be refused at any time.
ErrorAnswer limit_answer(const serving::LimitRefusal& refusal);

}  // namespace pagoda::http
