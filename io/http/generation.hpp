#pragma once

/// One HTTP request that generates, whatever API it came by: its requests to the engine, and the writer that makes the
/// API's text of what they give.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <tl/expected.hpp>

#include "engine/request/generate_request.hpp"
#include "engine/request/output.hpp"
#include "io/http/error_answer.hpp"
#include "io/serving/recovered_request.hpp"
#include "io/serving/served_models.hpp"
#include "io/serving/tenant.hpp"

namespace pagoda::http {

class Exchange;
struct ApiContext;

/// Writes what one API says of one HTTP request's outputs: pieces of a stream, each appended to `out`, or one whole
/// body. No sockets, no engine. A job has one request per prompt; `prompt` is its index.
class GenerationWriter {
 public:
  virtual ~GenerationWriter() = default;

  /// Before anything else, for each prompt of a job that echoes: its text, and that of its first token.
  virtual void prompt(std::size_t /*prompt*/, std::string /*text*/, std::string /*first_token*/) {}

  // A stream, in this order: begin, then deltas and dones as they come, each prompt's deltas before its done, and after
  // the last done end; or, anywhere after begin, error, which ends it too.

  virtual std::string_view stream_content_type() const { return "text/event-stream"; }
  /// `prompt_tokens` over all prompts.
  virtual void begin(std::string& /*out*/, std::int64_t /*prompt_tokens*/) {}
  virtual void delta(std::string& out, std::size_t prompt, const SequenceDelta& delta) = 0;
  virtual void done(std::string& out, std::size_t prompt, const RequestResult& result) = 0;
  virtual void end(std::string& out) = 0;
  virtual void error(std::string& out, const ErrorAnswer& error) = 0;

  /// The whole body, from the result of each prompt.
  virtual void whole(std::string& out, std::span<const RequestResult> results) = 0;
};

/// Fields of the engine's requests, and what an API calls them.
using FieldNames = std::vector<std::pair<std::string_view, std::string_view>>;

/// The names of an API whose prompt is made of the field `prompt`, and `others`.
FieldNames field_names(std::string_view prompt, FieldNames others = {});

struct GenerationJob {
  std::vector<GenerateRequest> requests;  ///< at least one; `stream` is set for them
  bool stream = false;
  std::unique_ptr<GenerationWriter> writer;
  bool echo = false;                            ///< tell the writer the prompts
  FieldNames names = {};                        ///< for errors of the engine, where the API calls a field otherwise
  const serving::ServedModel* model = nullptr;  ///< that is to run it; not null then
  std::function<void()> behind = {};            ///< called, on any thread, when the requests have been sent
  std::optional<serving::RequestOrigin> origin = {};  ///< of one whose stream is to outlive its connection
};

/// The error as one of the fields that the client knows.
Error in_words_of(const FieldNames& names, Error error);

/// What the parser of an API makes of a body.
using ParsedJob = tl::expected<GenerationJob, ErrorAnswer>;

/// Runs the job as one of the key's principal (null: of nobody), within its limits, and answers the exchange; a client
/// that goes away cancels it. I/O thread.
void run_generation(const ApiContext& context, std::shared_ptr<Exchange> exchange, GenerationJob job,
                    serving::SharedPrincipal principal);

}  // namespace pagoda::http
