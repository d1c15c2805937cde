#pragma once

#include <cstdint>

#include "engine/request/generate_request.hpp"
#include "io/wire/field_reader.hpp"

namespace pagoda::wire {

/// A field that the model may have a default for: one that is absent stays open.
template <class T>
void read_open(FieldReader& fields, const char* name, T& value, bool& is_open) {
  fields.read(name, value);
  if (fields.has(name)) is_open = false;
}

/// The values that an interface takes.
enum class Ranges : std::uint8_t {
  ours,  ///< those of the sampling parameters
  apis   ///< also a seed below 0, and top_p 0, which keeps the likeliest token
};

/// The fields of a request that every interface gives the same names and meanings: all of sampling but max_tokens and
/// logprobs, and add_special_tokens, priority, user, cache_salt, resumable and timeout_ms, which may also be given in
/// seconds as timeout. One that is absent keeps the value of `request`.
void read_request_fields(FieldReader& fields, GenerateRequest& request, Ranges ranges = Ranges::ours);

/// The fields of a request of another server's API: read_request_fields and read_foreign_fields.
void read_api_fields(FieldReader& fields, GenerateRequest& request);

/// Reads them for an API whose answer is one text: n above 1 and prompt_logprobs are refused.
void read_single_answer_fields(FieldReader& fields, GenerateRequest& request);

}  // namespace pagoda::wire
