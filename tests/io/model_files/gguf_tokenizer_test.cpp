// Tokenizers out of GGUF files, against the Hugging Face packages: vocabularies that have goldens elsewhere are written
// as GGUF here and must give the same; files that others have written are read where they are.

#include "io/model_files/gguf/gguf_tokenizer.hpp"

#include <algorithm>
#include <cstring>
#include <functional>
#include <iterator>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <sstream>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/text/normalizer.hpp"
#include "engine/text/pre_tokenizer.hpp"
#include "engine/text/unicode.hpp"
#include "io/model_files/gguf/gguf_pre_tokenizers.hpp"
#include "io/model_files/sentencepiece_proto.hpp"
#include "tests/io/model_files/gguf_writer.hpp"
#include "tests/io/model_files/tokenizer_test_files.hpp"
#include "tests/support/temporary_folder.hpp"

namespace pagoda::io {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using testing::encode;
using testing::GgufWriter;
using ::testing::HasSubstr;
using testing::kSharedDir;
using testing::kTextDataDir;
using testing::read_json;
using testing::read_text;
using Tokenizer = std::shared_ptr<const text::Tokenizer>;

// Numbers in tokenizer.ggml.token_type.
constexpr std::int32_t kNormal = 1;
constexpr std::int32_t kUnknown = 2;
constexpr std::int32_t kControl = 3;
constexpr std::int32_t kUserDefined = 4;
constexpr std::int32_t kUnused = 5;
constexpr std::int32_t kByte = 6;

/// The arrays of a vocabulary, and what else tells of a tokenizer.
struct Metadata {
  std::string model = "gpt2";
  std::optional<std::string> pre;
  std::vector<std::string> tokens;
  std::optional<std::vector<std::int32_t>> types;
  std::optional<std::vector<std::string>> merges;
  std::optional<std::vector<float>> scores;
  std::vector<std::uint8_t> charsmap;
  std::map<std::string, std::uint32_t> ids;  // "bos": 1
  std::map<std::string, bool> flags;         // "add_bos_token": true
  std::string architecture = "llama";

