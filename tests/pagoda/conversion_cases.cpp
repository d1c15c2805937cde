#include "tests/pagoda/conversion_cases.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <span>
#include <sstream>
#include <string_view>

#include <gtest/gtest.h>

#include "io/chat/chat_prompts.hpp"
#include "io/model_files/hf_config.hpp"
#include "io/model_files/model_files.hpp"
#include "pagoda/token_logits.hpp"
#include "tests/io/model_files/tokenizer_test_files.hpp"
#include "tests/support/random_model.hpp"

namespace pagoda::test {
namespace {

using io::testing::kTextDataDir;
using io::testing::read_json;
using io::testing::read_text;
using nlohmann::json;

const std::filesystem::path kTokenizers = kTextDataDir / "files";

constexpr const char* kChatMl =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content | trim }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";
constexpr const char* kInstruct =
    "{{ bos_token }}{% for m in messages %}{% if m.role == 'user' %}[INST] {{ m.content }} [/INST]"
    "{% elif m.role == 'system' %}<<SYS>>{{ m.content }}<</SYS>>{% else %} {{ m.content }}{{ eos_token }}{% endif %}"
    "{% endfor %}";

constexpr const char* kLlama3Words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
constexpr const char* kQwen2Words =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

json config_of(const char* architecture, const json& changes) {
  json config{{"architectures", {architecture}}, {"hidden_size", 64},        {"intermediate_size", 96},
              {"num_hidden_layers", 2},          {"num_attention_heads", 4}, {"num_key_value_heads", 2},
              {"max_position_embeddings", 256},  {"rms_norm_eps", 1e-5},     {"vocab_size", 640},
              {"torch_dtype", "float32"}};
  config.merge_patch(changes);
  return config;
}

/// A byte-level tokenizer.json of the vocabulary under tests/data, with special tokens behind it.
std::string byte_level_json(const char* words, const std::vector<std::string>& special, const json& changes) {
  const json vocab = read_json(kTokenizers / "gpt2" / "vocab.json");
  json merges = json::array();
  std::istringstream lines(read_text(kTokenizers / "gpt2" / "merges.txt"));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("#version")) merges.push_back(line);
  }
  json added = json::array();
  for (const std::string& content : special) {
    added.push_back({{"id", vocab.size() + added.size()},
                     {"content", content},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", false},
                     {"special", content.starts_with("<|")}});
  }
  const json byte_level{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  const json split{{"type", "Split"}, {"pattern", {{"Regex", words}}}, {"behavior", "Isolated"}, {"invert", false}};
  json tokenizer{{"version", "1.0"},
                 {"added_tokens", added},
                 {"normalizer", nullptr},
                 {"pre_tokenizer", {{"type", "Sequence"}, {"pretokenizers", {split, byte_level}}}},
                 {"post_processor", nullptr},
                 {"decoder", byte_level},
                 {"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", merges}}}};
  tokenizer.merge_patch(changes);
  return tokenizer.dump();
}

/// The post-processor that puts `token` in front of a text.
json begins_with(const std::string& token, int id) {
  const json piece{{"SpecialToken", {{"id", token}, {"type_id", 0}}}};
  const json text{{"Sequence", {{"id", "A"}, {"type_id", 0}}}};
  return {{"post_processor",
           {{"type", "TemplateProcessing"},
            {"single", {piece, text}},
            {"pair", {piece, text}},
            {"special_tokens", {{token, {{"id", token}, {"ids", {id}}, {"tokens", {token}}}}}}}}};
}

std::string sentencepiece(const char* folder) {
  return read_text(kTokenizers / folder / "tokenizer.model");
}

/// As Phi-3 has them: white space behind goes with them.
json stripping(const std::vector<std::string>& contents, int first_id) {
  json tokens{{"2", {{"content", "</s>"}, {"rstrip", true}, {"special", false}}}};
  for (const std::string& content : contents) {
    tokens[std::to_string(first_id++)] = {
        {"content", content}, {"rstrip", content != "<|endoftext|>"}, {"special", true}};
  }
  return tokens;
}

