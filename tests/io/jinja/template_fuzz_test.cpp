// Templates with random damage: they render, or are refused, and nothing else happens.

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>

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
  static const Json kContext = context();
  Limits limits;
  limits.max_steps = 100'000;
  limits.max_bytes_made = std::size_t{16} << 20U;
  const auto rendered = testing::render(source, kContext, limits);
  if (rendered) {
    for (const TextRange& range : rendered->inserted) ASSERT_LE(range.end, rendered->text.size());
  }
}

std::vector<std::string> seeds() {
  std::vector<std::string> texts = {"{% for m in messages %}{{ m.role|upper ~ '\\n' }}{{ loop.index }}{% endfor %}"};
  const auto folder = std::filesystem::path(PAGODA_SHARED_DIR) / "templates";
  if (!std::filesystem::exists(folder)) return texts;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    std::ifstream file(entry.path(), std::ios::binary);
    texts.emplace_back(std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>());
  }
  std::sort(texts.begin(), texts.end());
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
  const auto pick = [&](std::size_t bound) {
    return static_cast<std::size_t>(rng()) % std::max<std::size_t>(bound, 1);
  };
  for (std::size_t changes = 1 + pick(5); changes > 0 && !text.empty(); --changes) {
    const std::size_t at = pick(text.size());
    const std::size_t size = std::min(1 + pick(20), text.size() - at);
    switch (pick(5)) {
      case 0:
        text[at] = static_cast<char>(rng());
        break;
      case 1:
        text.erase(at, size);
        break;
      case 2:
        text.insert(at, text.substr(pick(text.size()), size));
        break;
      case 3:
        text.insert(at, kPieces[pick(kPieces.size())]);
        break;
      default:
        text.replace(at, size, kPieces[pick(kPieces.size())]);
        break;
    }
  }
  return text;
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
