// Measures the cost of structured output: compiling a grammar, and the mask of one token. PAGODA_BENCH_TOKENIZER names
// a folder with a tokenizer; the default is the tokenizer of the demo model.

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <benchmark/benchmark.h>
#include <nlohmann/json.hpp>

#include "engine/grammar/compiled_grammar.hpp"
#include "io/model_files/model_files.hpp"
#include "kernels/sample.hpp"

namespace pagoda::grammar {
namespace {

constexpr const char* kTool =
    R"({"type":"object","properties":{"location":{"type":"string","description":"City and country"},)"
    R"("unit":{"type":"string","enum":["celsius","fahrenheit"]},"days":{"type":"integer","minimum":1,"maximum":16},)"
    R"("details":{"type":"array","items":{"type":"string","enum":["wind","rain","sun"]},"maxItems":3},)"
    R"("when":{"type":"string","format":"date-time"},"note":{"anyOf":[{"type":"string","maxLength":80},{"type":"null"}]}},)"
    R"("required":["location","unit"],"additionalProperties":false})";

const StructuredOutput& constraint(std::int64_t index) {
  static const std::vector<StructuredOutput> all{
      {GrammarKind::json_schema, kTool, {}},
      {GrammarKind::json_object, {}, {}},
      {GrammarKind::regex, "[A-Z][a-z]{1,20}( [A-Z][a-z]{1,20}){0,3}, \\d{4}-\\d{2}-\\d{2}", {}}};
  return all[static_cast<std::size_t>(index)];
}

struct Vocabulary {
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::int64_t vocab_size = 0;
  TokenId end = 0;
};

const Vocabulary& vocabulary() {
  static const Vocabulary made = [] {
    const char* const folder = std::getenv("PAGODA_BENCH_TOKENIZER");
    const char* const demo = "examples/models/pagoda-stories";  // relative to the repository's root
    Vocabulary result{io::load_tokenizer(folder != nullptr ? folder : demo).value()};
    result.vocab_size = static_cast<std::int64_t>(result.tokenizer->vocab_size());
    for (TokenId id = 0; id < result.vocab_size; ++id) {
      if (!result.tokenizer->token_bytes(id)) result.end = id;  // the last special token
    }
    return result;
  }();
  return made;
}

std::unique_ptr<Compiler> make_compiler() {
  const Vocabulary& v = vocabulary();
  return Compiler::create(*v.tokenizer, {.vocab_size = v.vocab_size, .eos_token_ids = {v.end}}).value();
}

Compiler& compiler() {
  static const std::unique_ptr<Compiler> made = make_compiler();
  return *made;
}

void prepare_vocabulary(benchmark::State& state) {
  for (auto _ : state) benchmark::DoNotOptimize(make_compiler());
}
BENCHMARK(prepare_vocabulary)->Unit(benchmark::kMillisecond);

void compile(benchmark::State& state) {
  compiler();
  for (auto _ : state) benchmark::DoNotOptimize(compiler().compile(constraint(state.range(0))));
}
BENCHMARK(compile)->DenseRange(0, 2)->Unit(benchmark::kMillisecond);

/// Makes masks along random tokens of the grammar. Measures only the mask.
void mask(benchmark::State& state) {
  using Clock = std::chrono::steady_clock;
  const SharedGrammar grammar = compiler().compile(constraint(state.range(0))).value();
  std::vector<std::uint32_t> words(kernels::mask_words(grammar->vocab_size()));
  std::vector<double> us;
  std::mt19937 random(1);
  Matcher matcher(grammar);
  std::size_t length = 0;
  for (auto _ : state) {
    if (matcher.has_ended() || length++ > 200) {
      matcher = Matcher(grammar);
      length = 0;
    }
    const auto start = Clock::now();
    matcher.fill_mask(words);
    const std::chrono::duration<double, std::micro> took = Clock::now() - start;
    us.push_back(took.count());
    state.SetIterationTime(took.count() / 1e6);
    TokenIds ids;
    for (TokenId id = 0; id < grammar->vocab_size(); ++id) {
      if ((words[static_cast<std::size_t>(id / 32)] >> (id % 32) & 1U) != 0) ids.push_back(id);
    }
    matcher.accept(ids[random() % ids.size()]);
  }
  std::ranges::sort(us);
  state.counters["median_us"] = us[us.size() / 2];
  state.counters["p99_us"] = us[us.size() * 99 / 100];
  state.counters["max_us"] = us.back();
}
BENCHMARK(mask)->DenseRange(0, 2)->UseManualTime()->Iterations(2'000)->Unit(benchmark::kMicrosecond);

/// Counts the tokens of a tool call for which a grammar leaves no choice, when the text is cut into its usual tokens:
/// writing these tokens ahead could save their steps. More tokens lie within text that is certain, but that text may be
/// cut into tokens in several ways.
void tokens_without_alternative(benchmark::State& state) {
  const std::string before = "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": ";
  const std::string behind = "}\n</tool_call>";
  const std::string text =
      before + R"({"location": "Paris, France", "unit": "celsius", "days": 3, "details": ["wind", "rain"]})" + behind;
  const auto constant = [](const std::string& value) {
    return nlohmann::ordered_json{{"type", "const_string"}, {"value", value}};
  };
  const nlohmann::ordered_json schema{{"type", "json_schema"}, {"json_schema", nlohmann::ordered_json::parse(kTool)}};
  const nlohmann::ordered_json format{
      {"type", "sequence"}, {"elements", nlohmann::ordered_json::array({constant(before), schema, constant(behind)})}};
  const auto grammar =
      compiler().compile({GrammarKind::structural_tag, nlohmann::ordered_json{{"format", format}}.dump(), {}}).value();
  auto tokens = vocabulary().tokenizer->encode(text, false).value();
  tokens.push_back(vocabulary().end);
  double alone = 0;
  for (auto _ : state) {
    alone = 0;
    Matcher matcher(grammar);
    for (const TokenId token : tokens) {
      std::vector<std::uint32_t> words(kernels::mask_words(grammar->vocab_size()));
      matcher.fill_mask(words);
      int num_allowed = 0;
      for (const std::uint32_t word : words) num_allowed += std::popcount(word);
      alone += num_allowed == 1 ? 1 : 0;
      if (!matcher.accept(token)) state.SkipWithError("the call is none in this vocabulary");
    }
  }
  state.counters["tokens"] = static_cast<double>(tokens.size());
  state.counters["without_alternative"] = alone;
}
BENCHMARK(tokens_without_alternative)->Iterations(1)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace pagoda::grammar
