#pragma once

#include <string>
#include <string_view>

#include "io/wire/field_reader.hpp"

namespace pagoda::wire {

/// Reads the content of a message, which is a text or a list of objects, each with a `type`. Calls `read(type, fields)`
/// for each block, in order. Fields that `read` does not read are unknown. A text is treated as one block {"text": ...}
/// of the type `of_text`. `where` names the content in errors.
template <class Read>
tl::expected<void, WireError> read_blocks(const Json& content, const std::string& where, std::string_view of_text,
                                          Read read) {
  if (content.is_string()) {
    const Json block{{"text", content}};
    FieldReader fields(block);
    read(of_text, fields);
    return fields.finish();
  }
  if (!content.is_array()) return tl::unexpected(invalid_field(where, "must be a string or a list of blocks"));
  for (std::size_t i = 0; i < content.size(); ++i) {
    const auto here = where + "[" + std::to_string(i) + "]";
    if (!content[i].is_object()) return tl::unexpected(invalid_field(here, "must be an object with a type"));
    FieldReader fields(content[i], FieldReader::Nulls::absent, here + ".");
    std::string type;
    fields.read_required("type", type);
    if (fields.has_no_error()) read(std::string_view(type), fields);
    if (auto status = fields.finish(); !status) return status;
  }
  return {};
}

/// Refuses a block because of its type. `what` lists the types that are accepted.
inline void refuse_type(FieldReader& block, std::string_view type, std::string_view what) {
  block.refuse("type", "type is \"" + std::string(type) + "\": " + std::string(what));
}

}  // namespace pagoda::wire
