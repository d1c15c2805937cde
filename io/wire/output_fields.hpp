#pragma once

#include <string>

#include "engine/request/output.hpp"
#include "io/wire/json_writer.hpp"

namespace pagoda::wire {

// These functions write members of an open object that several interfaces have in common.

/// Writes the member token_ids.
void write_token_ids(JsonWriter& json, const TokenIds& ids);

/// Writes finish_reason (stop, length or abort) and stop_reason (the token id or the string that ended the sequence, or
/// null).
void write_finish(JsonWriter& json, const SequenceResult& output);

/// Writes the member bytes: the bytes of a token, which may hold incomplete characters.
void write_bytes(JsonWriter& json, const std::string& bytes);

/// Writes the members token, logprob and bytes for `entry`, a LogprobEntry or TokenLogprob of `logprobs`.
template <class Entry>
void write_token(JsonWriter& json, const Logprobs& logprobs, const Entry& entry) {
  json.field("token", logprobs.text_of(entry.token_id)).key("logprob").logprob(entry.logprob);
  write_bytes(json, logprobs.bytes_of(entry.token_id));
}

/// Writes the value of `timing` in the answer to a request with "timing": true: durations and what caused them.
void write_timing(JsonWriter& json, const RequestResult& result);

}  // namespace pagoda::wire
