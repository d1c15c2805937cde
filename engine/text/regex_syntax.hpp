#pragma once

#include <string>
#include <string_view>

#include "kernels/result.hpp"

namespace pagoda::text {

/// Rewrites a regular expression from Oniguruma's Ruby syntax, in which tokenizer files are written, to PCRE2's. The
/// two agree on nearly everything; what differs is rewritten (\s \w \h \v \uHHHH, script properties, (?m), {,n}) or,
/// where PCRE2 would silently read something else (nested classes, && in classes, {n,m}+), refused with an error that
/// says so. The result wants the options UTF, UCP and MULTILINE.
Result<std::string> oniguruma_to_pcre2(std::string_view pattern);

}  // namespace pagoda::text
