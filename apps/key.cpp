#include <cstdio>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include <CLI/CLI.hpp>
#include <fcntl.h>
#include <unistd.h>

#include "apps/command.hpp"
#include "apps/flag_values.hpp"
#include "io/serving/keys_file.hpp"

namespace pagoda::apps {
namespace {

constexpr std::size_t kMinKeyBytes = 16;  // for a key that was made elsewhere

struct KeyOptions {
  std::string name;
  std::string file;
  bool admin = false;
  bool from_stdin = false;
  serving::Tenant tenant;
};

Result<std::string> key_of(const KeyOptions& options) {
  if (!options.from_stdin) return serving::new_key();
  std::string key;
  std::getline(std::cin, key);
  if (!key.empty() && key.back() == '\r') key.pop_back();
  if (key.size() < kMinKeyBytes || key.find_first_of(" \t") != std::string::npos) {
    return fail(ErrorCode::bad_config,
                "the key on standard input must have " + std::to_string(kMinKeyBytes) +
                    " characters or more and no spaces: a short key can be guessed from its digest",
                "from_stdin");
  }
  return key;
}

/// Returns whether text that is appended to the file begins a new line.
bool ends_with_line(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file || file.tellg() <= 0) return true;
  file.seekg(-1, std::ios::end);
  return file.get() == '\n';
}

/// Appends a line to the file. A new file can be read only by its owner and group.
Status append_line(const std::string& path, const std::string& line) {
  constexpr mode_t kMode = 0640;
  const auto cannot = [&] { return fail(ErrorCode::io_failed, "cannot write " + path, "file"); };
  const auto text = (ends_with_line(path) ? "" : "\n") + line + "\n";
  const int file = ::open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, kMode);
  if (file < 0) return cannot();
  const bool is_written = ::write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  const bool is_closed = ::close(file) == 0;
  if (!is_written || !is_closed) return cannot();
  return {};
}

/// Checks that the server would accept the new line beside the existing ones.
Status check_file(const std::string& path, const serving::KeySet::Entry& entry) {
  serving::KeySet keys;
  if (::access(path.c_str(), F_OK) == 0) {
    if (auto read = serving::read_keys_file(path, keys); !read) return fail(std::move(read.error()));
  }
  if (auto added = keys.add(entry.digest, entry.tenant); !added) {
    return fail(ErrorCode::bad_config, path + ": " + added.error().message, "file");
  }
  return {};
}

int run_new(KeyOptions& options) {
  if (!serving::is_tenant_name(options.name)) {
    return exit_with(Error{ErrorCode::bad_config,
                           "NAME must have 1 to " + std::to_string(serving::kMaxTenantNameBytes) +
                               " letters, digits, dots, underscores and dashes",
                           "name"});
  }
  const auto key = key_of(options);
  if (!key) return exit_with(key.error());
  options.tenant.name = options.name;
  options.tenant.role = options.admin ? serving::KeyRole::admin : serving::KeyRole::user;
  const serving::KeySet::Entry entry{serving::digest_of(*key), options.tenant};
  const auto line = serving::keys_file_line(entry);
  if (options.file.empty()) {
    if (!options.from_stdin) std::printf("%s\n", key->c_str());
    std::printf("%s\n", line.c_str());
    return kExitOk;
  }
  if (const auto fits = check_file(options.file, entry); !fits) return exit_with(fits.error());
  if (const auto written = append_line(options.file, line); !written) return exit_with(written.error());
  if (!options.from_stdin) std::printf("%s\n", key->c_str());
  return kExitOk;
}

}  // namespace

Command add_key(CLI::App& pagoda) {
  auto* app = add_subcommand(
      pagoda, "key", "Make a key for --keys-file: prints the key, which is shown only once, and the line for the file");
  const auto options = std::make_shared<KeyOptions>();
  auto& limits = options->tenant.limits;
  app->add_option("NAME", options->name, "Name of the tenant: requests with this key belong to it");
  app->add_option("--file", options->file, "Append the line to this file, and print only the key");
  app->add_flag("--admin", options->admin, "Allow the admin routes with this key");
  app->add_flag("--from-stdin", options->from_stdin, "Read the key from standard input instead of making a new one");
  add_number(*app, "--requests-per-minute", limits.requests_per_minute, "0: no limit", std::int64_t{0},
             serving::kMaxPerMinute);
  add_number(*app, "--tokens-per-minute", limits.tokens_per_minute, "Tokens of prompts and outputs; 0: no limit",
             std::int64_t{0}, serving::kMaxPerMinute);
  add_number(*app, "--max-concurrent-requests", limits.max_concurrent_requests, "0: no limit", std::int64_t{0},
             serving::kMaxPerMinute);
  add_number(*app, "--priority", options->tenant.priority,
             "Priority of its requests, with the priority policy; lower numbers run first", -serving::kMaxPriority,
             serving::kMaxPriority);
  app->add_flag("--share-prefix-cache", options->tenant.share_prefix_cache,
                "Share the prefix cache with the requests of other keys that share it");
  return {app, [options] { return run_new(*options); }};
}

}  // namespace pagoda::apps
