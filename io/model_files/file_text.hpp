#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

#include "kernels/result.hpp"

namespace pagoda::io {

/// Quotes `text` from a file for one line of a message: control characters and quotes are escaped, bytes beyond ASCII
/// are kept, and the text is cut after 120 bytes.
std::string quote(std::string_view text);

/// Returns "[4096, 11008]", for a message.
std::string shape_text(std::span<const std::int64_t> shape);

/// Returns whether a folder has an entry of this name. A link to a missing file counts: opening it reports the error,
/// and it is not mistaken for a file that is left out.
bool has_entry(const std::filesystem::path& path);

/// Parses `text` as JSON of at most 64 levels. Errors: `code`, with the file's name and the place of the first mistake.
Result<nlohmann::json> parse_json(std::string_view text, std::string_view file_name, ErrorCode code);

/// Reads a JSON file of at most `max_bytes`. Errors: io_failed when it cannot be read, else `code`.
Result<nlohmann::json> read_json_file(const std::filesystem::path& path, std::size_t max_bytes, ErrorCode code);

}  // namespace pagoda::io