  std::string bytes() const {
    const std::string ggml = "tokenizer.ggml.";
    GgufWriter writer;
    writer.add("general.architecture", architecture).add(ggml + "model", model).add(ggml + "tokens", tokens);
    if (pre) writer.add(ggml + "pre", *pre);
    if (types) writer.add(ggml + "token_type", *types);
    if (merges) writer.add(ggml + "merges", *merges);
    if (scores) writer.add(ggml + "scores", *scores);
    if (!charsmap.empty()) writer.add(ggml + "precompiled_charsmap", charsmap);
    for (const auto& [name, id] : ids) writer.add(ggml + name + "_token_id", id);
    for (const auto& [name, flag] : flags) writer.add(ggml + name, flag);
    return writer.bytes();
  }
};

template <class Read>
auto with_file(const std::string& bytes, Read read) {
  const test::TemporaryFolder folder;
  const auto file = GgufFile::open(folder.write("model.gguf", bytes));
  EXPECT_TRUE(file) << file.error().message;
  return read(**file);
}

Result<Tokenizer> load(const Metadata& metadata) {
  return with_file(metadata.bytes(), [](const GgufFile& file) { return load_gguf_tokenizer(file); });
}

Tokenizer load_good(const Metadata& metadata) {
  Result<Tokenizer> tokenizer = load(metadata);
  EXPECT_TRUE(tokenizer) << tokenizer.error().message;
  return tokenizer.value_or(nullptr);
}

std::string merge_text(const json& merge) {
  return merge.is_string() ? merge.get<std::string>() : merge[0].get<std::string>() + " " + merge[1].get<std::string>();
}

/// The vocabulary of a tokenizer.json in order of its ids, with added tokens and their types.
void take_tokens(const json& file, Metadata& metadata) {
  std::map<TokenId, std::pair<std::string, std::int32_t>> tokens;
  for (const auto& [token, id] : file.at("model").at("vocab").items()) tokens[id.get<TokenId>()] = {token, kNormal};
  for (const json& added : file.at("added_tokens")) {
    tokens[added.at("id").get<TokenId>()] = {added.at("content").get<std::string>(),
                                             added.at("special").get<bool>() ? kControl : kUserDefined};
  }
  auto& types = metadata.types.emplace();
  for (const auto& [id, token] : tokens) {
    EXPECT_EQ(static_cast<std::size_t>(id), metadata.tokens.size());
    metadata.tokens.push_back(token.first);
    types.push_back(token.second);
  }
}

Metadata byte_level(const json& file, const std::string& pre) {
  Metadata metadata;
  metadata.pre = pre;
  take_tokens(file, metadata);
  auto& merges = metadata.merges.emplace();
  for (const json& merge : file.at("model").at("merges")) merges.push_back(merge_text(merge));
  // As converters fill a vocabulary up to the rows of the embedding.
  for (int i = 0; i < 3; ++i) {
    metadata.tokens.push_back("[PAD" + std::to_string(metadata.tokens.size()) + "]");
    metadata.types->push_back(kUnused);
  }
  return metadata;
}

/// A token's score is the rank of its first merge.
Metadata sentencepiece(const json& file) {
  Metadata metadata;
  metadata.model = "llama";
  take_tokens(file, metadata);
  std::map<std::string, float> scores;
  for (const json& merge : file.at("model").at("merges")) {
    std::string merged = merge_text(merge);
    std::erase(merged, ' ');
    scores.emplace(std::move(merged), -static_cast<float>(scores.size()));
  }
  auto& list = metadata.scores.emplace();
  for (std::size_t id = 0; id < metadata.tokens.size(); ++id) {
    const std::string& token = metadata.tokens[id];
    list.push_back(scores[token]);
    if (token.size() == 6 && token.starts_with("<0x")) (*metadata.types)[id] = kByte;
  }
  return metadata;
}

// ---- The shared tokenizers.

struct SharedCase {
  const char* name;
  const char* folder;
  const char* pre;  // null: SentencePiece
  bool has_golden;  // of its own in the shared data
};
void PrintTo(const SharedCase& shared, std::ostream* out) {
  *out << shared.name;
}

class GgufOfSharedTokenizers : public ::testing::TestWithParam<SharedCase> {
 protected:
  void SetUp() override {
    const auto path = kSharedDir / GetParam().folder / "tokenizer.json";
    if (!std::filesystem::exists(path)) GTEST_SKIP() << "no shared tokenizer " << path;
    const json file = read_json(path);
    tokenizer_ = load_good(GetParam().pre != nullptr ? byte_level(file, GetParam().pre) : sentencepiece(file));
    ASSERT_NE(tokenizer_, nullptr);
  }
  void expect_decodes(const json& golden) const {
    const auto ids = golden.at("ids").get<TokenIds>();
    EXPECT_EQ(tokenizer_->decode(ids, true), golden.at("text").get<std::string>()) << golden.dump();
    EXPECT_EQ(tokenizer_->decode(ids, false), golden.at("raw").get<std::string>()) << golden.dump();
  }
  Tokenizer tokenizer_;
};

TEST_P(GgufOfSharedTokenizers, GivesTheIdsAndTextsOfThePackage) {
  const json strings = read_json(kTextDataDir / "hard_strings.json");
  const json golden = read_json(kTextDataDir / ("hard_strings_" + std::string(GetParam().name) + ".json"));
  ASSERT_EQ(strings.size(), golden.at("encode").size());
  for (std::size_t i = 0; i < strings.size(); ++i) {
    const auto text = strings[i].get<std::string>();
    const json& expected = golden.at("encode")[i];
    EXPECT_EQ(encode(tokenizer_, text, false), expected.at("plain").get<TokenIds>()) << "text: " << text;
    EXPECT_EQ(encode(tokenizer_, text, true), expected.at("ids").get<TokenIds>()) << "text: " << text;
    expect_decodes(expected);
  }
  for (const json& sequence : golden.at("decode")) expect_decodes(sequence);

  if (!GetParam().has_golden) return;
  const json shared = read_json(kSharedDir / "goldens" / ("tokenizer_" + std::string(GetParam().name) + ".json"));
  ASSERT_FALSE(shared.at("cases").empty());
  for (const json& expected : shared.at("cases")) {
    const auto text = expected.at("text").get<std::string>();
    const auto ids = expected.at("ids").get<TokenIds>();
    EXPECT_EQ(encode(tokenizer_, text, shared.at("add_special_tokens").get<bool>()), ids) << "text: " << text;
    EXPECT_EQ(tokenizer_->decode(ids, true), text);
  }
}

INSTANTIATE_TEST_SUITE_P(All, GgufOfSharedTokenizers,
                         ::testing::Values(SharedCase{"gpt2", "tokenizers/gpt2", "gpt-2", true},
                                           SharedCase{"qwen2_5", "tokenizers/qwen2_5", "qwen2", true},
                                           SharedCase{"llama2", "tokenizers/llama2", nullptr, true},
                                           SharedCase{"baichuan2", "tokenizers/baichuan2", nullptr, false},
                                           SharedCase{"stories260k", "models/stories260k", nullptr, false}),
                         [](const auto& param_info) { return std::string(param_info.param.name); });

// ---- The small tokenizers of tests/data/text/files.

/// Reads protobuf's encoding, as far as a tokenizer.model has it.
class ProtoReader {
 public:
  explicit ProtoReader(std::string_view message) : rest_(message) {}
  /// The next field: its number, and its value as a number or as bytes.
  bool next() {
    if (rest_.empty()) return false;
    const std::uint64_t tag = varint();
    field = tag >> 3;
    bytes = {};
    number = 0;
    if ((tag & 7) == 0) number = varint();
    if ((tag & 7) == 2) bytes = take(varint());
    if ((tag & 7) == 5) bytes = take(4);
    return true;
  }
  std::uint64_t field = 0;
  std::uint64_t number = 0;
  std::string_view bytes;

