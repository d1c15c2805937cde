#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/request/structured_output.hpp"
#include "io/wire/field_reader.hpp"

namespace pagoda::wire {

/// structured_outputs: an object with one of json (a schema, or its text), regex, choice, grammar, json_object and
/// structural_tag (an object, or its text).
void read_structured_outputs(FieldReader& fields, std::optional<StructuredOutput>& out);

/// vLLM's older names for the same: guided_json, guided_regex, guided_grammar, guided_choice and guided_json_object;
/// and SGLang's and llama-server's: json_schema, regex, ebnf and grammar. One of them at most, and beside
/// structured_outputs only where that asks for the same. The name of the one that was read; null: none.
const char* read_guided(FieldReader& fields, std::optional<StructuredOutput>& out);

/// OpenAI's format of an answer, the field `name`: {"type": "text"}, {"type": "json_object"}, {"type":
/// "structural_tag", ...} (`inside` only, as vLLM), or {"type":
/// "json_schema"} with name, schema, description and strict: inside `json_schema`, as of response_format, or beside the
/// type, as of text.format. An answer is always held to the schema, strict or not. Excludes structured_outputs.
/// `within`: the object that `fields` are of, as "text.".
enum class FormatPlace : std::uint8_t { inside, beside };
void read_format(FieldReader& fields, const char* name, FormatPlace place, std::optional<StructuredOutput>& out,
                 const std::string& within = {});

/// Anthropic's: {"type": "json_schema", "schema"}. `within` as above.
void read_schema_format(FieldReader& fields, const char* name, std::optional<StructuredOutput>& out,
                        const std::string& within = {});

/// Ollama's: "json" or a schema; null and "" ask for nothing.
void read_json_format(FieldReader& fields, const char* name, std::optional<StructuredOutput>& out);

}  // namespace pagoda::wire
