#include "io/model_files/tokenizer_json.hpp"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/text/tokenizer.hpp"
#include "tests/io/model_files/tokenizer_test_files.hpp"

namespace pagoda::io {
namespace {

using nlohmann::json;
using ::testing::HasSubstr;
using ::testing::Not;

// A small file with every top-level part.
json whole_file() {
  return json::parse(R"({
    "version": "1.0", "truncation": null, "padding": null,
    "added_tokens": [{"id": 0, "content": "<s>", "single_word": false, "lstrip": false, "rstrip": false,
                      "normalized": false, "special": true}],
    "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "_"},
                   {"type": "Replace", "pattern": {"String": " "}, "content": "_"}]},
    "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "b"}, "behavior": "Isolated", "invert": false},
    "post_processor": {"type": "TemplateProcessing",
                       "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
                       "pair": [], "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}}},
    "decoder": {"type": "Sequence", "decoders": [{"type": "Fuse"},
                {"type": "Strip", "content": "_", "start": 1, "stop": 0}]},
    "model": {"type": "BPE", "dropout": null, "unk_token": "<s>", "continuing_subword_prefix": null,
              "end_of_word_suffix": "", "fuse_unk": true, "byte_fallback": false, "ignore_merges": false,
              "vocab": {"<s>": 0, "_": 1, "a": 2, "b": 3, "_a": 4}, "merges": ["_ a"]}
  })");
}

// The error of the file, from wherever it is found.
Error tokenizer_error(const std::string& text) {
  const Result<text::TokenizerSpec> spec = parse_tokenizer_json(text, "dir/tokenizer.json");
  if (!spec) return spec.error();
  const auto tokenizer = text::Tokenizer::create(*spec);
  return tokenizer ? Error{ErrorCode::internal, "no error"} : tokenizer.error();
}

struct Mutation {
  std::string pointer;  // JSON pointer of the value to replace; the parent must exist
  std::string value;    // the new value; empty removes the old one
  std::string message;  // a part of the error's message
  ErrorCode code = ErrorCode::bad_config;
};

void PrintTo(const Mutation& mutation, std::ostream* out) {
  *out << mutation.pointer << " = " << mutation.value;
}

class MalformedTokenizerJson : public ::testing::TestWithParam<Mutation> {};

TEST_P(MalformedTokenizerJson, IsRefusedWithAnErrorThatSaysWhatIsWrong) {
  const auto& [pointer, value, message, code] = GetParam();
  json file = whole_file();
  const json::json_pointer at(pointer);
  if (value.empty()) {
    file.at(at.parent_pointer()).erase(at.back());
  } else {
    file[at] = json::parse(value);
  }
  const Error error = tokenizer_error(file.dump());
  EXPECT_THAT(error.message, HasSubstr(message));
  EXPECT_THAT(error.message, Not(HasSubstr("\n")));
  EXPECT_EQ(error.code, code) << error.message;
  EXPECT_NE(error.param, "");
}

TEST(TokenizerJson, TruncationAndPaddingAreIgnored) {
  json file = whole_file();
  const auto plain = parse_tokenizer_json(file.dump(), "f");
  file["truncation"] = {{"direction", "Right"}, {"max_length", 1}, {"strategy", "LongestFirst"}, {"stride", 0}};
  file["padding"] = {{"strategy", {{"Fixed", 8}}}, {"direction", "Left"}, {"pad_id", 0}, {"pad_token", "a"}};
  const auto spec = parse_tokenizer_json(file.dump(), "f");
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->added_tokens, plain->added_tokens);
  const auto tokenizer = text::Tokenizer::create(*spec);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ((*tokenizer)->encode("aaaa", true).value(),
            text::Tokenizer::create(*plain).value()->encode("aaaa", true).value());
}

constexpr ErrorCode kUnsupported = ErrorCode::unsupported;