 private:
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      const auto byte = static_cast<std::uint8_t>(take(1).front());
      value |= std::uint64_t{byte & 0x7FU} << shift;
      if (byte < 0x80) return value;
    }
  }
  std::string_view take(std::size_t size) {
    const std::string_view taken = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return taken;
  }
  std::string_view rest_;
};

/// As converters write a tokenizer.model.
Metadata of_tokenizer_model(const std::string& bytes) {
  Metadata metadata;
  metadata.model = "llama";
  metadata.types.emplace();
  metadata.scores.emplace();
  metadata.flags = {{"add_space_prefix", true}, {"remove_extra_whitespaces", true}};  // the proto's defaults
  for (ProtoReader model(bytes); model.next();) {
    if (model.field == 1) {
      std::int32_t type = kNormal;
      float score = 0;
      for (ProtoReader piece(model.bytes); piece.next();) {
        if (piece.field == 1) metadata.tokens.emplace_back(piece.bytes);
        if (piece.field == 2) std::memcpy(&score, piece.bytes.data(), sizeof score);
        if (piece.field == 3) type = static_cast<std::int32_t>(piece.number);
      }
      metadata.types->push_back(type);
      metadata.scores->push_back(score);
    } else if (model.field == 2) {
      for (ProtoReader trainer(model.bytes); trainer.next();) {
        if (trainer.field == 3 && trainer.number == 1) metadata.model = "t5";
      }
    } else if (model.field == 3) {
      for (ProtoReader normalizer(model.bytes); normalizer.next();) {
        if (normalizer.field == 2) metadata.charsmap = {normalizer.bytes.begin(), normalizer.bytes.end()};
        if (normalizer.field == 3) metadata.flags["add_space_prefix"] = normalizer.number != 0;
        if (normalizer.field == 4) metadata.flags["remove_extra_whitespaces"] = normalizer.number != 0;
      }
    }
  }
  metadata.ids = {{"bos", 1}, {"eos", 2}, {"unknown", 0}};
  return metadata;
}

Metadata of_vocab_and_merges(const std::filesystem::path& folder) {
  json file = {{"added_tokens", json::array()}, {"model", {{"merges", json::array()}}}};
  file["model"]["vocab"] = read_json(folder / "vocab.json");
  std::istringstream lines(read_text(folder / "merges.txt"));
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with("#version")) file["model"]["merges"].push_back(line);
  }
  for (const char* name : {"<|endoftext|>", "</s>", "<pad>"}) {
    if (!file["model"]["vocab"].contains(name)) continue;
    file["added_tokens"].push_back({{"id", file["model"]["vocab"][name]}, {"content", name}, {"special", true}});
  }
  return byte_level(file, "gpt-2");
}

struct FolderCase {
  const char* name;
  std::map<std::string, bool> flags;
  std::map<std::string, std::uint32_t> ids;
};
void PrintTo(const FolderCase& folder, std::ostream* out) {
  *out << folder.name;
}

class GgufOfTokenizerFolders : public ::testing::TestWithParam<FolderCase> {};

