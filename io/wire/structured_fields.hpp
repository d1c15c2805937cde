#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/request/structured_output.hpp"
#include "io/wire/field_reader.hpp"

namespace pagoda::wire {

/// Reads structured_outputs: an object with exactly one of json (a schema, or its text), regex, choice, grammar,
/// json_object and structural_tag (an object, or its text).
void read_structured_outputs(FieldReader& fields, std::optional<StructuredOutput>& out);

/// Reads other names of structured_outputs: vLLM's older names guided_json, guided_regex, guided_grammar, guided_choice
/// and guided_json_object, and the names of SGLang and llama-server: json_schema, regex, ebnf and grammar. Refuses a
/// second such field, and one that differs from structured_outputs. Returns the name of the field that was read, or
/// null if there is none.
const char* read_guided(FieldReader& fields, std::optional<StructuredOutput>& out);

/// Place of the members of a json_schema: see read_format.
enum class FormatPlace : std::uint8_t { inside, beside };

/// Reads OpenAI's format of an answer from the field `name`: {"type": "text"}, {"type": "json_object"}, {"type":
/// "structural_tag", ...} (with `inside` only, as in vLLM) or {"type": "json_schema"} with name, schema, description
/// and strict. With `inside` (response_format) these members are in the member `json_schema`, with `beside`
/// (text.format) beside the type. An answer always follows the schema, whatever `strict` is. Refuses a constraint if
/// `out` has one already.
/// `within` is the prefix of the object that `fields` reads, for example "text.".
void read_format(FieldReader& fields, const char* name, FormatPlace place, std::optional<StructuredOutput>& out,
                 const std::string& within = {});

/// Reads Anthropic's format: {"type": "json_schema", "schema"}. `within` is as in read_format.
void read_schema_format(FieldReader& fields, const char* name, std::optional<StructuredOutput>& out,
                        const std::string& within = {});

/// Reads Ollama's format: "json" or a schema. null and "" set no format.
void read_json_format(FieldReader& fields, const char* name, std::optional<StructuredOutput>& out);

}  // namespace pagoda::wire
