#pragma once

#include <cstdint>
#include <string>

#include "engine/types.hpp"

namespace pagoda {

/// What is known of an adapter when it is loaded for the first time. It stays the same: an adapter whose files have
/// changed is not loaded again under its name.
struct AdapterFacts {
  std::uint64_t fingerprint = 0;        ///< hash of what its files contain; 0 = it was never loaded
  std::int32_t num_virtual_tokens = 0;  ///< that a prompt adapter puts in front of each prompt

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.fingerprint, self.num_virtual_tokens);
  }
  friend bool operator==(const AdapterFacts&, const AdapterFacts&) = default;
};

/// The adapter of a request or of a row. Devices load it from its path.
struct AdapterRef {
  AdapterId id = 0;  ///< 0 = none: the base model
  std::string name;  ///< name that requests use
  std::string path;  ///< folder in PEFT's format, or GGUF file
  AdapterFacts facts = {};

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.id, self.name, self.path, self.facts);
  }
};

}  // namespace pagoda