TEST_P(GgufOfTokenizerFolders, GivesTheIdsAndTextsOfThePackages) {
  const auto folder = kTextDataDir / "files" / GetParam().name;
  Metadata metadata = std::filesystem::exists(folder / "tokenizer.model")
                          ? of_tokenizer_model(read_text(folder / "tokenizer.model"))
                          : of_vocab_and_merges(folder);
  for (const auto& [name, flag] : GetParam().flags) metadata.flags[name] = flag;
  for (const auto& [name, id] : GetParam().ids) metadata.ids[name] = id;
  const Tokenizer tokenizer = load_good(metadata);
  ASSERT_NE(tokenizer, nullptr);
  const json golden = read_json(folder / "golden.json");
  ASSERT_GT(golden.at("encode").size(), 50U);
  for (const json& expected : golden.at("encode")) {
    const auto text = expected.at("text").get<std::string>();
    const auto ids = expected.at("ids").get<TokenIds>();
    EXPECT_EQ(encode(tokenizer, text, false), expected.at("plain").get<TokenIds>()) << "text: " << text;
    EXPECT_EQ(encode(tokenizer, text, true), ids) << "text: " << text;
    if (expected.contains("decoded")) {
      EXPECT_EQ(tokenizer->decode(ids, true), expected.at("decoded").get<std::string>()) << expected.dump();
    }
  }
  for (const json& expected : golden.at("decode")) {
    EXPECT_EQ(tokenizer->decode(expected.at("ids").get<TokenIds>(), true), expected.at("text").get<std::string>());
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, GgufOfTokenizerFolders,
    ::testing::Values(FolderCase{"llama", {}, {}}, FolderCase{"baichuan", {{"add_bos_token", false}}, {}},
                      FolderCase{"unigram", {{"add_bos_token", true}, {"add_eos_token", false}}, {}},
                      FolderCase{"unigram_normalized", {{"add_bos_token", true}}, {}}, FolderCase{"gpt2", {}, {}},
                      FolderCase{"opt", {{"add_bos_token", true}}, {{"bos", 2}, {"eos", 2}}}),
    [](const auto& param_info) { return std::string(param_info.param.name); });

// ---- Files that others have written. They are looked for in build/models: SmolLM2 is that of scripts/fetch-model, and
// ggml-vocab-*.gguf with .inp (texts) and .out (ids by transformers) are in the source package llama-cpp-python on
// PyPI.

const std::filesystem::path kModels = std::filesystem::path(PAGODA_SOURCE_DIR) / "build" / "models";

bool is_composed(const std::string& text) {
  const auto nfc = text::Normalizer::create({text::UnicodeNormalizer{text::UnicodeForm::nfc}});
  return nfc->apply(text)->text == text;
}

class VocabulariesOfLlamaCpp : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    path_ = (kModels / "ggml-vocab" / ("ggml-vocab-" + std::string(GetParam()) + ".gguf")).string();
    if (!std::filesystem::exists(path_)) GTEST_SKIP() << "no " << path_;
    const auto file = GgufFile::open(path_);
    ASSERT_TRUE(file) << file.error().message;
    Result<Tokenizer> tokenizer = load_gguf_tokenizer(**file);
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    tokenizer_ = *tokenizer;
  }
  std::string path_;
  Tokenizer tokenizer_;
};

TEST_P(VocabulariesOfLlamaCpp, ReadSpecialTokensAsPlainTextInsideOfLiterals) {
  int count = 0;
  for (TokenId id = 0; id < static_cast<TokenId>(tokenizer_->vocab_size()); ++id) {
    if (!tokenizer_->is_special(id)) continue;
    const std::string text(tokenizer_->token_text(id));
    EXPECT_THAT(encode(tokenizer_, text, false), ElementsAre(id));
    const std::vector<ByteRange> everything = {{0, text.size()}};
    const TokenIds plain = tokenizer_->encode(text, false, everything).value();
    EXPECT_TRUE(std::ranges::none_of(plain, [&](TokenId part) { return tokenizer_->is_special(part); })) << text;
    ++count;
  }
  EXPECT_GT(count, 0);
}

TEST_P(VocabulariesOfLlamaCpp, GiveTheIdsOfTransformers) {
  const std::string texts = read_text(path_ + ".inp");
  std::istringstream lines(read_text(path_ + ".out"));
  constexpr std::string_view kEnd = "\n__ggml_vocab_test__\n";
  std::size_t count = 0;
  for (std::size_t begin = 0, end = 0; (end = texts.find(kEnd, begin)) != std::string::npos;
       begin = end + kEnd.size()) {
    std::string line;
    ASSERT_TRUE(std::getline(lines, line));
    std::istringstream numbers(line);
    const TokenIds expected{std::istream_iterator<TokenId>(numbers), {}};
    const std::string text = texts.substr(begin, end - begin);
    ++count;
    // The ids of these texts are llama.cpp's own, which does not compose characters as transformers does.
    if (GetParam() == std::string_view("qwen35") && !is_composed(text)) continue;
    EXPECT_EQ(encode(tokenizer_, text, false), expected) << "text: " << text;
  }
  EXPECT_GT(count, 40U);
}

INSTANTIATE_TEST_SUITE_P(All, VocabulariesOfLlamaCpp,
                         ::testing::Values("command-r", "deepseek-coder", "deepseek-llm", "falcon", "gpt-2",
                                           "llama-bpe", "llama-spm", "mpt", "phi-3", "qwen2", "qwen35", "refact",
                                           "starcoder"),
                         [](const auto& param_info) {
                           std::string name = param_info.param;
                           std::ranges::replace(name, '-', '_');
                           return name;
                         });