INSTANTIATE_TEST_SUITE_P(
    Table, MalformedTokenizerJson,
    ::testing::Values(
        Mutation{"/version", "\"2.0\"", "version: \"2.0\" is not supported", kUnsupported},
        Mutation{"/version", "1", "version: is not a string"},
        Mutation{"/surprise", "1", "surprise: is not a known key"}, Mutation{"/model", "", "model: is missing"},
        Mutation{"/model", "[]", "model: is not an object"},
        Mutation{"/model/type", "\"Unigram\"", "model.type: \"Unigram\" is not supported", kUnsupported},
        Mutation{"/model/vocab", "", "model.vocab: is missing"},
        Mutation{"/model/vocab", "[]", "model.vocab: is missing or not an object"},
        Mutation{"/model/vocab", "{}", "the vocabulary is empty"},
        Mutation{"/model/vocab/a", "-1", "model.vocab: the id of \"a\" is negative"},
        Mutation{"/model/vocab/a", "1.5", "model.vocab: the id of \"a\" is not an integer"},
        Mutation{"/model/vocab/a", "\"2\"", "model.vocab: the id of \"a\" is not an integer"},
        Mutation{"/model/vocab/a", "[2]", "model.vocab: the id of \"a\" is not an integer"},
        Mutation{"/model/vocab/a", "4000000000", "model.vocab: the id of \"a\" is too large"},
        Mutation{"/model/vocab/a", "2000000000", "token \"a\" has the id 2000000000, outside"},
        Mutation{"/model/vocab/a", "3", "tokens \"a\" and \"b\" have the same id 3"},
        Mutation{"/model/merges", "", "model.merges: is missing"},
        Mutation{"/model/merges", "{}", "model.merges: is missing or not a list"},
        Mutation{"/model/merges", "[\"_a\"]", "model.merges[0]: is \"_a\", not two tokens"},
        Mutation{"/model/merges", "[\"_ a b\"]", "model.merges[0]: is \"_ a b\", not two tokens"},
        Mutation{"/model/merges", "[[\"_\"]]", "model.merges[0]: does not have two tokens"},
        Mutation{"/model/merges", "[[\"_\", \"a\", \"b\"]]", "model.merges[0]: has more than two tokens"},
        Mutation{"/model/merges", "[[\"_\", 1]]", "model.merges[0]: is not a pair of strings"},
        Mutation{"/model/merges", "[[[\"_\"], \"a\"]]", "model.merges[0]: is not a pair of strings"},
        Mutation{"/model/merges", "[\"_ a\", 7]", "model.merges[1]: is neither a string nor a pair"},
        Mutation{"/model/merges", "[\"_ q\"]", "merge 0 needs the token \"q\""},
        Mutation{"/model/merges", "[\"a b\"]", "merge 0 needs the token \"ab\""},
        Mutation{"/model/dropout", "0.1", "model.dropout: is not supported", kUnsupported},
        Mutation{"/model/continuing_subword_prefix", "\"##\"", "model.continuing_subword_prefix: is not supported",
                 kUnsupported},
        Mutation{"/model/end_of_word_suffix", "\"</w>\"", "model.end_of_word_suffix: is not supported", kUnsupported},
        Mutation{"/model/unk_token", "\"nope\"", "unk_token \"nope\" is not in the vocabulary"},
        Mutation{"/model/unk_token", "3", "model.unk_token: is not a string"},
        Mutation{"/model/fuse_unk", "1", "model.fuse_unk: is not true or false"},
        Mutation{"/model/extra", "1", "model.extra: is not a known key"},
        Mutation{"/added_tokens", "{}", "added_tokens: is not a list"},
        Mutation{"/added_tokens/0", "1", "added_tokens[0]: is not an object"},
        Mutation{"/added_tokens/0/id", "-3", "added_tokens[0].id: is not an integer in"},
        Mutation{"/added_tokens/0/id", "2", "has the id 2, but its id in the vocabulary is 0"},
        Mutation{"/added_tokens/0/content", "\"\"", "added_tokens[0].content: is empty"},
        Mutation{"/added_tokens/0/content", "\"new\"", "has the id 0, but its id in the vocabulary is 5"},
        Mutation{"/added_tokens/0/special", "", "added_tokens[0].special: is missing"},
        Mutation{"/normalizer/normalizers", "7", "normalizer.normalizers: is not a list"},
        Mutation{"/normalizer/normalizers/0/type", "\"Nmt\"",
                 "normalizer.normalizers[0].type: \"Nmt\" is not supported", kUnsupported},
        Mutation{"/normalizer/normalizers/0/type", "", "normalizer.normalizers[0].type: is missing"},
        Mutation{"/normalizer/normalizers/0/prepend", "1", "normalizer.normalizers[0].prepend: is not a string"},
        Mutation{"/normalizer/normalizers/1/pattern", "\" \"", "normalizer.normalizers[1].pattern: is neither"},
        Mutation{"/normalizer/normalizers/1/pattern", "{\"String\": \"\"}",
                 "normalizer.normalizers[1].pattern: is empty"},
        Mutation{"/normalizer/normalizers/1/pattern", "{\"Regex\": \"(\"}", "the regex is invalid"},
        Mutation{"/pre_tokenizer", "\"Split\"", "pre_tokenizer: is not an object"},
        Mutation{"/pre_tokenizer/type", "\"BertPreTokenizer\"", "\"BertPreTokenizer\" is not supported", kUnsupported},
        Mutation{"/pre_tokenizer/behavior", "\"Sideways\"", "pre_tokenizer.behavior: \"Sideways\" is not one of"},
        Mutation{"/pre_tokenizer/invert", "", "pre_tokenizer.invert: is missing"},
        Mutation{"/pre_tokenizer/pattern", "{\"Regex\": \"[a[b]]\"}", "a character class within a character class"},
        Mutation{"/pre_tokenizer/pattern", "{\"Regex\": \"\\\\p{Nonsense}\"}", "the regex is invalid"},
        Mutation{"/post_processor/type", "\"BertProcessing\"", "\"BertProcessing\" is not supported", kUnsupported},
        Mutation{"/post_processor/single", "{}", "post_processor.single: is not a list"},
        Mutation{"/post_processor/single/0", "{}", "post_processor.single[0]: is neither"},
        Mutation{"/post_processor/single/0/SpecialToken/id", "\"<x>\"",
                 "post_processor.special_tokens.<x>: is missing"},
        Mutation{"/post_processor/single/1/Sequence/id", "\"B\"", "post_processor.single[1].Sequence.id: is not \"A\""},
        Mutation{"/post_processor/special_tokens", "[]", "post_processor.special_tokens: is not an object"},
        Mutation{"/post_processor/special_tokens/<s>/ids", "[-1]", "ids: is not a list of token ids"},
        Mutation{"/post_processor/special_tokens/<s>/ids", "[0, 1]", "tokens: is not a list of as many tokens"},
        Mutation{"/post_processor/special_tokens/<s>/ids", "[99]", "uses the id 99, which no token has"},
        Mutation{"/decoder/decoders/0/type", "\"WordPiece\"", "decoder.decoders[0].type: \"WordPiece\"", kUnsupported},
        Mutation{"/decoder/decoders/1/content", "\"__\"", "decoder.decoders[1].content: is not one character"},
        Mutation{"/decoder/decoders/1/start", "-1", "decoder.decoders[1].start: is not an integer"},
        Mutation{"/decoder/decoders/1", "{\"type\": \"ByteFallback\"}", "ByteFallback after Fuse", kUnsupported}));

