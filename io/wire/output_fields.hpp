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

/// token, logprob, and the token's bytes, which need not be whole characters.
void write_token(JsonWriter& json, const std::string& token, float logprob);

/// The value of `timing` in the answer to a request that said "timing": true: times, and what took them.
void write_timing(JsonWriter& json, const RequestResult& result);

}  // namespace pagoda::wire