TEST(SmolLm2Gguf, EncodesChatsToTheGoldenIds) {
  const auto path = kModels / "smollm2.gguf";
  const auto goldens = kSharedDir / "goldens" / "smollm2_chat.json";
  if (!std::filesystem::exists(path) || !std::filesystem::exists(goldens)) {
    GTEST_SKIP() << "no " << path << " or no " << goldens;
  }
  const auto file = GgufFile::open(path);
  ASSERT_TRUE(file) << file.error().message;
  const Result<Tokenizer> tokenizer = load_gguf_tokenizer(**file);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const json file_of_goldens = read_json(goldens);
  for (const json& golden : file_of_goldens.at("cases")) {
    const auto ids = golden.at("prompt_token_ids").get<TokenIds>();
    EXPECT_EQ(encode(*tokenizer, golden.at("text").get<std::string>(), false), ids);
    EXPECT_EQ((*tokenizer)->decode(ids, false), golden.at("text").get<std::string>());
  }
  EXPECT_EQ(gguf_special_tokens(**file).value(), (std::map<std::string, std::string>{{"bos_token", "<|im_start|>"},
                                                                                     {"eos_token", "<|im_end|>"},
                                                                                     {"unk_token", "<|endoftext|>"},
                                                                                     {"pad_token", "<|im_end|>"}}));
}

// ---- Pre-tokenizers.

TEST(GgufPreTokenizers, SplitAsThePackage) {
  const json golden = read_json(kTextDataDir / "gguf_pre_tokenizers.json");
  json texts = read_json(kTextDataDir / "hard_strings.json");
  for (const json& text : golden.at("texts")) texts.push_back(text);
  for (const auto& [name, lists] : golden.at("pieces").items()) {
    const GgufPreTokenizer* parts = find_gguf_pre_tokenizer(name);
    ASSERT_NE(parts, nullptr) << name;
    const auto pre_tokenizer = text::PreTokenizer::create(parts->pre_tokenizers);
    ASSERT_TRUE(pre_tokenizer) << name << ": " << pre_tokenizer.error().message;
    ASSERT_EQ(lists.size(), texts.size());
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const auto pieces = pre_tokenizer->apply(texts[i].get<std::string>(), true);
      ASSERT_TRUE(pieces) << pieces.error().message;
      std::vector<std::size_t> lengths;
      for (const auto& [begin, end] : pieces->spans) {
        // A character of the byte level is a byte of the text.
        const auto is_first_byte = [](char c) { return (static_cast<std::uint8_t>(c) & 0xC0) != 0x80; };
        const std::string_view piece = std::string_view(pieces->buffer).substr(begin, end - begin);
        lengths.push_back(static_cast<std::size_t>(std::ranges::count_if(piece, is_first_byte)));
      }
      EXPECT_EQ(lengths, lists[i].get<std::vector<std::size_t>>()) << name << ": " << texts[i];
    }
  }
}

TEST(GgufPreTokenizers, AreSortedByNameAndMayBeUsed) {
  const auto names = gguf_pre_tokenizer_names();
  EXPECT_TRUE(std::ranges::is_sorted(names));
  EXPECT_EQ(std::set(names.begin(), names.end()).size(), names.size());
  for (const std::string_view name : names) {
    const auto pre_tokenizer = text::PreTokenizer::create(find_gguf_pre_tokenizer(name)->pre_tokenizers);
    ASSERT_TRUE(pre_tokenizer) << name << ": " << pre_tokenizer.error().message;
    EXPECT_TRUE(pre_tokenizer->apply("It's 1234 \u4e16\u754c\n\n  x", true)) << name;
  }
  EXPECT_EQ(find_gguf_pre_tokenizer(""), nullptr);
  EXPECT_EQ(find_gguf_pre_tokenizer("kimi-k2"), nullptr);
}

// ---- Rules.

/// Bytes of ASCII, "ab", "abc" without its merge, and what special tokens there may be.
Metadata small_bpe() {
  Metadata metadata;
  metadata.tokens = {"a", "b", "c", "ab", "abc", "<s>", "</s>", "<think>", "[PAD8]", "1", "2", "12"};
  metadata.types = {kNormal,  kNormal,      kNormal, kNormal, kNormal, kControl,
                    kControl, kUserDefined, kUnused, kNormal, kNormal, kNormal};
  metadata.merges = {"a b", "1 2"};
  metadata.pre = "gpt-2";
  return metadata;
}

Metadata small_sentencepiece() {
  Metadata metadata;
  metadata.model = "llama";
  metadata.tokens = {"<unk>", "<s>", "</s>", "\u2581", "a", "\u2581a", "  ", "<|user|>"};
  metadata.types = {kUnknown, kControl, kControl, kNormal, kNormal, kNormal, kUserDefined, kControl};
  metadata.scores = {0, 0, 0, -1, -1, -2, -1000, -1000};
  return metadata;
}

