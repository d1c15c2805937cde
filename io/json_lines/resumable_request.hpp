#pragma once

#include <functional>
#include <memory>

#include "io/json_lines/protocol.hpp"
#include "io/serving/recovered_request.hpp"
#include "io/serving/telemetry.hpp"
#include "io/serving/tenant.hpp"

namespace pagoda::json_lines {

struct ConnectionContext;

/// Submits a request whose events outlive its connection: they are added to `stream`, as lines with numbers. The
/// request was admitted before: `ticket` is its tenant's, and `prompt_tokens` were charged. I/O thread.
void run_resumable(ConnectionContext& context, GenerateOp op, std::shared_ptr<serving::ResumableStream> stream,
                   serving::TenantTicket ticket, std::int64_t prompt_tokens, serving::RequestRecord record);

/// Continues a request of an earlier process. Calls `settled` once, when the engine has accepted the request or the
/// request has ended. I/O thread.
void resume_recovered(ConnectionContext& context, serving::RecoveredRequest recovered, std::function<void()> settled);

}  // namespace pagoda::json_lines
