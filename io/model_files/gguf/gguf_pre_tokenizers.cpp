#include "io/model_files/gguf/gguf_pre_tokenizers.hpp"

#include <algorithm>
#include <initializer_list>
#include <utility>

namespace pagoda::io {
namespace {

using Names = std::vector<std::string_view>;
using Steps = std::vector<text::PreTokenizerSpec>;

struct Family {
  Names names;
  GgufPreTokenizer parts;
};

constexpr const char* kGpt2 = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr const char* kLlama3 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen35 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kTekken = R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+)"
                                R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*)"
                                R"(|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kGpt4o =
    R"([^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?)"
    R"(|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kDeepseekV3 =
    R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*)"
    R"(|\s*[\r\n]+|\s+(?!\S)|\s+)";
// Characters that look the same as another character are escaped.
constexpr const char* kDeepseekLetters =
    R"(\s?[A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\u1F7Dᾀ-ᾴᾶ-ᾼ\u1FBE)"
    R"(ῂ-ῄῆ-ῌῐ-\u1FD3ῖ-\u1FDBῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212A-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃]+)";
constexpr const char* kBailing =
    R"('(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr const char* kSeedCoder =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kExaoneMoe =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?)"
    R"(|\s*[\r\n]|\s+(?!\S)|\s+)";
constexpr const char* kJais2 =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+)"
    R"(|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S))"
    R"(|\s{1,2}(?!\S)|\s{1})";
// The tokenizer.json has a character class within a character class here; this is their union.
constexpr const char* kBloom = R"( ?[^(\s|.,!?…。，、।۔،)]+)";

text::SplitPreTokenizer split(const char* regex) {
  return {{regex, true}, text::SplitBehavior::isolated, false};
}

// Splits at each regex in turn, then writes bytes as characters.
Steps splits(std::initializer_list<const char*> regexes) {
  Steps steps;
  for (const char* regex : regexes) steps.emplace_back(split(regex));
  steps.emplace_back(text::ByteLevelPreTokenizer{false, false});
  return steps;
}

// GCC 12 warns about uninitialised strings in braced lists of variants, so the steps are added one by one.
template <class... Parts>
Steps steps_of(Parts... parts) {
  Steps steps;
  (steps.emplace_back(std::move(parts)), ...);
  return steps;
}

Steps byte_level() {
  return steps_of(text::ByteLevelPreTokenizer{false, true});
}

Steps byte_level_of_single_digits() {
  return steps_of(text::DigitsPreTokenizer{true}, text::ByteLevelPreTokenizer{false, true});
}

// Inserts the digit step before the last step, which is the byte-level one.
Steps with_single_digits(Steps steps) {
  steps.emplace_back(text::DigitsPreTokenizer{true});
  std::swap(steps.back(), steps[steps.size() - 2]);
  return steps;
}

std::vector<text::NormalizerSpec> nfc() {
  std::vector<text::NormalizerSpec> normalizers;
  normalizers.emplace_back(text::UnicodeNormalizer{text::UnicodeForm::nfc});
  return normalizers;
}

// llama.cpp normalizes no text for these models. Where a model's tokenizer.json has a normalizer, it is used here.
std::vector<Family> make_families() {
  return {
      {{"llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"},
       {{}, splits({kLlama3}), true, true}},
      {{"smaug-bpe", "dbrx", "chatglm-bpe"}, {{}, splits({kLlama3})}},
      {{"glm4", "glm5"}, {{}, splits({kLlama3}), true}},
      {{"qwen2", "deepseek-r1-qwen"}, {nfc(), splits({kQwen2})}},
      {{"stablelm2", "megrez", "kormo", "f2llmv2", "hunyuan", "solar-open", "grok-2"}, {{}, splits({kQwen2})}},
      {{"qwen35"}, {nfc(), splits({kQwen35})}},
      {{"gpt-2", "phi-2", "jina-es", "jina-de", "jina-v2-es", "jina-v2-de", "gigachat", "a.x-4.0", "mellum",
        "modern-bert", "jais", "trillion", "granite-docling", "exaone4"},
       {{}, byte_level()}},
      {{"mpt", "olmo"}, {nfc(), byte_level()}},
      {{"starcoder", "refact", "smollm", "codeshell", "exaone", "minerva-7b", "mellum2"},
       {{}, byte_level_of_single_digits()}},
      {{"command-r"}, {nfc(), byte_level_of_single_digits()}},
      {{"tekken"}, {{}, splits({kTekken}), true, true}},
      {{"gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"}, {{}, splits({kGpt4o})}},
      {{"tiny_aya", "cohere2moe"}, {{}, splits({R"(\d{1,3}(?=(?:\d{3})*\b))", kGpt4o})}},
      {{"deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"},
       {{}, splits({R"(\p{N}{1,3})", "[一-龥぀-ゟ゠-ヿ]+", kDeepseekV3})}},
      {{"deepseek-llm"},
       {{},
        with_single_digits(splits({"[\r\n]", kDeepseekLetters, R"(\s?[!-/:-~！-／：-～‘-‟　-。]+)", R"(\s+$)",
                                   "[一-龥ࠀ-一가-퟿]+"}))}},
      {{"deepseek-coder"},
       {{}, with_single_digits(splits({"[\r\n]", R"(\s?\p{L}+)", R"(\s?\p{P}+)", "[一-龥ࠀ-一가-퟿]+"}))}},
      {{"falcon"},
       {{},
        steps_of(text::PunctuationPreTokenizer{text::SplitBehavior::contiguous},
                 text::ByteLevelPreTokenizer{false, true}, text::DigitsPreTokenizer{false}, split("[0-9][0-9][0-9]"))}},
      {{"bloom", "poro-chat", "gpt3-finnish"}, {{}, splits({kBloom})}},
      {{"viking"}, {{}, with_single_digits(splits({kBloom}))}},
      {{"bailingmoe", "bailingmoe2", "llada-moe"}, {{}, splits({kBailing})}},
      {{"seed-coder"}, {{}, splits({kSeedCoder})}},
      {{"exaone-moe"}, {{}, splits({kExaoneMoe})}},
      {{"jais-2"}, {{}, splits({kJais2})}},
      {{"default"}, {{}, splits({R"([\p{P}\$\+<=>\^~\|]+)", kGpt2, R"(\p{N}+)", "[0-9][0-9][0-9]"})}},
  };
}

const std::vector<Family>& families() {
  static const std::vector<Family> all = make_families();
  return all;
}

}  // namespace

const GgufPreTokenizer* find_gguf_pre_tokenizer(std::string_view name) {
  for (const Family& family : families()) {
    if (std::ranges::find(family.names, name) != family.names.end()) return &family.parts;
  }
  return nullptr;
}

std::string_view gguf_pre_tokenizer_name(const std::vector<text::NormalizerSpec>& normalizers,
                                         const std::vector<text::PreTokenizerSpec>& pre_tokenizers,
                                         bool ignore_merges) {
  const auto found = std::ranges::find_if(families(), [&](const Family& family) {
    return family.parts.normalizers == normalizers && family.parts.pre_tokenizers == pre_tokenizers &&
           family.parts.ignore_merges == ignore_merges;
  });
  return found == families().end() ? std::string_view() : found->names.front();
}

std::vector<std::string_view> gguf_pre_tokenizer_names() {
  Names names;
  for (const Family& family : families()) names.insert(names.end(), family.names.begin(), family.names.end());
  std::ranges::sort(names);
  return names;
}

}  // namespace pagoda::io