TEST(GgufTokenizer, AddsBeginAndEndAsTheFileSaysOrTheModelIsKnownFor) {
  Metadata bpe = small_bpe();
  EXPECT_THAT(encode(load_good(bpe), "ab"), ElementsAre(3));
  bpe.ids = {{"bos", 5}, {"eos", 6}};
  EXPECT_THAT(encode(load_good(bpe), "ab"), ElementsAre(3));
  bpe.flags = {{"add_bos_token", true}, {"add_eos_token", true}};
  EXPECT_THAT(encode(load_good(bpe), "ab"), ElementsAre(5, 3, 6));
  EXPECT_THAT(encode(load_good(bpe), "ab", false), ElementsAre(3));
  bpe.flags.clear();
  bpe.pre = "llama-bpe";
  EXPECT_THAT(encode(load_good(bpe), "ab"), ElementsAre(5, 3));
  bpe.flags = {{"add_bos_token", false}};
  EXPECT_THAT(encode(load_good(bpe), "ab"), ElementsAre(3));

  Metadata sentencepiece = small_sentencepiece();
  EXPECT_THAT(encode(load_good(sentencepiece), "a"), ElementsAre(1, 5));
  sentencepiece.model = "t5";
  sentencepiece.ids = {{"eos", 2}, {"unknown", 0}};
  sentencepiece.flags = {{"add_space_prefix", true}};
  EXPECT_THAT(encode(load_good(sentencepiece), "a"), ElementsAre(5, 2));
}

TEST(GgufTokenizer, TakesAWholePieceThatIsATokenWhereThePreTokenizerSaysSo) {
  Metadata bpe = small_bpe();
  EXPECT_THAT(encode(load_good(bpe), "abc"), ElementsAre(3, 2));
  bpe.pre = "llama-bpe";
  EXPECT_THAT(encode(load_good(bpe), "abc"), ElementsAre(4));
}

TEST(GgufTokenizer, SplitsAsDefaultWithoutAPreTokenizer) {
  Metadata bpe = small_bpe();
  bpe.pre = "smollm";
  EXPECT_THAT(encode(load_good(bpe), "ab12"), ElementsAre(3, 9, 10));
  bpe.pre.reset();
  EXPECT_THAT(encode(load_good(bpe), "ab12"), ElementsAre(3, 11));
  bpe.pre = "";
  EXPECT_THAT(encode(load_good(bpe), "ab12"), ElementsAre(3, 11));
}

TEST(GgufTokenizer, KnowsSpecialTokensByTheirTypeOrTheirRole) {
  Metadata bpe = small_bpe();
  const Tokenizer tokenizer = load_good(bpe);
  EXPECT_THAT(encode(tokenizer, "a<s>b<think></s>"), ElementsAre(0, 5, 1, 7, 6));
  EXPECT_TRUE(tokenizer->is_special(5));
  EXPECT_FALSE(tokenizer->is_special(7));
  EXPECT_EQ(tokenizer->decode(TokenIds{5, 0, 7, 6}, true), "a<think>");
  // A token that only fills the vocabulary stands for nothing.
  EXPECT_EQ(tokenizer->decode(TokenIds{0, 8, 1}, false), "ab");

  bpe.types.reset();
  EXPECT_FALSE(load_good(bpe)->is_special(6));
  bpe.ids = {{"eos", 6}, {"eot", 7}};
  EXPECT_TRUE(load_good(bpe)->is_special(6));
  EXPECT_TRUE(load_good(bpe)->is_special(7));
}

TEST(GgufTokenizer, TakesATokenThatEndsAnAnswerForSpecialIfItIsUserDefinedOrHasNoType) {
  Metadata bpe = small_bpe();
  bpe.tokens[7] = "<|im_end|>";
  EXPECT_TRUE(load_good(bpe)->is_special(7));
  EXPECT_THAT(encode(load_good(bpe), "a<|im_end|>"), ElementsAre(0, 7));
  bpe.types.reset();
  EXPECT_TRUE(load_good(bpe)->is_special(7));
}

TEST(GgufTokenizer, FindsWordsOfTheUserThatAreSpacesInASentencePieceModel) {
  Metadata sentencepiece = small_sentencepiece();
  sentencepiece.flags = {{"add_space_prefix", false}, {"add_bos_token", false}};
  const Tokenizer tokenizer = load_good(sentencepiece);
  EXPECT_THAT(encode(tokenizer, "a  a a"), ElementsAre(4, 6, 4, 5));
  EXPECT_EQ(tokenizer->decode(TokenIds{4, 6, 4, 5}, true), "a  a a");
}

