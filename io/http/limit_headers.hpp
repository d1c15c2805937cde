#pragma once

#include "io/http/error_body.hpp"
#include "io/http/exchange.hpp"
#include "io/http/request.hpp"
#include "io/serving/tenant.hpp"
#include "io/serving/tenant_usage.hpp"

namespace pagoda::http {

/// x-ratelimit-limit-requests, -remaining-requests and -reset-requests, and the same of tokens, as OpenAI writes them.
Pairs limit_headers(const serving::LimitLevels& levels);

/// Sets those of the principal (null: nobody, who has no limits) as headers of the exchange's answer.
void add_limit_headers(Exchange& exchange, const serving::SharedPrincipal& principal);

/// 429, or 400 of what no waiting will bring.
ErrorAnswer limit_answer(const serving::LimitRefusal& refusal);

}  // namespace pagoda::http
