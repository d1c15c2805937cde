#pragma once

#include <string>
#include <vector>

#include "io/serving/key_ring.hpp"
#include "kernels/result.hpp"

namespace pagoda::apps {

/// Sources of the keys of `pagoda serve`, as its flags name them.
struct KeySources {
  std::string keys_file;       ///< file of keys with names, roles and limits
  std::string api_key;         ///< keys separated by commas; empty after they were read
  std::string api_key_file;    ///< file with one key a line
  std::string admin_key_file;  ///< file with one admin key a line

  /// Returns whether any source is a file, whose content can change.
  bool has_files() const { return !keys_file.empty() || !api_key_file.empty() || !admin_key_file.empty(); }

  /// Reads all keys. Appends problems to `problems`: bad_config, with the flag's key as param.
  serving::KeySet read(std::vector<Error>& problems);

  /// Reads the files again and replaces the keys in `ring`. On a failure keeps the old keys and logs the reason.
  void reload(serving::KeyRing& ring);

 private:
  void take_api_key(std::vector<Error>& problems);

  std::vector<serving::KeyDigest> given_;  ///< digests of the keys in api_key
};

}  // namespace pagoda::apps
