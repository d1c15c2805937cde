#pragma once

#include <string>
#include <string_view>

#include "kernels/result.hpp"

namespace pagoda::text {

/// Rewrites a regular expression from Oniguruma's Ruby syntax, which tokenizer files use, to PCRE2's. The two agree on
/// nearly everything. Most differences are rewritten (\s \w \h \v \uHHHH, script properties, (?m), {,n}). Patterns that
/// PCRE2 would silently read as something else (nested classes, && in classes, {n,m}+) are refused with an error that
/// says so. The result needs the options UTF, UCP and MULTILINE.
Result<std::string> oniguruma_to_pcre2(std::string_view pattern);

}  // namespace pagoda::text
