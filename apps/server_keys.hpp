#pragma once

#include <string>
#include <vector>

#include "io/serving/key_ring.hpp"
#include "kernels/result.hpp"

namespace pagoda::apps {

/// Where the keys of `pagoda serve` come from, as its flags name it.
struct KeySources {
  std::string keys_file;       ///< with names, roles and limits
  std::string api_key;         ///< with commas; empty once it was read
  std::string api_key_file;    ///< one a line
  std::string admin_key_file;  ///< likewise

  /// Whether there is any that can change.
  bool has_files() const { return !keys_file.empty() || !api_key_file.empty() || !admin_key_file.empty(); }

  /// All of them, read now. Appends what is wrong to `problems`: bad_config, whose param is the flag's key.
  serving::KeySet read(std::vector<Error>& problems);

  /// Reads them anew into `ring`, or leaves it as it is and logs why.
  void reload(serving::KeyRing& ring);

 private:
  void take_api_key(std::vector<Error>& problems);

  std::vector<serving::KeyDigest> given_;  ///< of api_key
};

}  // namespace pagoda::apps