TEST(GgufTokenizer, TakesTheUnknownTokenByItsIdWhereItsTypeIsAnother) {
  Metadata sentencepiece = small_sentencepiece();
  (*sentencepiece.types)[0] = kControl;
  EXPECT_THAT(encode(load_good(sentencepiece), "a?"), ElementsAre(1, 5, 0));
  sentencepiece.types.reset();
  EXPECT_THAT(encode(load_good(sentencepiece), "a?"), ElementsAre(1, 5, 0));
  sentencepiece.ids = {{"unknown", 4}};
  EXPECT_THAT(encode(load_good(sentencepiece), "?"), ElementsAre(1, 3, 4));
}

TEST(GgufTokenizer, TakesOneUnknownTokenOfSeveral) {
  Metadata sentencepiece = small_sentencepiece();
  (*sentencepiece.types)[7] = kUnknown;
  EXPECT_THAT(encode(load_good(sentencepiece), "a?"), ElementsAre(1, 5, 0));
  (*sentencepiece.types)[0] = kControl;
  EXPECT_THAT(encode(load_good(sentencepiece), "a?"), ElementsAre(1, 5, 7));
}

TEST(GgufTokenizer, OfPhi3TakesWhiteSpaceBehindSpecialTokensWithThem) {
  Metadata sentencepiece = small_sentencepiece();
  sentencepiece.tokens[6] = "x";
  sentencepiece.flags = {{"add_bos_token", false}};
  EXPECT_THAT(encode(load_good(sentencepiece), "<|user|> a"), ElementsAre(7, 3, 5));
  sentencepiece.architecture = "phi3";
  EXPECT_THAT(encode(load_good(sentencepiece), "<|user|> a"), ElementsAre(7, 5));
  EXPECT_THAT(encode(load_good(sentencepiece), "<s> a"), ElementsAre(1, 3, 5));
}

TEST(GgufTokenizer, NamesEmptyTokensAndIgnoresIdsOfMinusOne) {
  Metadata bpe = small_bpe();
  bpe.tokens[8] = "";
  bpe.ids = {{"padding", 0xFFFFFFFF}, {"eos", 6}};
  EXPECT_THAT(encode(load_good(bpe), "ab"), ElementsAre(3));
  const auto tokens = with_file(bpe.bytes(), [](const GgufFile& file) { return gguf_special_tokens(file); });
  EXPECT_EQ(tokens.value(), (std::map<std::string, std::string>{{"eos_token", "</s>"}}));
}

TEST(GgufSpecialTokens, AreThoseOfTheFileAndOfItsModel) {
  const auto read = [](const Metadata& metadata) {
    return with_file(metadata.bytes(), [](const GgufFile& file) { return gguf_special_tokens(file); }).value();
  };
  using Names = std::map<std::string, std::string>;
  EXPECT_EQ(read(small_bpe()), Names{});
  Metadata sentencepiece = small_sentencepiece();
  EXPECT_EQ(read(sentencepiece), (Names{{"bos_token", "<s>"}, {"eos_token", "</s>"}, {"unk_token", "<unk>"}}));
  sentencepiece.ids = {{"eos", 7}, {"padding", 2}};
  EXPECT_EQ(read(sentencepiece),
            (Names{{"bos_token", "<s>"}, {"eos_token", "<|user|>"}, {"unk_token", "<unk>"}, {"pad_token", "</s>"}}));
}

