// Templates with random damage: they render, or are refused, and nothing else happens.

#include <algorithm>
#include <filesystem>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "tests/io/fuzz/mutations.hpp"
#include "tests/io/jinja/render_text.hpp"

namespace pagoda::jinja {
namespace {

using testing::Json;

constexpr int kMutationsPerTemplate = 60;

Json context() {
  return {{"messages",
           {{{"role", "user"}, {"content", "Hi é"}},
            {{"role", "assistant"},
             {"content", nullptr},
             {"tool_calls", {{{"function", {{"name", "f"}, {"arguments", {{"a", 1}}}}}}}}},
            {{"role", "tool"}, {"content", "{}"}}}},
          {"tools", {{{"type", "function"}, {"function", {{"name", "f"}, {"parameters", Json::object()}}}}}},
          {"add_generation_prompt", true},
          {"bos_token", "<s>"}};
}

void try_template(std::string_view source) {
  static const Json given = context();
  Limits limits;
  limits.max_steps = 100'000;
  limits.max_bytes_made = std::size_t{16} << 20U;
  const auto rendered = testing::render(source, given, limits);
  if (rendered) {
    for (const TextRange& range : rendered->inserted) ASSERT_LE(range.end, rendered->text.size());
  }
}

std::vector<std::string> seeds() {
  std::vector<std::string> texts = {"{% for m in messages %}{{ m.role|upper ~ '\\n' }}{{ loop.index }}{% endfor %}"};
  const auto folder = std::filesystem::path(PAGODA_SHARED_DIR) / "templates";
  if (std::filesystem::exists(folder)) {
    for (auto& text : io::testing::texts_of_files(folder)) texts.push_back(std::move(text));
  }
  std::ranges::sort(texts);
  return texts;
}

std::string damage(std::string text, std::mt19937& rng) {
  static const std::vector<std::string> kPieces = {"{%",
                                                   "%}",
                                                   "{{",
                                                   "}}",
                                                   "{#",
                                                   "-%}",
                                                   "(",
                                                   ")",
                                                   "[",
                                                   "]",
                                                   "'",
                                                   "|",
                                                   ".",
                                                   "~",
                                                   "*",
                                                   "**",
                                                   "%",
                                                   " if ",
                                                   " else ",
                                                   " is ",
                                                   " not ",
                                                   " in ",
                                                   "loop",
                                                   "loop(",
                                                   "namespace(",
                                                   "|tojson",
                                                   "|map('upper')",
                                                   "[::-1]",
                                                   "[-1]",
                                                   "none",
                                                   "1e400",
                                                   "-1",
                                                   "9223372036854775807",
                                                   "{% endif %}",
                                                   "{% endfor %}",
                                                   "{% set x %}",
                                                   "{% endset %}",
                                                   "{% raw %}",
                                                   "\xff",
                                                   "\xe2\x82",
                                                   "é",
                                                   "|format(1)",
                                                   "%s",
                                                   ".format(1)",
                                                   "|groupby('role')|list",
                                                   "|sort",
                                                   "|batch(2)|list",
                                                   "range(9)|list",
                                                   "caller()",
                                                   "\\u00e9"};
  return io::testing::mutated(std::move(text), kPieces, rng);
}

TEST(TemplateFuzzing, SurvivesDamagedTemplates) {
  std::mt19937 rng(1);
  for (const std::string& seed : seeds()) {
    for (int i = 0; i < kMutationsPerTemplate; ++i) try_template(damage(seed, rng));
  }
}

TEST(TemplateFuzzing, SurvivesRandomTokens) {
  std::mt19937 rng(2);
  for (int i = 0; i < 5000; ++i)
    try_template("{{ " + damage("messages[0].content", rng) + damage("|join(', ')", rng) + " }}");
}

TEST(TemplateFuzzing, SurvivesRandomBytes) {
  std::mt19937 rng(3);
  for (int i = 0; i < 5000; ++i) {
    std::string text(rng() % 64, ' ');
    for (char& c : text) c = rng() % 3 == 0 ? "{}%#-'\"()[]|."[rng() % 14] : static_cast<char>(rng() % 128);
    try_template(text);
  }
}

TEST(TemplateFuzzing, SurvivesEveryCutOfATemplate) {
  const std::string text = seeds().back();
  for (std::size_t size = 0; size < text.size(); size += 3) try_template(std::string_view(text).substr(0, size));
}

}  // namespace
}  // namespace pagoda::jinja
