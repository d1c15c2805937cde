#pragma once

/// What OpenAI's routes have in common.

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

/// What every answer says of itself.
struct Head {
  std::string id;  ///< for example "cmpl-...": of the HTTP request
  std::string model;
  std::int64_t created = 0;  ///< seconds since 1970
};

/// Returns a request whose sampling fields are open for what the model's maker recommends, and else have OpenAI's
/// defaults: temperature 1, top_p 1.
GenerateRequest request_with_defaults();

/// Skips the fields that SDKs send along and that change nothing here: service_tier, safety_identifier,
/// prompt_cache_key, prompt_cache_retention.
void skip_noise(wire::FieldReader& fields);

/// The same for APIs that keep no answers: metadata too, and store, which must be false.
void read_noise(wire::FieldReader& fields);

/// Reads max_tokens or max_completion_tokens, its newer name. Both may be given where they agree.
void read_max_tokens(wire::FieldReader& fields, GenerateRequest& request);

/// Refuses functions and function_call, which tools have replaced. One that asks for nothing is fine.
void refuse_functions(wire::FieldReader& fields);
/// response_format and vLLM's guided_json and its kin, behind structured_outputs. Errors about what it asks for name it
/// from then on.
void read_response_format(wire::FieldReader& fields, SamplingParams& sampling, FieldNames& names);

struct StreamOptions {
  bool stream = false;
  bool include_usage = false;
  bool continuous_usage = false;  ///< with include_usage: in every chunk
};
/// stream and stream_options.
StreamOptions read_stream(wire::FieldReader& fields);

/// The member `usage` of the chunks of a stream before its end.
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

/// The id, object, created and model members of an open object.
void write_head(wire::JsonWriter& json, const Head& head, std::string_view object);

/// The value of `usage`, with how many of the output's tokens were thought where that is known.
void write_usage(wire::JsonWriter& json, const Usage& usage, std::optional<std::int64_t> reasoning_tokens = {});
void add_usage(Usage& total, const Usage& usage);

/// The member prompt_logprobs: as vLLM, an object from token ids to {logprob, rank, decoded_token} for each position.
void write_prompt_logprobs(wire::JsonWriter& json, const Logprobs& logprobs);

/// How many candidates of each position are written where `count` are asked for; -1, or logprob_token_ids: all.
std::size_t num_top_of(std::int64_t count, const SamplingParams& sampling);
/// Refuses logprob_token_ids where no logprobs are asked for, as vLLM does.
void check_logprob_token_ids(wire::FieldReader& fields, const SamplingParams& sampling, const char* logprobs);

/// data: JSON, blank line.
template <class Write>
void append_event(std::string& out, Write write) {
  out += "data: ";
  wire::JsonWriter json(out);
  json.open_object();
  write(json);
  json.close_object();
  out += "\n\n";
}
/// What ends a stream: its usage, unless that is null, and [DONE].
void append_last_events(std::string& out, const Head& head, std::string_view object, const Usage* usage,
                        std::optional<std::int64_t> reasoning_tokens = {});

/// The last event of a stream that failed.
void append_error_event(std::string& out, const ErrorAnswer& error);

}  // namespace pagoda::http::openai