const std::vector<ConversionCase> kCases{
    {"llama3", "llama",
     [] {
       const json config = config_of("LlamaForCausalLM", {{"rope_theta", 500000.0},
                                                          {"rope_scaling",
                                                           {{"rope_type", "llama3"},
                                                            {"factor", 8.0},
                                                            {"low_freq_factor", 1.0},
                                                            {"high_freq_factor", 4.0},
                                                            {"original_max_position_embeddings", 64}}},
                                                          {"tie_word_embeddings", true},
                                                          {"bos_token_id", 600},
                                                          {"eos_token_id", 601}});
       json changes = begins_with("<|begin_of_text|>", 600);
       changes["model"]["ignore_merges"] = true;
       return Files{
           {"config.json", config.dump()},
           {"generation_config.json",
            R"({"eos_token_id": [601, 602], "temperature": 0.6, "top_p": 0.9, "do_sample": true})"},
           {"tokenizer.json",
            byte_level_json(kLlama3Words, {"<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>", "[word]"}, changes)},
           {"tokenizer_config.json",
            json{{"bos_token", "<|begin_of_text|>"}, {"eos_token", "<|end_of_text|>"}, {"chat_template", kInstruct}}
                .dump()}};
     }},
    {"llama_with_biases_of_sentencepiece", "llama",
     [] {
       const json config = config_of("LlamaForCausalLM", {{"attention_bias", true},
                                                          {"mlp_bias", true},
                                                          {"rope_scaling", {{"type", "linear"}, {"factor", 2.0}}},
                                                          {"bos_token_id", 1},
                                                          {"eos_token_id", 2}});
       return Files{{"config.json", config.dump()},
                    {"tokenizer.model", sentencepiece("llama")},
                    {"tokenizer_config.json", json{{"bos_token", "<s>"},
                                                   {"eos_token", "</s>"},
                                                   {"unk_token", "<unk>"},
                                                   {"add_eos_token", true},
                                                   {"chat_template", kInstruct}}
                                                  .dump()}};
     }},
    {"llama_of_unigrams", "llama",
     [] {
       return Files{{"config.json", config_of("LlamaForCausalLM", {{"eos_token_id", 2}, {"head_dim", 32}}).dump()},
                    {"tokenizer.model", sentencepiece("unigram_normalized")},
                    {"tokenizer_config.json", R"({"add_eos_token": true})"},
                    {"chat_template.jinja", kChatMl}};
     }},
    {"mistral", "llama",
     [] {
       const json config =
           config_of("MistralForCausalLM",
                     {{"sliding_window", 16}, {"rope_theta", 1e6}, {"bos_token_id", 1}, {"eos_token_id", 2}});
       return Files{
           {"config.json", config.dump()},
           {"tokenizer.model", sentencepiece("llama")},
           {"tokenizer_config.json",
            json{{"bos_token", {{"content", "<s>"}, {"lstrip", false}}},
                 {"eos_token", "</s>"},
                 {"chat_template", json::array({{{"name", "default"}, {"template", kInstruct}},
                                                {{"name", "tool_use"}, {"template", std::string("T") + kInstruct}}})}}
                .dump()}};
     }},
    {"qwen2", "qwen2",
     [] {
       const json config = config_of("Qwen2ForCausalLM", {{"tie_word_embeddings", true}, {"eos_token_id", 602}});
       return Files{{"config.json", config.dump()},
                    {"generation_config.json", R"({"eos_token_id": [602, 600], "repetition_penalty": 1.1})"},
                    {"tokenizer.json", byte_level_json(kQwen2Words, {"<|pad|>", "<|im_start|>", "<|im_end|>"},
                                                       {{"normalizer", {{"type", "NFC"}}}})},
                    {"tokenizer_config.json", json{{"bos_token", nullptr},
                                                   {"eos_token", "<|im_end|>"},
                                                   {"pad_token", "<|pad|>"},
                                                   {"chat_template", kChatMl}}
                                                  .dump()}};
     }},
    {"qwen3", "qwen3",
     [] {
       const json config =
           config_of("Qwen3ForCausalLM", {{"head_dim", 32}, {"rope_theta", 1e6}, {"eos_token_id", 602}});
       return Files{{"config.json", config.dump()},
                    {"tokenizer.json",
                     byte_level_json(kQwen2Words, {"<|pad|>", "<|im_start|>", "<|im_end|>", "<think>", "</think>"},
                                     {{"normalizer", {{"type", "NFC"}}}})},
                    {"tokenizer_config.json", json{{"eos_token", "<|im_end|>"}, {"pad_token", "<|pad|>"}}.dump()},
                    {"chat_template.jinja", kChatMl}};
     }},
    {"granite", "granite",
     [] {
       const json config = config_of("GraniteForCausalLM", {{"embedding_multiplier", 6.0},
                                                            {"attention_multiplier", 0.125},
                                                            {"residual_multiplier", 0.22},
                                                            {"logits_scaling", 4.0},
                                                            {"tie_word_embeddings", true},
                                                            {"bos_token_id", 600},
                                                            {"eos_token_id", 600}});
       const json digits{{"type", "Digits"}, {"individual_digits", true}};
       const json byte_level{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", true}};
       return Files{{"config.json", config.dump()},
                    {"tokenizer.json", byte_level_json("", {"<|end_of_text|>", "<|start_of_role|>", "<|end_of_role|>"},
                                                       {{"pre_tokenizer", {{"pretokenizers", {digits, byte_level}}}}})},
                    {"tokenizer_config.json",
                     json{{"bos_token", "<|end_of_text|>"},
                          {"eos_token", "<|end_of_text|>"},
                          {"chat_template",
                           "{% for m in messages %}<|start_of_role|>{{ m.role }}<|end_of_role|>{{ m.content }}"
                           "<|end_of_text|>\n{% endfor %}<|start_of_role|>assistant<|end_of_role|>"}}
                         .dump()}};
     }},
    {"phi3", "phi3",
     [] {
       const json config = config_of(
           "Phi3ForCausalLM",
           {{"partial_rotary_factor", 0.5}, {"sliding_window", 24}, {"bos_token_id", 1}, {"eos_token_id", 600}});
       const std::vector<std::string> tokens{"<|endoftext|>", "<|assistant|>", "<|system|>", "<|end|>", "<|user|>"};
       return Files{{"config.json", config.dump()},
                    {"generation_config.json", R"({"eos_token_id": [600, 603]})"},
                    {"tokenizer.model", sentencepiece("llama")},
                    {"tokenizer_config.json", json{{"bos_token", "<s>"},
                                                   {"eos_token", "<|endoftext|>"},
                                                   {"unk_token", "<unk>"},
                                                   {"pad_token", "<|endoftext|>"},
                                                   {"add_bos_token", false},
                                                   {"added_tokens_decoder", stripping(tokens, 600)},
                                                   {"chat_template",
                                                    "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}<|end|>\n"
                                                    "{% endfor %}{{ eos_token if false }}<|assistant|>\n"}}
                                                  .dump()}};
     }},
    {"gpt2", "gpt2",
     [] {
       const json config{{"architectures", {"GPT2LMHeadModel"}},
                         {"n_embd", 64},
                         {"n_layer", 2},
                         {"n_head", 4},
                         {"n_positions", 256},
                         {"vocab_size", 600},
                         {"bos_token_id", 0},
                         {"eos_token_id", 0}};
       return Files{{"config.json", config.dump()},
                    {"vocab.json", read_text(kTokenizers / "gpt2" / "vocab.json")},
                    {"merges.txt", read_text(kTokenizers / "gpt2" / "merges.txt")},
                    {"tokenizer_config.json", read_text(kTokenizers / "gpt2" / "tokenizer_config.json")}};
     }},
    {"baichuan_7b", "baichuan",
     [] {
       const json config =
           config_of("BaiChuanForCausalLM",
                     {{"num_key_value_heads", nullptr}, {"bos_token_id", 1}, {"eos_token_id", 2}, {"pad_token_id", 0}});
       return Files{{"config.json", config.dump()},
                    {"tokenizer.model", sentencepiece("baichuan")},
                    {"tokenizer_config.json", read_text(kTokenizers / "baichuan" / "tokenizer_config.json")}};
     }},
    {"baichuan2_13b", "baichuan",
     [] {
       const json config = config_of("BaichuanForCausalLM", {{"num_key_value_heads", nullptr},
                                                             {"max_position_embeddings", nullptr},
                                                             {"model_max_length", 192},
                                                             {"norm_head", true},
                                                             {"bos_token_id", 1},
                                                             {"eos_token_id", 2}});
       return Files{{"config.json", config.dump()},
                    {"generation_config.json", R"({"user_token_id": 195, "temperature": 0.3, "top_k": 5})"},
                    {"tokenizer.model", sentencepiece("baichuan")},
                    {"tokenizer_config.json", read_text(kTokenizers / "baichuan" / "tokenizer_config.json")}};
     }},
};

}  // namespace

