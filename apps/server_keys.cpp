#include "apps/server_keys.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include <openssl/crypto.h>
#include <spdlog/spdlog.h>

#include "io/serving/keys_file.hpp"

namespace pagoda::apps {
namespace {

using serving::KeyRole;
using serving::KeySet;

/// Adds a problem for a file that cannot be read: its flag is wrong.
void note(Status status, const char* key, std::vector<Error>& problems) {
  if (!status) problems.push_back({ErrorCode::bad_config, std::move(status.error().message), key});
}

void add_plain(const std::string& path, KeyRole role, const char* key, KeySet& keys, std::vector<Error>& problems) {
  if (!path.empty()) note(serving::read_plain_keys(path, role, key, keys), key, problems);
}

void add_named(const std::string& path, KeySet& keys, std::vector<Error>& problems) {
  auto read = serving::read_keys_file(path, keys);
  if (read && *read == 0) read = fail(ErrorCode::bad_config, path + ": there is no key in the file", "keys_file");
  if (!read) problems.push_back({ErrorCode::bad_config, std::move(read.error().message), "keys_file"});
}

}  // namespace

/// Reads the keys of api_key and clears the text: afterwards only digests are kept.
void KeySources::take_api_key(std::vector<Error>& problems) {
  auto list = std::exchange(api_key, {});
  for (std::size_t begin = 0; !list.empty() && begin <= list.size();) {
    const auto end = std::min(list.find(',', begin), list.size());
    const auto key = std::string_view(list).substr(begin, end - begin);
    if (key.empty() || key.find_first_of(" \t\r\n") != std::string_view::npos) {
      problems.push_back(
          {ErrorCode::bad_config, "api_key must be one key, or several with commas, without spaces", "api_key"});
      break;
    }
    given_.push_back(serving::digest_of(key));
    begin = end + 1;
  }
  OPENSSL_cleanse(list.data(), list.size());
}

KeySet KeySources::read(std::vector<Error>& problems) {
  take_api_key(problems);
  KeySet keys;
  if (!keys_file.empty()) add_named(keys_file, keys, problems);
  add_plain(api_key_file, KeyRole::user, "api_key_file", keys, problems);
  add_plain(admin_key_file, KeyRole::admin, "admin_key_file", keys, problems);
  for (const auto& digest : given_) note(keys.add(digest, KeyRole::user, "api_key"), "api_key", problems);
  return keys;
}

void KeySources::reload(serving::KeyRing& ring) {
  std::vector<Error> problems;
  const auto keys = read(problems);
  const bool has_users =
      std::ranges::any_of(keys.entries, [](const auto& entry) { return entry.tenant.role == KeyRole::user; });
  if (problems.empty() && ring.requires_keys() && !has_users) {
    problems.push_back(
        {ErrorCode::bad_config, "without user keys every client could call: restart the server to serve without keys"});
  }
  for (const auto& problem : problems) spdlog::error("the keys are not changed: {}", problem.message);
  if (!problems.empty()) return;
  ring.replace(keys);
  spdlog::info("the keys were read again; number of keys: {}", keys.entries.size());
}

}  // namespace pagoda::apps
