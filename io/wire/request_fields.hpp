#pragma once

#include <cstdint>

#include "engine/request/generate_request.hpp"
#include "io/wire/field_reader.hpp"

namespace pagoda::wire {

/// Reads a field for which the model may have a default. If it is absent, `is_open` is unchanged.
template <class T>
void read_open(FieldReader& fields, const char* name, T& value, bool& is_open) {
  fields.read(name, value);
  if (fields.has(name)) is_open = false;
}

/// The smallest top_p: below the probability of the most probable token of any vocabulary.
inline constexpr double kMinTopP = 1e-9;

/// Ranges of values that an interface accepts.
enum class Ranges : std::uint8_t {
  ours,  ///< the ranges of the sampling parameters
  apis   ///< also a seed below 0, top_p 0 (keeps the most probable token) and an empty allowed_token_ids (allows all)
};

/// Reads the fields with the same names and meanings in every interface: all sampling parameters except max_tokens and
/// logprobs, and add_special_tokens, truncate_prompt_tokens, priority, user, cache_salt, resumable, and the time limit
/// as timeout_ms or, in seconds, as timeout. A field that is absent keeps its value in `request`.
void read_request_fields(FieldReader& fields, GenerateRequest& request, Ranges ranges = Ranges::ours);

/// Reads the fields of a request of another server's API: calls read_request_fields and read_foreign_fields.
void read_api_fields(FieldReader& fields, GenerateRequest& request);

/// Calls read_api_fields for an API whose answer is one text. Refuses n above 1, detokenize false and prompt_logprobs.
void read_single_answer_fields(FieldReader& fields, GenerateRequest& request);

}  // namespace pagoda::wire
