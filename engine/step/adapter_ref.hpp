#pragma once

#include <cstdint>
#include <string>

#include "engine/types.hpp"

namespace pagoda {

/// The adapter of a request or of a row. Devices load it from its path.
struct AdapterRef {
  AdapterId id = 0;  ///< 0 = none: the base model
  std::string name;  ///< name that requests use
  std::string path;  ///< folder in PEFT's format, or GGUF file
  /// Number of virtual tokens that a prompt adapter puts in front of each prompt. Known when the adapter is loaded.
  std::int32_t num_virtual_tokens = 0;

  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.id, self.name, self.path, self.num_virtual_tokens);
  }
};

}  // namespace pagoda
