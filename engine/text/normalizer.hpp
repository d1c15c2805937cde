#pragma once

#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "engine/text/literals.hpp"
#include "engine/text/regex.hpp"
#include "engine/text/tokenizer_spec.hpp"
#include "kernels/result.hpp"

namespace pagoda::text {

/// A Replace: every match of the pattern becomes `content`. Normalizers and decoders share it.
class Replacer {
 public:
  /// Error: bad_config for an empty pattern or a bad regex.
  static Result<Replacer> create(const Pattern& pattern, std::string content);
  /// Replaces all matches. Appends the replaced ranges to `edits` if it is not null. Error: as Regex::find_all.
  Result<std::string> apply(std::string_view text, std::vector<Edit>* edits = nullptr) const;

 private:
  std::variant<std::string, Regex> pattern_ = std::string();
  std::string content_;
};

/// Returns the composed, decomposed or compatibility form of valid UTF-8. O(n log n).
Result<std::string> to_unicode_form(std::string_view text, UnicodeForm form);

/// All the normalizers of a tokenizer, in order. Immutable.
class Normalizer {
 public:
  static Result<Normalizer> create(const std::vector<NormalizerSpec>& specs);
  struct Output {
    std::string text;
    bool keeps_start = true;  ///< whether nothing was dropped from the start
    /// Places of the input's literals; they cover at least what came from the literals.
    std::vector<ByteRange> literals;
  };
  /// Normalizes `text`. Both `text` and the result are valid UTF-8. `literals` must be ordered and disjoint. Error: as
  /// Regex::find_all.
  Result<Output> apply(std::string_view text, std::span<const ByteRange> literals = {}) const;

 private:
  using Stage = std::variant<PrependNormalizer, Replacer, UnicodeNormalizer, StripNormalizer, LowercaseNormalizer>;
  std::vector<Stage> stages_;
};

}  // namespace pagoda::text
