#include "engine/text/regex.hpp"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <algorithm>
#include <array>
#include <limits>
#include <utility>

#include <pcre2.h>

#include "engine/text/regex_syntax.hpp"
#include "engine/text/unicode.hpp"

namespace pagoda::text {
namespace {

// Limits of one search: steps of the matcher, and heap of the interpreter, which takes over when the compiled code runs
// out of its fixed stack.
constexpr std::size_t kBaseSteps = 1'000'000;
constexpr std::size_t kStepsPerByte = 16;
constexpr std::uint32_t kHeapLimitKiB = 512 * 1024;

std::string error_text(int code) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(code, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

PCRE2_SPTR as_pcre2(std::string_view text) {
  // PCRE2 refuses a null pointer even for empty text.
  return reinterpret_cast<PCRE2_SPTR>(text.data() == nullptr ? "" : text.data());
}

struct FreeMatchData {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct FreeMatchContext {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};

}  // namespace

struct Regex::Compiled {
  explicit Compiled(pcre2_code* compiled_code) : code(compiled_code) {}
  Compiled(const Compiled&) = delete;
  Compiled& operator=(const Compiled&) = delete;
  ~Compiled() { pcre2_code_free(code); }

  pcre2_code* code;
};

Result<Regex> Regex::compile(std::string_view pattern) {
  if (find_invalid_utf8(pattern) != std::string_view::npos) {
    return fail(ErrorCode::bad_config, "the regex is not valid UTF-8");
  }
  const Result<std::string> translated = oniguruma_to_pcre2(pattern);
  if (!translated) return fail(translated.error());
  constexpr std::uint32_t kOptions = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
  pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
  if (context == nullptr) return fail(ErrorCode::out_of_memory, "no memory to compile a regex");
  pcre2_set_newline(context, PCRE2_NEWLINE_LF);
  int code = 0;
  PCRE2_SIZE offset = 0;
  pcre2_code* compiled = pcre2_compile(as_pcre2(*translated), translated->size(), kOptions, &code, &offset, context);
  pcre2_compile_context_free(context);
  if (compiled == nullptr) return fail(ErrorCode::bad_config, "the regex is invalid: " + error_text(code));
  // Without JIT on this machine the interpreter runs. It is slower and finds the same matches.
  pcre2_jit_compile(compiled, PCRE2_JIT_COMPLETE);
  return Regex(std::make_shared<const Compiled>(compiled));
}

Status Regex::find_all(std::string_view text, std::vector<Span>& matches) const {
  if (text.empty()) return {};
  const std::unique_ptr<pcre2_match_data, FreeMatchData> data(
      pcre2_match_data_create_from_pattern(compiled_->code, nullptr));
  const std::unique_ptr<pcre2_match_context, FreeMatchContext> context(pcre2_match_context_create(nullptr));
  if (!data || !context) return fail(ErrorCode::out_of_memory, "no memory to split the text");
  const std::size_t steps = kBaseSteps + kStepsPerByte * text.size();
  pcre2_set_match_limit(context.get(), static_cast<std::uint32_t>(
                                           std::min<std::size_t>(steps, std::numeric_limits<std::uint32_t>::max())));
  pcre2_set_heap_limit(context.get(), kHeapLimitKiB);

  std::size_t from = 0;
  std::size_t last_end = std::string_view::npos;
  while (from <= text.size()) {
    const auto search = [&](std::uint32_t options) {
      return pcre2_match(compiled_->code, as_pcre2(text), text.size(), from, options, data.get(), context.get());
    };
    int rc = search(PCRE2_NO_UTF_CHECK);
    if (rc == PCRE2_ERROR_JIT_STACKLIMIT) rc = search(PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT);
    if (rc == PCRE2_ERROR_NOMATCH) return {};
    if (rc < 0) {
      return fail(ErrorCode::invalid_request,
                  "the text is too hard to split with the tokenizer's regex: " + error_text(rc));
    }
    const PCRE2_SIZE* found = pcre2_get_ovector_pointer(data.get());
    const Span match{found[0], std::max(found[0], found[1])};
    if (match.begin == match.end && match.end == last_end) {
      // An empty match right after the last match does not count; the search goes on after the next character.
      if (from >= text.size()) return {};
      next_character(text, from);
      continue;
    }
    matches.push_back(match);
    from = match.end;
    last_end = match.end;
  }
  return {};
}

}  // namespace pagoda::text
