#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "engine/types.hpp"
#include "kernels/result.hpp"

namespace pagoda::text {

using Span = ByteRange;

/// A compiled regular expression. Immutable: many threads may match with one object.
class Regex {
 public:
  /// Compiles a pattern in Oniguruma's (Ruby) syntax. Error: bad_config with a message that explains the fault in the
  /// pattern.
  static Result<Regex> compile(std::string_view pattern);

  /// Appends every match in `text`, from left to right and without overlaps, to `matches`. `text` must be valid UTF-8.
  /// Error: invalid_request when the search takes too many steps or too much memory.
  Status find_all(std::string_view text, std::vector<Span>& matches) const;

 private:
  struct Compiled;
  explicit Regex(std::shared_ptr<const Compiled> compiled) : compiled_(std::move(compiled)) {}

  std::shared_ptr<const Compiled> compiled_;
};

}  // namespace pagoda::text