void PrintTo(const ConversionCase& tested, std::ostream* out) {
  *out << tested.name;
}

const std::vector<ConversionCase>& conversion_cases() {
  return kCases;
}

Files files_of_case(const char* name) {
  return std::ranges::find(kCases, std::string_view(name), &ConversionCase::name)->files();
}

void change_json(Files& files, const char* file, const json& changes) {
  for (auto& [name, content] : files) {
    if (name != file) continue;
    json object = json::parse(content);
    object.merge_patch(changes);
    content = object.dump();
  }
}

void write_model(const TemporaryFolder& folder, const Files& files) {
  for (const auto& [name, content] : files) folder.write(name, content);
  const auto spec = io::load_hf_config(folder.path());
  ASSERT_TRUE(spec) << spec.error().message;
  folder.write("model.safetensors", random_checkpoint(*spec));
}

QuantizeOptions conversion_options(const std::filesystem::path& model, const std::filesystem::path& out) {
  QuantizeOptions options;
  options.config.model = model.string();
  options.config.threads = 2;
  options.out = out;
  options.bits = 8;
  options.calibration_tokens = 128;
  options.context = 64;
  for (int i = 0; i < 100; ++i) options.calibration_text += "The old king saw a red bird over the quiet garden. ";
  return options;
}

std::vector<std::vector<float>> logits_of(const std::filesystem::path& model, const TokenIds& tokens) {
  EngineConfig config;
  config.model = model.string();
  config.threads = 2;
  const auto logits = TokenLogits::create(config, static_cast<std::int32_t>(tokens.size()), {});
  EXPECT_TRUE(logits) << logits.error().message;
  std::vector<std::vector<float>> rows;
  if (!logits) return rows;
  const Status status = (*logits)->run(
      tokens, 0, [&](std::int32_t, std::span<const float> row) { rows.emplace_back(row.begin(), row.end()); });
  EXPECT_TRUE(status) << status.error().message;
  return rows;
}

