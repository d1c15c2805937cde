#pragma once

#include <string>
#include <string_view>

#include "io/wire/json_writer.hpp"

namespace pagoda::http {

/// Appends one server-sent event whose JSON repeats its name: event: NAME, data: {"type": NAME, ...}. `write(json)`
/// adds the other members.
template <class Write>
void append_named_event(std::string& out, std::string_view name, Write write) {
  out += "event: ";
  out += name;
  out += "\ndata: ";
  wire::JsonWriter json(out);
  json.open_object().field("type", name);
  write(json);
  json.close_object();
  out += "\n\n";
}

}  // namespace pagoda::http
