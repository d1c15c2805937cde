#pragma once

/// Common parts of OpenAI's routes.

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <tl/expected.hpp>

#include "engine/request/generate_request.hpp"
#include "engine/request/output.hpp"
#include "io/http/error_answer.hpp"
#include "io/http/generation.hpp"
#include "io/wire/field_reader.hpp"
#include "io/wire/json_writer.hpp"
#include "io/wire/output_fields.hpp"

namespace pagoda::http::openai {

using wire::write_finish;
using wire::write_token_ids;

/// Members that every answer has.
struct Head {
  std::string id;  ///< a prefix such as "cmpl-" and the id of the HTTP request
  std::string model;
  std::int64_t created = 0;  ///< seconds since 1970
};

/// Returns a request whose sampling fields are open for the recommendation of the model's maker. Without a
/// recommendation OpenAI's defaults apply: temperature 1, top_p 1.
GenerateRequest request_with_defaults();

/// Skips fields that SDKs send and that have no effect here: service_tier, safety_identifier, prompt_cache_key,
/// prompt_cache_retention.
void skip_fields_without_effect(wire::FieldReader& fields);

/// Calls skip_fields_without_effect for APIs that do not store answers. Also skips metadata and checks modalities,
/// which must be ["text"], and store, which must be false.
void read_fields_without_effect(wire::FieldReader& fields);

/// Reads max_tokens or max_completion_tokens, its newer name. If both are given, they must be equal.
void read_max_tokens(wire::FieldReader& fields, GenerateRequest& request);
/// Adds the name that the request has for max_tokens, if it is the newer one.
void add_name_of_max_tokens(const wire::FieldReader& fields, FieldNames& names);

/// Refuses functions and function_call, which tools have replaced. Empty functions, and function_call "none" or "auto",
/// are accepted.
void refuse_functions(wire::FieldReader& fields);
/// Reads response_format and the fields of wire::read_guided. Call after structured_outputs is read. If one of these
/// fields may set the constraint, adds it to `names` for errors about structured_outputs.
void read_response_format(wire::FieldReader& fields, SamplingParams& sampling, FieldNames& names);

struct StreamOptions {
  bool stream = false;
  bool include_usage = false;
  bool continuous_usage = false;  ///< whether every chunk has the usage; needs include_usage
};
/// Reads stream and stream_options.
StreamOptions read_stream(wire::FieldReader& fields);

/// Writer of the member `usage` in the chunks of a stream before its end.
class ChunkUsage {
 public:
  explicit ChunkUsage(const StreamOptions& options) : options_(options) {}
  void begin(std::int64_t prompt_tokens) { usage_.prompt_tokens = prompt_tokens; }
  void add(std::size_t num_tokens) { usage_.completion_tokens += static_cast<std::int64_t>(num_tokens); }
  /// Writes null, or with continuous_usage the tokens of all choices so far. Writes nothing without include_usage.
  void write(wire::JsonWriter& json) const;

 private:
  StreamOptions options_;
  Usage usage_;
};

/// Writes the members id, object, created and model of an open object.
void write_head(wire::JsonWriter& json, const Head& head, std::string_view object);

/// Writes the value of `usage`, with the number of thinking tokens if it is known.
void write_usage(wire::JsonWriter& json, const Usage& usage, std::optional<std::int64_t> reasoning_tokens = {});
void add_usage(Usage& total, const Usage& usage);

/// Writes the member prompt_logprobs as vLLM does: an object from token ids to {logprob, rank, decoded_token} for each
/// position.
void write_prompt_logprobs(wire::JsonWriter& json, const Logprobs& logprobs);

/// Returns the number of candidates to write for each position. `count` is the requested number. -1, and any `count`
/// with logprob_token_ids, means all.
std::size_t num_top_of(std::int64_t count, const SamplingParams& sampling);
/// Refuses logprob_token_ids without logprobs, as vLLM does. `logprobs` is the field that the error names.
void check_logprob_token_ids(wire::FieldReader& fields, const SamplingParams& sampling, const char* logprobs);

/// Appends an event: "data: ", the JSON object and a blank line.
template <class Write>
void append_event(std::string& out, Write write) {
  out += "data: ";
  wire::JsonWriter json(out);
  json.open_object();
  write(json);
  json.close_object();
  out += "\n\n";
}
/// Appends the end of a stream: its usage, unless `usage` is null, and [DONE].
void append_last_events(std::string& out, const Head& head, std::string_view object, const Usage* usage,
                        std::optional<std::int64_t> reasoning_tokens = {});

/// Appends the last event of a stream that failed.
void append_error_event(std::string& out, const ErrorAnswer& error);

}  // namespace pagoda::http::openai
