#pragma once

#include <functional>
#include <memory>

#include "io/json_lines/protocol.hpp"
#include "io/serving/recovered_request.hpp"
#include "io/serving/telemetry.hpp"
#include "io/serving/tenant.hpp"

namespace pagoda::json_lines {

struct ConnectionContext;

/// Submits a request whose events outlive its connection: they go into `stream`, as lines with numbers, for whoever
/// follows that. It has been admitted: `ticket` is its tenant's, who was charged for `prompt_tokens`. I/O thread.
void run_resumable(ConnectionContext& context, GenerateOp op, std::shared_ptr<serving::ResumableStream> stream,
                   serving::TenantTicket ticket, std::int64_t prompt_tokens, serving::RequestRecord record);

/// Goes on with one that another process was serving. `settled` is called once, when the engine has taken it or it has
/// ended. I/O thread.
void take_up(ConnectionContext& context, serving::RecoveredRequest recovered, std::function<void()> settled);

}  // namespace pagoda::json_lines
