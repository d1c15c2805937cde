#include "io/serving/keys_file.hpp"

#include <algorithm>
#include <array>
#include <fstream>
#include <optional>
#include <utility>

#include <openssl/rand.h>

#include "io/wire/field_reader.hpp"
#include "io/wire/json_reader.hpp"
#include "io/wire/json_writer.hpp"

namespace pagoda::serving {
namespace {

std::optional<unsigned> hex_digit(char c) {
  if (c >= '0' && c <= '9') return static_cast<unsigned>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<unsigned>(c - 'a' + 10);
  if (c >= 'A' && c <= 'F') return static_cast<unsigned>(c - 'A' + 10);
  return std::nullopt;
}

std::optional<KeyDigest> digest_from_hex(std::string_view text) {
  KeyDigest digest{};
  if (text.size() != 2 * digest.size()) return std::nullopt;
  for (std::size_t i = 0; i < digest.size(); ++i) {
    const auto high = hex_digit(text[2 * i]);
    const auto low = hex_digit(text[2 * i + 1]);
    if (!high || !low) return std::nullopt;
    digest[i] = static_cast<unsigned char>(*high * 16 + *low);
  }
  return digest;
}

void read_limit(wire::FieldReader& fields, const char* name, std::int64_t& limit) {
  fields.read(name, limit);
  if (limit < 0 || limit > kMaxPerMinute) {
    fields.refuse(name, std::string(name) + " must be from 0 (no limit) to " + std::to_string(kMaxPerMinute));
  }
}

/// Messages do not repeat the contents of the line: they may be a key that was put there by mistake.
tl::expected<KeySet::Entry, std::string> parse_line(std::string_view line) {
  const auto object = wire::read_json(line, 4);
  if (!object) return tl::unexpected(object.error().message);
  if (!object->is_object()) return tl::unexpected(std::string("a line must be one JSON object"));
  wire::FieldReader fields(*object);
  KeySet::Entry entry;
  std::string digest;
  std::string role = "user";
  auto& tenant = entry.tenant;
  fields.read_required("name", tenant.name);
  if (!is_tenant_name(tenant.name)) {
    fields.refuse("name", "name must have 1 to " + std::to_string(kMaxTenantNameBytes) +
                              " letters, digits, dots, underscores and dashes");
  }
  fields.read_required("sha256", digest);
  if (const auto bytes = digest_from_hex(digest)) {
    entry.digest = *bytes;
  } else {
    fields.refuse("sha256", "sha256 must be 64 hexadecimal digits, as pagoda key prints them");
  }
  fields.read("role", role);
  if (role != "user" && role != "admin") fields.refuse("role", "role must be user or admin");
  tenant.role = role == "admin" ? KeyRole::admin : KeyRole::user;
  read_limit(fields, "requests_per_minute", tenant.limits.requests_per_minute);
  read_limit(fields, "tokens_per_minute", tenant.limits.tokens_per_minute);
  read_limit(fields, "max_concurrent_requests", tenant.limits.max_concurrent_requests);
  fields.read("priority", tenant.priority);
  if (tenant.priority < -kMaxPriority || tenant.priority > kMaxPriority) {
    fields.refuse("priority", "priority must be from -1000000 to 1000000");
  }
  fields.read("share_prefix_cache", tenant.share_prefix_cache);
  if (auto status = fields.finish(); !status) return tl::unexpected(status.error().message);
  return entry;
}

tl::unexpected<Error> cannot_read(const std::string& path, const char* source) {
  return fail(ErrorCode::io_failed, std::string(source) + ": cannot read the file of keys " + path, source);
}

/// Calls `each(number, line)` for each line that is neither blank nor a comment. An error of `each` ends the loop.
template <class Each>
Status each_line(const std::string& path, const char* source, Each each) {
  std::ifstream file(path);
  if (!file) return cannot_read(path, source);
  std::size_t number = 0;
  for (std::string line; std::getline(file, line);) {
    ++number;
    if (!line.empty() && line.back() == '\r') line.pop_back();
    if (line.find_first_not_of(" \t") == line.npos || line.front() == '#') continue;
    if (auto status = each(number, line); !status) return status;
  }
  if (file.bad()) return cannot_read(path, source);
  return {};
}

}  // namespace

bool is_tenant_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxTenantNameBytes && std::ranges::all_of(name, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' ||
           c == '-';
  });
}

Result<std::size_t> read_keys_file(const std::string& path, KeySet& keys) {
  constexpr const char* kSource = "keys_file";
  std::size_t count = 0;
  auto status = each_line(path, kSource, [&](std::size_t number, const std::string& line) -> Status {
    const auto refuse = [&](const std::string& why) {
      return fail(ErrorCode::bad_config, path + ":" + std::to_string(number) + ": " + why, kSource);
    };
    if (++count > kMaxKeys) return refuse("there are more than " + std::to_string(kMaxKeys) + " keys");
    auto entry = parse_line(line);
    if (!entry) return refuse(entry.error());
    auto added = keys.add(entry->digest, std::move(entry->tenant));
    return added ? Status() : refuse(added.error().message);
  });
  if (!status) return fail(std::move(status.error()));
  return count;
}

std::string keys_file_line(const KeySet::Entry& entry) {
  const auto& tenant = entry.tenant;
  std::string line;
  wire::JsonWriter json(line);
  json.open_object().field("name", tenant.name).field("sha256", to_hex(entry.digest));
  if (tenant.role == KeyRole::admin) json.field("role", "admin");
  const auto limit = [&](const char* name, std::int64_t value) {
    if (value != 0) json.field(name, value);
  };
  limit("requests_per_minute", tenant.limits.requests_per_minute);
  limit("tokens_per_minute", tenant.limits.tokens_per_minute);
  limit("max_concurrent_requests", tenant.limits.max_concurrent_requests);
  limit("priority", tenant.priority);
  if (tenant.share_prefix_cache) json.field("share_prefix_cache", true);
  json.close_object();
  return line;
}

Result<std::string> new_key() {
  KeyDigest bytes{};
  if (RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1) {
    return fail(ErrorCode::io_failed, "the system has no random bytes");
  }
  return "sk-pagoda-" + to_hex(bytes);
}

Status read_plain_keys(const std::string& path, KeyRole role, const char* source, KeySet& keys) {
  bool has_key = false;
  auto status = each_line(path, source, [&](std::size_t, const std::string& line) {
    has_key = true;
    return keys.add(line, role, source);
  });
  if (status && !has_key) {
    return fail(ErrorCode::bad_config, std::string(source) + ": the file of keys " + path + " contains no key", source);
  }
  return status;
}

}  // namespace pagoda::serving
