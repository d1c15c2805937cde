// Model folders as GGUF: configs, tokenizers and tensors, read back and compared with the folder's own.

#include "io/model_files/gguf/gguf_from_folder.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/layers/rotary.hpp"
#include "io/model_files/gguf/gguf_blocks.hpp"
#include "io/model_files/gguf/gguf_config.hpp"
#include "io/model_files/gguf/gguf_config_writer.hpp"
#include "io/model_files/gguf/gguf_tokenizer.hpp"
#include "io/model_files/gguf/gguf_tokenizer_writer.hpp"
#include "io/model_files/gguf/scores_of_merges.hpp"
#include "io/model_files/hf_config.hpp"
#include "io/model_files/model_files.hpp"
#include "io/model_files/sentencepiece_proto.hpp"
#include "tests/io/model_files/tokenizer_test_files.hpp"
#include "tests/support/safetensors_file.hpp"
#include "tests/support/temporary_folder.hpp"

namespace pagoda::io {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::kSharedDir;
using testing::kTextDataDir;
using testing::read_json;

json llama_config() {
  return {{"architectures", {"LlamaForCausalLM"}},
          {"hidden_size", 64},
          {"intermediate_size", 96},
          {"num_hidden_layers", 1},
          {"num_attention_heads", 4},
          {"num_key_value_heads", 2},
          {"vocab_size", 8},
          {"max_position_embeddings", 128},
          {"rms_norm_eps", 1e-5},
          {"rope_theta", 500000},
          {"tie_word_embeddings", true}};
}

class Configs : public ::testing::Test {
 protected:
  Result<GgufConfig> write(const json& config, GgufMetadata& metadata) const {
    folder_.write("config.json", config.dump());
    return write_gguf_config(folder_.path(), metadata);
  }

  /// The config in a GGUF file.
  std::shared_ptr<const GgufFile> written_file(const json& config) const {
    GgufMetadata metadata;
    const auto result = write(config, metadata);
    EXPECT_TRUE(result) << result.error().message;
    if (!result) return {};
    std::vector<GgufTensorHeader> tensors{{"token_embd.weight", ggml::kF32, {8, 64}}};
    if (!result->rope_factors.empty()) {
      tensors.push_back({std::string(kRopeFactors), ggml::kF32, {std::ssize(result->rope_factors)}});
    }
    auto writer = create_gguf_file(folder_.path() / "m.gguf", metadata, tensors);
    EXPECT_TRUE(writer) << writer.error().message;
    EXPECT_TRUE(writer->write("token_embd.weight", std::vector<std::byte>(8 * 64 * sizeof(float))));
    if (!result->rope_factors.empty()) {
      EXPECT_TRUE(writer->write(kRopeFactors, std::as_bytes(std::span(result->rope_factors))));
    }
    auto file = GgufFile::open(writer->part());
    EXPECT_TRUE(file) << file.error().message;
    return file ? std::move(*file) : nullptr;
  }

  /// The config as it comes back.
  models::ModelSpec written(const json& config) const {
    const auto file = written_file(config);
    if (file == nullptr) return {};
    auto spec = read_gguf_spec(*file);
    EXPECT_TRUE(spec) << spec.error().message;
    return spec ? std::move(*spec) : models::ModelSpec();
  }

  std::string refused(const json& config) const {
    GgufMetadata metadata;
    const auto result = write(config, metadata);
    EXPECT_FALSE(result);
    if (result) return {};
    EXPECT_EQ(result.error().code, ErrorCode::unsupported);
    return result.error().message;
  }

