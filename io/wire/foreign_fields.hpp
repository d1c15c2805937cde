#pragma once

/// Fields that other servers (vLLM, SGLang, llama-server, text-generation-webui) accept in addition to OpenAI's. Their
/// clients, routers and front ends put these fields into requests of every API.

#include <initializer_list>
#include <string_view>

#include "engine/request/generate_request.hpp"
#include "io/wire/field_reader.hpp"

namespace pagoda::wire {

/// Reads a field whose feature is not supported: it must be absent, null or one of `off`, the values that turn the
/// feature off. Numbers are compared by value. `why` follows "NAME is not supported" in the error.
void refuse_unless(FieldReader& fields, const char* name, std::initializer_list<Json> off, std::string_view why = {});

/// Reads other servers' fields that are another name of a supported field, and checks that their unsupported fields are
/// turned off. Call after read_request_fields.
void read_foreign_fields(FieldReader& fields, GenerateRequest& request);

}  // namespace pagoda::wire
