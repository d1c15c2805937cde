#pragma once

/// Fields that other servers (vLLM, SGLang, llama-server, text-generation-webui) have beside OpenAI's, and that their
/// clients, routers and front ends put into requests of every API.

#include <initializer_list>
#include <string_view>

#include "engine/request/generate_request.hpp"
#include "io/wire/field_reader.hpp"

namespace pagoda::wire {

/// Reads a field whose feature is not here: it must be absent or one of `off`, the values that ask for nothing. Numbers
/// are compared by value. `why` follows "NAME is not supported" in the refusal.
void refuse_unless(FieldReader& fields, const char* name, std::initializer_list<Json> off, std::string_view why = {});

/// Reads the fields of other servers that have a meaning here (another name of a field), and those that must ask for
/// nothing. Call after read_request_fields.
void read_foreign_fields(FieldReader& fields, GenerateRequest& request);

}  // namespace pagoda::wire