TEST(GgufTokenizer, ThatIsWrongIsRefusedWithFileKeyAndReason) {
  struct Case {
    std::string message;
    std::function<void(Metadata&)> change;
    ErrorCode code = ErrorCode::bad_file;
    bool sentencepiece = false;
  };
  const std::vector<Case> cases = {
      {"tokenizer.ggml.model is \"bert\", which is not supported; gpt2, llama and t5 are",
       [](Metadata& m) { m.model = "bert"; }, ErrorCode::unsupported},
      {"tokenizer.ggml.pre is \"new\", which is not supported; these are: a.x-4.0, bailingmoe, ",
       [](Metadata& m) { m.pre = "new"; }, ErrorCode::unsupported},
      {"tokenizer.ggml.merges is missing", [](Metadata& m) { m.merges.reset(); }},
      {"tokenizer.ggml.tokens has 0 tokens", [](Metadata& m) { m.tokens.clear(); }},
      {"tokenizer.ggml.tokens has \"a\" twice, with the ids 0 and 2", [](Metadata& m) { m.tokens[2] = "a"; }},
      {"tokenizer.ggml.tokens has a token that is not valid UTF-8, with the id 1",
       [](Metadata& m) { m.tokens[1] = "\xff"; }},
      {"tokenizer.ggml.token_type has 11 entries for 12 tokens", [](Metadata& m) { m.types->pop_back(); }},
      {"tokenizer.ggml.token_type has the type 7 for the token with the id 4", [](Metadata& m) { m.types->at(4) = 7; }},
      {"tokenizer.ggml.merges has \"ab\", which is not two tokens", [](Metadata& m) { m.merges->push_back("ab"); }},
      {"tokenizer.ggml.merges has \"a \", which is not two tokens", [](Metadata& m) { m.merges->push_back("a "); }},
      {"tokenizer.ggml.merges is wrong: merge 2 needs the token \"d\\x0a\", which is not in the vocabulary",
       [](Metadata& m) { m.merges->push_back("a d\n"); }},
      {"tokenizer.ggml.bos_token_id is 12, but ids end at 11", [](Metadata& m) { m.ids["bos"] = 12; }},
      {"tokenizer.ggml.padding_token_id is 4294967294, but ids", [](Metadata& m) { m.ids["padding"] = 0xFFFFFFFE; }},
      {"tokenizer.ggml.add_eos_token is true, but there is no tokenizer.ggml.eos_token_id",
       [](Metadata& m) { m.flags["add_eos_token"] = true; }},
      {"tokenizer.ggml.scores is missing", [](Metadata& m) { m.scores.reset(); }, ErrorCode::bad_file, true},
      {"tokenizer.ggml.scores has 7 entries for 8 tokens", [](Metadata& m) { m.scores->pop_back(); },
       ErrorCode::bad_file, true},
      {"tokenizer.ggml.scores has a score that is not a finite number, for the token with the id 3",
       [](Metadata& m) { m.scores->at(3) = std::numeric_limits<float>::quiet_NaN(); }, ErrorCode::bad_file, true},
      {"tokenizer.ggml.tokens is wrong: is not a SentencePiece model",
       [](Metadata& m) {
         m.model = "t5";  // has its unknown token at 2 where it does not say
         m.tokens.resize(2);
         m.types = {kNormal, kNormal};
         m.scores->resize(2);
       },
       ErrorCode::bad_file, true},
      {"tokenizer.ggml.tokens is wrong: is not a SentencePiece model", [](Metadata& m) { m.types->at(3) = kByte; },
       ErrorCode::bad_file, true},
      {"tokenizer.ggml.precompiled_charsmap is damaged",
       [](Metadata& m) {
         m.model = "t5";
         m.charsmap = {1, 2, 3};
       },
       ErrorCode::bad_file, true},
  };
  for (const Case& c : cases) {
    Metadata metadata = c.sentencepiece ? small_sentencepiece() : small_bpe();
    c.change(metadata);
    const Result<Tokenizer> tokenizer = load(metadata);
    ASSERT_FALSE(tokenizer) << c.message;
    EXPECT_EQ(tokenizer.error().code, c.code) << c.message;
    EXPECT_THAT(tokenizer.error().message, HasSubstr("model.gguf: " + c.message));
    EXPECT_EQ(tokenizer.error().message.find('\n'), std::string::npos);
    EXPECT_THAT(tokenizer.error().param, ::testing::StartsWith("tokenizer.ggml."));
  }
  EXPECT_FALSE(with_file(GgufWriter().add("general.architecture", "llama").bytes(),
                         [](const GgufFile& file) { return load_gguf_tokenizer(file); }));
}

TEST(GgufTokenizer, WithADamagedCharsmapIsRefusedOrWorks) {
  const auto path = kTextDataDir / "files" / "unigram_normalized" / "tokenizer.model";
  const Metadata whole = of_tokenizer_model(read_text(path));
  ASSERT_GT(whole.charsmap.size(), 1000U);
  std::mt19937 rng(5);
  int refused = 0;
  int taken = 0;
  for (int i = 0; i < 300; ++i) {
    Metadata metadata = whole;
    if (i % 4 == 0) {
      metadata.charsmap.resize(1 + rng() % metadata.charsmap.size());
    } else {
      metadata.charsmap[rng() % metadata.charsmap.size()] = static_cast<std::uint8_t>(rng());
    }
    const Result<Tokenizer> tokenizer = load(metadata);
    if (!tokenizer) {
      ++refused;
      EXPECT_THAT(tokenizer.error().message, HasSubstr("tokenizer.ggml.precompiled_charsmap is damaged"));
      continue;
    }
    ++taken;
    const Result<TokenIds> ids = (*tokenizer)->encode("Hello \ufb01sh\u2026 \uff21\u00bd \U0001d400 e\u0301", true);
    if (!ids) continue;
    EXPECT_EQ(text::find_invalid_utf8((*tokenizer)->decode(*ids, true)), std::string::npos);
  }
  EXPECT_GT(refused, 50);
  EXPECT_GT(taken, 50);
}

}  // namespace
}  // namespace pagoda::io
