#pragma once

#include "engine/request/output.hpp"
#include "io/wire/json_writer.hpp"

namespace pagoda::http {

/// The value of `timing`, which any API's answer has where its request said "timing": true.
void write_timing(wire::JsonWriter& json, const RequestResult& result);

}  // namespace pagoda::http