double relative_distance(const std::vector<float>& row, const std::vector<float>& expected) {
  double mean = 0;
  for (const float x : expected) mean += x / static_cast<double>(expected.size());
  double squares = 0;
  double differences = 0;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    squares += (expected[i] - mean) * (expected[i] - mean);
    differences += std::pow(double{row[i]} - double{expected[i]}, 2);
  }
  return std::sqrt(differences / squares);
}

json texts_to_tokenize() {
  json texts = read_json(kTextDataDir / "hard_strings.json");
  for (const char* text :
       {"", " ", "   a\n\n \t b  ", "<s>a</s> b<|endoftext|> c", "<|im_start|>user\nhi<|im_end|>\n",
        "[word]a [word] [ word]", "<|user|>\n  hi<|end|> \n<|assistant|>\n", "<think>x</think>", " <unk> ",
        "e\u0301\u1100\u1161\u11A8", "\u0130 \uFB01 \uFF21", "1234567 3.14", "don't WE'LL", "[PAD620] <0x41>"}) {
    texts.push_back(text);
  }
  return texts;
}

void expect_same_tokenizer(const std::filesystem::path& wanted_model, const std::filesystem::path& model) {
  const auto wanted = io::load_tokenizer(wanted_model);
  const auto tokenizer = io::load_tokenizer(model);
  ASSERT_TRUE(wanted) << wanted.error().message;
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const json texts = texts_to_tokenize();
  for (const json& each : texts) {
    const auto text = each.get<std::string>();
    for (const bool special : {false, true}) {
      const auto ids = (*wanted)->encode(text, special);
      const auto written_ids = (*tokenizer)->encode(text, special);
      ASSERT_TRUE(ids && written_ids);
      EXPECT_EQ(*written_ids, *ids) << text;
      EXPECT_EQ((*tokenizer)->decode(*ids, special), (*wanted)->decode(*ids, special)) << text;
    }
    if (text.empty()) continue;
    const std::vector<ByteRange> everything = {{0, text.size()}};
    const auto ids = (*wanted)->encode(text, false, everything);
    const auto written_ids = (*tokenizer)->encode(text, false, everything);
    ASSERT_TRUE(ids && written_ids);
    EXPECT_EQ(*written_ids, *ids) << text;
  }
  for (TokenId id = 0; std::cmp_less(id, (*wanted)->vocab_size()); ++id) {
    EXPECT_EQ((*tokenizer)->is_special(id), (*wanted)->is_special(id)) << id;
    EXPECT_EQ((*tokenizer)->token_bytes(id), (*wanted)->token_bytes(id)) << id;
  }
}

