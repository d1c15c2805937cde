#pragma once

/// One HTTP request that generates, in any API: its requests to the engine, and the writer that formats their outputs
/// for the API.

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

/// Writes the outputs of one HTTP request in the format of one API: appends pieces of a stream, or one whole body, to
/// `out`. Uses no sockets and no engine. A job has one request per prompt; `prompt` is the index of the prompt.
class GenerationWriter {
 public:
  virtual ~GenerationWriter() = default;

  /// Called before all other functions, for each prompt of a job that echoes, with the prompt's text and the text of
  /// its first token.
  virtual void prompt(std::size_t /*prompt*/, std::string /*text*/, std::string /*first_token*/) {}

  // A stream is written in this order: begin; then deltas and dones as they come, each prompt's deltas before its done;
  // and end after the last done. An error may come at any point after begin and ends the stream too.

  virtual std::string_view stream_content_type() const { return "text/event-stream"; }
  /// `prompt_tokens` is the sum over all prompts.
  virtual void begin(std::string& /*out*/, std::int64_t /*prompt_tokens*/) {}
  virtual void delta(std::string& out, std::size_t prompt, const SequenceDelta& delta) = 0;
  virtual void done(std::string& out, std::size_t prompt, const RequestResult& result) = 0;
  virtual void end(std::string& out) = 0;
  virtual void error(std::string& out, const ErrorAnswer& error) = 0;

  /// Writes the whole body from the results, one for each prompt.
  virtual void whole(std::string& out, std::span<const RequestResult> results) = 0;
};

/// Pairs of a field of the engine's requests and its name in an API.
using FieldNames = std::vector<std::pair<std::string_view, std::string_view>>;

/// Returns `others` and the pairs that name the field `prompt` for the engine's fields of the prompt.
FieldNames field_names(std::string_view prompt, FieldNames others = {});

struct GenerationJob {
  std::vector<GenerateRequest> requests;  ///< at least one; `stream` is set when they are sent
  bool stream = false;
  std::unique_ptr<GenerationWriter> writer;
  bool echo = false;                   ///< whether the writer gets the prompts
  FieldNames names = {};               ///< names for errors of the engine, where the API's name of a field differs
  serving::SharedModel model = {};     ///< model that runs the job; not null when the job runs
  std::function<void()> on_sent = {};  ///< called on any thread when the requests have been sent
  std::optional<serving::RequestOrigin> origin = {};  ///< origin of a request whose stream outlives its connection

  /// Sets the model, and the adapter of each request.
  void set_model(serving::SharedModel chosen);
};

/// Replaces the engine's name of a field in the error by the client's name.
Error rename_field(const FieldNames& names, Error error);

/// Result of an API's parser for a body.
using ParsedJob = tl::expected<GenerationJob, ErrorAnswer>;

/// Runs the job for the key's principal (null: no principal), within its limits, and answers the exchange. The requests
/// are aborted if the client closes. I/O thread.
void run_generation(const ApiContext& context, std::shared_ptr<Exchange> exchange, GenerationJob job,
                    serving::SharedPrincipal principal);

}  // namespace pagoda::http