  test::TemporaryFolder folder_;
};

TEST_F(Configs, ComeBackWithAllTheirSizes) {
  std::vector<json> configs(6, llama_config());
  configs[1]["architectures"] = {"MistralForCausalLM"};
  configs[1]["sliding_window"] = 32;
  configs[2]["architectures"] = {"Qwen2ForCausalLM"};
  configs[3]["architectures"] = {"Qwen3ForCausalLM"};  // heads of 128
  configs[4]["architectures"] = {"Phi3ForCausalLM"};
  configs[4]["partial_rotary_factor"] = 0.5;
  configs[5] = {{"architectures", {"GPT2LMHeadModel"}},
                {"n_embd", 64},
                {"n_layer", 2},
                {"n_head", 4},
                {"n_positions", 32},
                {"vocab_size", 8}};
  for (const json& config : configs) {
    const auto spec = written(config);
    const auto wanted = parse_hf_config({config.dump(), "config.json"}, nullptr);
    ASSERT_TRUE(wanted) << wanted.error().message;
    EXPECT_EQ(spec.facts, wanted->facts) << config;
    EXPECT_EQ(spec.architecture, wanted->architecture);
    EXPECT_EQ(spec.max_position_embeddings, wanted->max_position_embeddings);
    EXPECT_EQ(spec.tie_word_embeddings, wanted->tie_word_embeddings);
  }
}

TEST_F(Configs, ComeBackWithTheirRopeScaling) {
  for (const json& scaling : {json{{"rope_type", "linear"}, {"factor", 4.0}},
                              json{{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 32}}}) {
    json config = llama_config();
    config["rope_scaling"] = scaling;
    const auto wanted = parse_hf_config({config.dump(), "config.json"}, nullptr);
    ASSERT_TRUE(wanted) << wanted.error().message;
    EXPECT_EQ(written(config).position_limit, wanted->position_limit) << scaling;
  }
}

TEST_F(Configs, ComeBackWithAllOfYarn) {
  json config = llama_config();
  config["rope_scaling"] = {{"rope_type", "yarn"}, {"factor", 4.0},    {"original_max_position_embeddings", 32},
                            {"beta_fast", 16.0},   {"beta_slow", 2.0}, {"attention_factor", 0.75}};
  const auto file = written_file(config);
  ASSERT_NE(file, nullptr);
  json scaling = gguf_as_hf_config(*file).value().at("rope_scaling");
  EXPECT_NEAR(scaling.at("attention_factor"), 0.75, 1e-6);
  scaling["attention_factor"] = 0.75;
  EXPECT_EQ(scaling, config.at("rope_scaling"));
}

TEST_F(Configs, FactorsSayTheSameAsLlama3sScaling) {
  json config = llama_config();
  config["rope_scaling"] = {{"rope_type", "llama3"},
                            {"factor", 8.0},
                            {"low_freq_factor", 1.0},
                            {"high_freq_factor", 4.0},
                            {"original_max_position_embeddings", 64}};
  GgufMetadata metadata;
  const auto result = write(config, metadata);
  ASSERT_TRUE(result) << result.error().message;
  ASSERT_EQ(result->rope_factors.size(), 8);
  EXPECT_EQ(result->rope_factors.front(), 1.0F);
  EXPECT_EQ(result->rope_factors.back(), 8.0F);
  layers::RotaryShape shape{
      .rotary_dim = 16,
      .theta = 500000,
      .scaling = {.type = layers::RopeScaling::Type::llama3, .factor = 8, .original_max_position_embeddings = 64}};
  const auto angles = layers::rotary_cos_sin(128, shape);
  shape.scaling = {.type = layers::RopeScaling::Type::factors,
                   .factors = {result->rope_factors.begin(), result->rope_factors.end()}};
  const auto by_factors = layers::rotary_cos_sin(128, shape);
  for (std::size_t i = 0; i < angles.size(); ++i) ASSERT_NEAR(angles[i], by_factors[i], 2e-5);
  EXPECT_EQ(written(config).max_position_embeddings, 128);
}

TEST_F(Configs, WithWhatGgufCannotSayAreRefused) {
  const auto with = [](const char* key, json value) {
    json config = llama_config();
    config[key] = std::move(value);
    return config;
  };
  EXPECT_THAT(refused(with("architectures", {"OPTForCausalLM"})), HasSubstr("config.json: architectures: \"OPT"));
  EXPECT_THAT(refused(with("hidden_act", "gelu")), HasSubstr("config.json: hidden_act: "));
  EXPECT_THAT(refused(with("rope_scaling", {{"rope_type", "dynamic"}, {"factor", 2.0}})),
              HasSubstr("config.json: rope_scaling: GGUF does not support dynamic"));
  EXPECT_THAT(refused(with("rope_scaling", {{"rope_type", "yarn"}, {"factor", 2.0}, {"truncate", false}})),
              HasSubstr("config.json: rope_scaling: GGUF does not support yarn without truncate"));
  json windows = with("use_sliding_window", true);
  windows["architectures"] = {"Qwen2ForCausalLM"};
  windows["sliding_window"] = 16;
  windows["max_window_layers"] = 0;
  EXPECT_THAT(refused(windows), HasSubstr("use_sliding_window"));
}

/// A folder's tokenizer in a GGUF file.
Result<std::shared_ptr<const text::Tokenizer>> as_gguf(const std::filesystem::path& folder, models::ModelSpec spec,
                                                       const std::filesystem::path& out) {
  GgufMetadata metadata;
  if (Status status = write_gguf_tokenizer(folder, spec, metadata); !status) return fail(status.error());
  const auto writer = create_gguf_file(out, metadata, {});
  if (!writer) return fail(writer.error());
  const auto file = GgufFile::open(writer->part());
  if (!file) return fail(file.error());
  return load_gguf_tokenizer(**file);
}

class SharedFolders : public ::testing::TestWithParam<testing::SharedTokenizer> {};

TEST_P(SharedFolders, TokenizeAsBeforeWhenTheyAreGguf) {
  if (!testing::is_present(GetParam())) GTEST_SKIP() << "no shared tokenizer " << GetParam().folder;
  const test::TemporaryFolder folder;
  const auto tokenizer = load_tokenizer(kSharedDir / GetParam().folder);
  ASSERT_TRUE(tokenizer);
  models::ModelSpec spec;
  spec.vocab_size = (*tokenizer)->vocab_size() + 5;  // an embedding may have more rows
  const auto written = as_gguf(kSharedDir / GetParam().folder, spec, folder.path() / "m.gguf");
  ASSERT_TRUE(written) << written.error().message;
  json texts = read_json(kTextDataDir / "hard_strings.json");
  for (const char* text : {"<s>a</s> <|endoftext|>b<|im_start|>", "   a\n\n \t b  ", " <unk> ",
                           "\xF0\x9F\x91\xA9\xE2\x80\x8D\xF0\x9F\x9A\x80"}) {
    texts.push_back(text);
  }
  for (const json& text : texts) {
    for (const bool special : {false, true}) {
      const auto ids = (*tokenizer)->encode(text.get<std::string>(), special);
      const auto written_ids = (*written)->encode(text.get<std::string>(), special);
      ASSERT_TRUE(ids && written_ids);
      ASSERT_EQ(*written_ids, *ids) << text;
      ASSERT_EQ((*written)->decode(*ids, true), (*tokenizer)->decode(*ids, true)) << text;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, SharedFolders, ::testing::ValuesIn(testing::kSharedTokenizers),
                         [](const auto& tested) { return std::string(tested.param.name); });

/// A byte-level tokenizer.json with `changes` merged in.
json byte_level_tokenizer(const json& changes) {
  json tokenizer{{"version", "1.0"},
                 {"added_tokens", json::array()},
                 {"normalizer", nullptr},
                 {"pre_tokenizer", {{"type", "ByteLevel"}, {"add_prefix_space", false}}},
                 {"post_processor", nullptr},
                 {"decoder", {{"type", "ByteLevel"}}},
                 {"model", {{"type", "BPE"}, {"vocab", {{"a", 0}, {"b", 1}, {"ab", 2}}}, {"merges", {"a b"}}}}};
  tokenizer.merge_patch(changes);
  return tokenizer;
}

std::string tokenizer_refusal(const json& changes) {
  const test::TemporaryFolder folder;
  folder.write("tokenizer.json", byte_level_tokenizer(changes).dump());
  models::ModelSpec spec;
  spec.vocab_size = 4;
  const auto written = as_gguf(folder.path(), spec, folder.path() / "m.gguf");
  return written ? std::string() : written.error().message;
}

TEST(TokenizersAsGguf, WithPartsThatGgufHasNoNameForAreRefused) {
  EXPECT_EQ(tokenizer_refusal(json::object()), "");
  EXPECT_THAT(tokenizer_refusal({{"pre_tokenizer", {{"add_prefix_space", true}}}}),
              HasSubstr("tokenizer.json: pre_tokenizer: "));
  EXPECT_THAT(tokenizer_refusal({{"normalizer", {{"type", "Lowercase"}}}}),
              HasSubstr("tokenizer.json: pre_tokenizer: "));
  EXPECT_THAT(tokenizer_refusal({{"model", {{"vocab", {{"c", 9}}}}}}), HasSubstr("beyond the 4 rows"));
}

/// A SentencePiece model of some letters, with what the user has defined behind them.
SentencePieceProto sentencepiece_proto(const std::vector<std::string_view>& user_defined_tokens) {
  using Type = SentencePieceProto::PieceType;
  SentencePieceProto proto;
  proto.pieces = {{"<unk>", 0, Type::unknown}, {"<s>", 0, Type::control}, {"</s>", 0, Type::control}};
  for (const char* piece : {"\u2581", "a", "b", "x", "ab", "\u2581a"}) {
    proto.pieces.push_back({piece, -static_cast<float>(proto.pieces.size()), Type::normal});
  }
  for (const std::string_view word : user_defined_tokens) proto.pieces.push_back({word, 0, Type::user_defined});
  return proto;
}

/// The ids of `text` by a folder with this model and by its GGUF file, which are the same; or the refusal.
std::string encoded_both_ways(const SentencePieceProto& proto, const std::string& text) {
  const test::TemporaryFolder folder;
  folder.write("tokenizer.model", serialize(proto));
  models::ModelSpec spec;
  spec.vocab_size = std::ssize(proto.pieces) + 3;
  const auto written = as_gguf(folder.path(), spec, folder.path() / "m.gguf");
  if (!written) return written.error().message;
  const auto ids = load_tokenizer(folder.path()).value()->encode(text, true);
  const auto written_ids = (*written)->encode(text, true);
  EXPECT_TRUE(ids && written_ids);
  EXPECT_EQ(*ids, *written_ids) << text;
  return json(*ids).dump();
}

TEST(TokenizersAsGguf, OfSentencePieceCutOutTheUsersWordsUnlessEachPieceGetsASpace) {
  auto proto = sentencepiece_proto({"<x>", "\u2581\u2581\u2581"});
  EXPECT_THAT(encoded_both_ways(proto, "ab"),
              HasSubstr("tokenizer.model: pieces: GGUF cannot express how the user-defined \"<x>\""));
  proto.add_dummy_prefix = false;
  EXPECT_EQ(encoded_both_ways(proto, "ab<x>a    a <x>"), "[1,7,9,4,10,8,3,9]");
  proto.algorithm = SentencePieceProto::Algorithm::unigram;
  EXPECT_THAT(encoded_both_ways(proto, "ab"), HasSubstr("pieces: GGUF cannot express how the user-defined"));
  proto = sentencepiece_proto({"\u2581\u2581\u2581"});
  EXPECT_EQ(encoded_both_ways(proto, "ab    ab"), "[1,3,7,9,3,7]");
}

TEST(TokenizersAsGguf, OfSentencePieceWithWhatGgufCannotSayAreRefused) {
  auto proto = sentencepiece_proto({});
  proto.remove_extra_whitespaces = true;
  EXPECT_THAT(encoded_both_ways(proto, "ab"), HasSubstr("tokenizer.model: normalizer_spec.remove_extra_whitespaces: "));
  proto.algorithm = SentencePieceProto::Algorithm::unigram;
  EXPECT_EQ(encoded_both_ways(proto, " b   ab "), "[1,3,5,3,7]");
  proto.algorithm = SentencePieceProto::Algorithm::character;
  EXPECT_THAT(encoded_both_ways(proto, "ab"), HasSubstr("trainer_spec.model_type: is neither BPE nor unigram"));
}

TEST(TokenizersAsGguf, AddedTokensThatTakeSpacesWithThemAreFoundOut) {
  text::TokenizerSpec wanted;
  wanted.added_tokens.push_back({.id = 3, .content = "<x>", .special = true});
  text::TokenizerSpec written = wanted;
  EXPECT_TRUE(check_same_tokens(wanted, "FILE", written));
  wanted.added_tokens.front().rstrip = true;
  const Status status = check_same_tokens(wanted, "FILE", written);
  ASSERT_FALSE(status);
  EXPECT_THAT(status.error().message, HasSubstr("FILE: added_tokens: the matching of \"<x>\""));
}

TEST(ScoresOfMerges, FollowTheRanksOfTokens) {
  const std::vector<std::string> tokens{"a", "b", "c", "ab", "bc", "abc"};
  const std::vector<bool> all(tokens.size(), true);
  const auto scores = scores_of_merges(tokens, all, {{"b", "c"}, {"a", "bc"}, {"ab", "c"}, {"a", "b"}});
  ASSERT_TRUE(scores) << scores.error().message;
  EXPECT_THAT(*scores, ElementsAre(0, 0, 0, -3, -1, -2));
  const auto apart = scores_of_merges(tokens, all, {{"a", "bc"}, {"b", "c"}, {"ab", "c"}, {"a", "b"}});
  EXPECT_THAT(apart.error().message, HasSubstr("the merges of \"abc\" are not adjacent"));
  const auto missing = scores_of_merges(tokens, all, {{"b", "c"}, {"a", "bc"}, {"a", "b"}});
  EXPECT_THAT(missing.error().message, HasSubstr("no merge of \"ab\" and \"c\""));
}

/// A folder with a checkpoint of float32 numbers that count up from 0, tensor after tensor.
void write_folder(const test::TemporaryFolder& folder, json config,
                  const std::vector<std::pair<std::string, std::vector<std::int64_t>>>& tensors) {
  json header;
  std::vector<float> numbers;
  for (const auto& [name, shape] : tensors) {
    std::int64_t count = 1;
    for (const auto size : shape) count *= size;
    const std::size_t begin = numbers.size() * sizeof(float);
    for (std::int64_t i = 0; i < count; ++i) numbers.push_back(static_cast<float>(numbers.size()));
    header[name] = {{"dtype", "F32"}, {"shape", shape}, {"data_offsets", {begin, numbers.size() * sizeof(float)}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  const std::string data(reinterpret_cast<const char*>(numbers.data()), numbers.size() * sizeof(float));
  folder.write("model.safetensors", test::safetensors_file(text, 0) + data);
  folder.write("config.json", config.dump());
  folder.write("tokenizer.json", byte_level_tokenizer(json::object()).dump());
}

/// The data of the tensor that is called `name`.
std::vector<float> data_of(const GgufModelParts& parts, std::string_view name) {
  for (const auto& [described, data] : parts.tensors) {
    if (described.name != name) continue;
    std::vector<std::byte> memory;
    const auto bytes = data(memory);
    std::vector<float> numbers(bytes.size() / sizeof(float));
    std::copy(bytes.begin(), bytes.end(), reinterpret_cast<std::byte*>(numbers.data()));
    return numbers;
  }
  ADD_FAILURE() << name << " is missing";
  return {};
}

TEST(TensorsAsGguf, RowsOfQueriesAreInterleaved) {
  const test::TemporaryFolder folder;
  json config = llama_config();
  config["num_attention_heads"] = 2;
  config["num_key_value_heads"] = 1;
  config["head_dim"] = 4;
  write_folder(folder, config,
               {{"model.layers.0.self_attn.q_proj.weight", {8, 1}},
                {"lm_head.weight", {8, 1}},
                {"model.layers.0.self_attn.rotary_emb.inv_freq", {2}}});
  const auto parts = gguf_parts_of_folder(folder.path());
  ASSERT_TRUE(parts) << parts.error().message;
  ASSERT_EQ(parts->tensors.size(), 2) << "a tied head that is there alone is the embedding; a buffer is left out";
  EXPECT_EQ(data_of(*parts, "token_embd.weight").size(), 8);
  const auto rows = data_of(*parts, "blk.0.attn_q.weight");
  const float first = rows.front();
  std::vector<float> places;
  for (const float row : rows) places.push_back(row - first);
  EXPECT_THAT(places, ElementsAre(0, 2, 1, 3, 4, 6, 5, 7));
}

TEST(TensorsAsGguf, ProjectionsOfGpt2AreTransposedAndItsOuterModuleMayBeLeftOut) {
  const test::TemporaryFolder folder;
  write_folder(folder,
               {{"architectures", {"GPT2LMHeadModel"}},
                {"n_embd", 2},
                {"n_layer", 1},
                {"n_head", 1},
                {"n_positions", 32},
                {"vocab_size", 8}},
               {{"h.0.mlp.c_fc.weight", {2, 3}}, {"h.0.mlp.c_fc.bias", {3}}, {"h.0.attn.bias", {1, 1}}});
  const auto parts = gguf_parts_of_folder(folder.path());
  ASSERT_TRUE(parts) << parts.error().message;
  EXPECT_EQ(parts->tensors.size(), 2);
  const auto weight = data_of(*parts, "blk.0.ffn_up.weight");
  EXPECT_THAT(weight,
              ElementsAre(weight[0], weight[0] + 3, weight[0] + 1, weight[0] + 4, weight[0] + 2, weight[0] + 5));
}

TEST(TensorsAsGguf, WithoutANameAreRefused) {
  const test::TemporaryFolder folder;
  write_folder(folder, llama_config(), {{"model.layers.0.mlp.router.weight", {8, 1}}});
  const auto parts = gguf_parts_of_folder(folder.path());
  ASSERT_FALSE(parts);
  EXPECT_THAT(parts.error().message,
              HasSubstr("model.safetensors: tensor \"model.layers.0.mlp.router.weight\" has no name"));
}

}  // namespace
}  // namespace pagoda::io