void expect_same_chat_prompts(const std::filesystem::path& wanted_model, const std::filesystem::path& model) {
  const auto wanted = io::load_chat_prompts(wanted_model);
  const auto prompts = io::load_chat_prompts(model);
  ASSERT_TRUE(wanted && prompts);
  ASSERT_EQ(*prompts == nullptr, *wanted == nullptr);
  if (*wanted == nullptr) return;
  const auto conversation = nlohmann::ordered_json::parse(
      R"([{"role": "system", "content": "Be brief."}, {"role": "user", "content": " Hi <s> <|im_end|>\n"},
          {"role": "assistant", "content": "Hello."}, {"role": "user", "content": "\ud83d\ude80 [INST]?"}])");
  for (const bool with_tools : {false, true}) {
    chat::ChatInput input;
    input.messages = conversation;
    if (with_tools) input.tools = nlohmann::ordered_json::parse(R"([{"type": "function", "function": {"name": "f"}}])");
    input.add_generation_prompt = true;
    GenerateRequest of_folder;
    GenerateRequest of_file;
    ASSERT_TRUE((*wanted)->apply(input, of_folder));
    ASSERT_TRUE((*prompts)->apply(input, of_file));
    ASSERT_TRUE(of_folder.prompt && of_file.prompt);
    EXPECT_EQ(*of_file.prompt, *of_folder.prompt);
    const auto ids =
        io::load_tokenizer(wanted_model).value()->encode(*of_folder.prompt, true, of_folder.prompt_literals);
    const auto written_ids = io::load_tokenizer(model).value()->encode(*of_file.prompt, true, of_file.prompt_literals);
    ASSERT_TRUE(ids && written_ids);
    EXPECT_EQ(*written_ids, *ids);
  }
}

}  // namespace pagoda::test
