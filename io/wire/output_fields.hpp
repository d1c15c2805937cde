#pragma once

#include <string>

#include "engine/request/output.hpp"
#include "io/wire/json_writer.hpp"

namespace pagoda::wire {

// Members of an open object that several interfaces write alike.

/// token_ids.
void write_token_ids(JsonWriter& json, const TokenIds& ids);

/// finish_reason (stop, length or abort) and stop_reason (the token id or string that ended it, or null).
void write_finish(JsonWriter& json, const SequenceResult& output);

/// bytes: those of a token, which need not be whole characters.
void write_bytes(JsonWriter& json, const std::string& bytes);

/// token, logprob and bytes of a LogprobEntry or TokenLogprob of `logprobs`.
template <class Entry>
void write_token(JsonWriter& json, const Logprobs& logprobs, const Entry& entry) {
  json.field("token", logprobs.text_of(entry.token_id)).key("logprob").logprob(entry.logprob);
  write_bytes(json, logprobs.bytes_of(entry.token_id));
}

/// The value of `timing` in the answer to a request that said "timing": true: times, and what took them.
void write_timing(JsonWriter& json, const RequestResult& result);

}  // namespace pagoda::wire
