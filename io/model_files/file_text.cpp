#include "io/model_files/file_text.hpp"

#include <system_error>

#include "io/model_files/mapped_file.hpp"

namespace pagoda::io {

std::string quote(std::string_view text) {
  constexpr std::size_t kMaxBytes = 120;
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string out = "\"";
  for (const char c : text.substr(0, kMaxBytes)) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (byte < 0x20 || byte == 0x7f) {
      out += "\\x";
      out += kHex[byte >> 4];
      out += kHex[byte & 15];
    } else {
      out += c;
    }
  }
  return out + (text.size() > kMaxBytes ? "...\"" : "\"");
}

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (const auto dimension : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(dimension);
  return text + "]";
}

bool has_entry(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(std::filesystem::symlink_status(path, ignored));
}

Result<nlohmann::json> parse_json(std::string_view text, std::string_view file_name, ErrorCode code) {
  constexpr int kMaxDepth = 64;  // deeper values could not be written out again on a thread's stack
  bool too_deep = false;
  const auto limit_depth = [&](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    too_deep = too_deep || depth > kMaxDepth;
    return !too_deep;
  };
  const auto bad = [&](const std::string& reason) { return fail(code, std::string(file_name) + ": " + reason); };
  try {
    auto root = nlohmann::json::parse(text, limit_depth);
    if (too_deep) return bad("nested deeper than " + std::to_string(kMaxDepth));
    return root;
  } catch (const nlohmann::json::parse_error& error) {
    return bad("not valid JSON at byte " + std::to_string(error.byte));
  } catch (const nlohmann::json::exception&) {
    return bad("not valid JSON: a number is too large for a double");
  }
}

Result<nlohmann::json> read_json_file(const std::filesystem::path& path, std::size_t max_bytes, ErrorCode code) {
  const auto file = MappedFile::open(path);
  if (!file) return fail(file.error());
  const auto bytes = file->bytes();
  if (bytes.size() > max_bytes) {
    return fail(code, file->path() + ": " + std::to_string(bytes.size()) + " bytes are more than the limit of " +
                          std::to_string(max_bytes));
  }
  return parse_json({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, file->path(), code);
}

}  // namespace pagoda::io