TEST(TokenizerJson, ReadsTheFileThatTheMutationsStartFrom) {
  const Result<text::TokenizerSpec> spec = parse_tokenizer_json(whole_file().dump(), "f");
  ASSERT_TRUE(spec) << spec.error().message;
  const auto tokenizer = text::Tokenizer::create(*spec);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ((*tokenizer)->encode("ab a", true).value(), (TokenIds{0, 4, 3, 4}));
  EXPECT_EQ((*tokenizer)->vocab_size(), 5U);
  EXPECT_EQ((*tokenizer)->token_id("_a"), 4);
  EXPECT_EQ((*tokenizer)->token_id("zzz"), std::nullopt);
  EXPECT_EQ((*tokenizer)->token_text(4), "_a");
  EXPECT_EQ((*tokenizer)->token_text(-1), "");
  EXPECT_TRUE((*tokenizer)->is_special(0));
  EXPECT_FALSE((*tokenizer)->is_special(4));
}

TEST(TokenizerJson, ReadsMergesAsPairsToo) {
  json file = whole_file();
  file["model"]["merges"] = json::parse(R"([["_", "a"]])");
  const Result<text::TokenizerSpec> spec = parse_tokenizer_json(file.dump(), "f");
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->model.merges, (std::vector<std::pair<std::string, std::string>>{{"_", "a"}}));
}

TEST(TokenizerJson, RefusesTextThatIsNotJson) {
  EXPECT_EQ(tokenizer_error("").message, "dir/tokenizer.json: is not valid JSON at byte 1");
  EXPECT_THAT(tokenizer_error("{\"a\"").message, HasSubstr("is not valid JSON at byte"));
  EXPECT_THAT(tokenizer_error("{} x").message, HasSubstr("is not valid JSON at byte"));
  EXPECT_THAT(tokenizer_error("{\"\xff\": 1}").message, HasSubstr("is not valid JSON at byte"));
}

TEST(TokenizerJson, RefusesDeepNestingAndRepeatedKeys) {
  EXPECT_THAT(tokenizer_error(std::string(100'000, '[')).message, HasSubstr("is nested deeper than 64"));
  EXPECT_THAT(tokenizer_error(R"({"version": "1.0", "version": "1.0"})").message, HasSubstr("version: is given twice"));
  EXPECT_THAT(tokenizer_error(R"({"model": {"vocab": {}, "vocab": {}}})").message,
              HasSubstr("model.vocab: is given twice"));
  EXPECT_THAT(tokenizer_error(R"({"model": {"vocab": {"a": 0, "a": 1}, "merges": []}})").message,
              HasSubstr("has two ids"));
}

TEST(TokenizerJson, RefusesMorePartsThanAnyTokenizerHas) {
  json file = whole_file();
  for (int i = 0; i < 100; ++i) file["decoder"]["decoders"].push_back({{"type", "Fuse"}});
  EXPECT_THAT(tokenizer_error(file.dump()).message, HasSubstr("has 102 parts; at most 64 are allowed"));
}

TEST(TokenizerJson, PutsControlCharactersOfTheFileIntoTheMessageAsEscapes) {
  const Error error = tokenizer_error("{\"model\": {}, \"a\\nb\": 1}");
  EXPECT_EQ(error.message, "dir/tokenizer.json: a\\x0ab: is not a known key");
}

TEST(TokenizerJson, NamesTheFileThatCannotBeRead) {
  const auto tokenizer = read_tokenizer_json("/nonexistent/model/tokenizer.json");
  ASSERT_FALSE(tokenizer);
  EXPECT_EQ(tokenizer.error().code, ErrorCode::bad_config);
  EXPECT_THAT(tokenizer.error().message, HasSubstr("/nonexistent/model/tokenizer.json"));
}

}  // namespace
}  // namespace pagoda::io
