// What a GGUF's metadata and tensors say of a model. That the numbers which follow are right: gguf_golden_test.cpp.

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/model_files/gguf/gguf_config.hpp"
#include "io/model_files/gguf/gguf_file.hpp"
#include "io/model_files/gguf/gguf_weights.hpp"
#include "io/model_files/model_files.hpp"
#include "tests/io/model_files/gguf_writer.hpp"
#include "tests/support/temporary_folder.hpp"

namespace pagoda::io {
namespace {

using ::testing::ElementsAre;
using testing::GgufWriter;
using ::testing::HasSubstr;

constexpr std::uint32_t kHidden = 32;

/// A Llama with one layer, two heads of 16 and a vocabulary of four, without the values of tensors. Its file may have
/// the name of another architecture.
class SmallLlama {
 public:
  explicit SmallLlama(const std::string& of = "llama") : architecture(of), said_architecture(of) {
    number("block_count", 1);
    number("context_length", 64);
    number("embedding_length", kHidden);
    number("feed_forward_length", 48);
    number("attention.head_count", 2);
    set("attention.layer_norm_rms_epsilon", [](GgufWriter& to, const std::string& key) { to.add(key, 1e-5F); });
    for (const char* name : {"token_embd", "output_norm", "blk.0.attn_norm", "blk.0.ffn_norm"}) {
      tensors.emplace_back(std::string(name) + ".weight", std::vector<std::uint64_t>{kHidden});
    }
    tensors.front().second = {4, kHidden};
    for (const char* name : {"attn_q", "attn_k", "attn_v", "attn_output"}) {
      tensors.emplace_back("blk.0." + std::string(name) + ".weight", std::vector<std::uint64_t>{kHidden, kHidden});
    }
    tensors.emplace_back("blk.0.ffn_gate.weight", std::vector<std::uint64_t>{48, kHidden});
    tensors.emplace_back("blk.0.ffn_up.weight", std::vector<std::uint64_t>{48, kHidden});
    tensors.emplace_back("blk.0.ffn_down.weight", std::vector<std::uint64_t>{kHidden, 48});
  }

  using Add = std::function<void(GgufWriter&, const std::string& key)>;
  void set(const std::string& name, Add add) { keys[architecture + "." + name] = std::move(add); }
  void number(const std::string& name, std::uint32_t value) {
    set(name, [value](GgufWriter& to, const std::string& key) { to.add(key, value); });
  }
  void erase(const std::string& name) { keys.erase(architecture + "." + name); }

  Result<std::shared_ptr<const GgufFile>> open() const {
    GgufWriter writer;
    writer.add("general.architecture", said_architecture);
    for (const auto& [key, add] : keys) add(writer, key);
    for (const auto& [tensor, shape] : tensors) writer.add_zeros(tensor, shape);
    const auto path = folder_.path() / "small.gguf";
    writer.write(path);
    return GgufFile::open(path);
  }

  std::string architecture;
  std::string said_architecture;
  std::map<std::string, Add> keys;
  std::vector<std::pair<std::string, std::vector<std::uint64_t>>> tensors;

 private:
  test::TemporaryFolder folder_;
};

TEST(GgufModel, HasWhatItsMetadataSays) {
  SmallLlama llama;
  llama.number("attention.head_count_kv", 1);
  llama.keys["tokenizer.ggml.eos_token_id"] = [](GgufWriter& to, const std::string& key) {
    to.add(key, std::uint32_t{1});
  };
  const auto spec = read_gguf_spec(*llama.open().value());
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->architecture, "LlamaForCausalLM");
  EXPECT_EQ(spec->vocab_size, 4);
  EXPECT_EQ(spec->max_position_embeddings, 64);
  EXPECT_TRUE(spec->tie_word_embeddings);
  EXPECT_EQ(spec->checkpoint_dtype, DType::f32);
  EXPECT_THAT(spec->eos_token_ids, ElementsAre(1));
  EXPECT_EQ(spec->kv.front().attention.num_kv_heads, 1);
}

TEST(GgufModel, TokensThatEndAnAnswerAreEndsToo) {
  SmallLlama llama;
  llama.keys["tokenizer.ggml.tokens"] = [](GgufWriter& to, const std::string& key) {
    to.add(key, std::vector<std::string>{"a", "<|im_end|>", "<|eot_id|>", "<|im_end|>"});
  };
  llama.keys["tokenizer.ggml.token_type"] = [](GgufWriter& to, const std::string& key) {
    to.add(key, std::vector<std::int32_t>{1, 3, 1, 3});
  };
  const auto spec = read_gguf_spec(*llama.open().value());
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_THAT(spec->eos_token_ids, ElementsAre(1, 2, 3)) << "whatever types the file gives them";
}

TEST(GgufModel, AnIdThatMeansNoTokenIsNone) {
  for (const std::int64_t none : {std::int64_t{-1}, std::int64_t{0xFFFFFFFF}}) {
    SmallLlama llama;
    llama.keys["tokenizer.ggml.eos_token_id"] = [none](GgufWriter& to, const std::string& key) { to.add(key, none); };
    const auto spec = read_gguf_spec(*llama.open().value());
    ASSERT_TRUE(spec) << spec.error().message;
    EXPECT_TRUE(spec->eos_token_ids.empty());
  }
}

/// Returns the kind of positions of a Baichuan with `layers` layers and this max_alibi_bias, if any, or the reason why
/// it is refused.
std::string positions_of_baichuan(std::uint32_t layers, std::optional<float> bias) {
  SmallLlama baichuan("baichuan");
  baichuan.number("block_count", layers);
  if (bias) {
    baichuan.set("attention.max_alibi_bias", [&](GgufWriter& to, const std::string& key) { to.add(key, *bias); });
  }
  const auto spec = read_gguf_spec(*baichuan.open().value());
  if (!spec) return spec.error().message;
  EXPECT_EQ(spec->architecture, "BaichuanForCausalLM");
  const auto positions = std::ranges::find(spec->facts, "positions", &models::Fact::first);
  return std::get<std::string>(positions->second);
}

TEST(GgufModel, OfBaichuanHasThePositionsOfItsSizeOrAsItSays) {
  EXPECT_EQ(positions_of_baichuan(32, {}), "rotary");
  EXPECT_EQ(positions_of_baichuan(40, {}), "alibi");
  EXPECT_EQ(positions_of_baichuan(40, 0.0F), "rotary");
  EXPECT_EQ(positions_of_baichuan(2, 0.0F), "rotary");
  EXPECT_EQ(positions_of_baichuan(2, 8.0F), "alibi");
  EXPECT_THAT(positions_of_baichuan(2, {}), HasSubstr("small.gguf: baichuan.attention.max_alibi_bias is missing"));
  EXPECT_THAT(positions_of_baichuan(40, 4.0F), HasSubstr("baichuan.attention.max_alibi_bias must be 0 or 8"));
}

/// A Granite with the two factors that files must have.
class SmallGranite : public SmallLlama {
 public:
  SmallGranite() : SmallLlama("granite") {
    for (const auto& [name, factor] : {std::pair("attention.scale", 0.125F), std::pair("logit_scale", 8.0F)}) {
      set(name, [value = factor](GgufWriter& to, const std::string& key) { to.add(key, value); });
    }
  }
};

TEST(GgufModel, OfGraniteHasItsFactorsAndPositions) {
  const SmallGranite granite;
  const auto spec = read_gguf_spec(*granite.open().value());
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_EQ(spec->architecture, "GraniteForCausalLM");
  EXPECT_EQ(spec->decoder.attention.scale, 0.125);
  const auto config = gguf_as_hf_config(*granite.open().value()).value();
  EXPECT_EQ(config.at("logits_scaling"), 8.0);
  EXPECT_FALSE(config.contains("residual_multiplier")) << "1, as in transformers";

  for (const char* name : {"attention.scale", "logit_scale"}) {
    SmallGranite without;
    without.erase(name);
    const auto refused = read_gguf_spec(*without.open().value());
    ASSERT_FALSE(refused) << name;
    EXPECT_THAT(refused.error().message, HasSubstr("small.gguf: granite." + std::string(name) + " is missing"));
  }
  const auto with_finetuned = [](bool value) {
    SmallGranite changed;
    changed.set("rope.scaling.finetuned", [=](GgufWriter& to, const std::string& key) { to.add(key, value); });
    return read_gguf_spec(*changed.open().value());
  };
  EXPECT_TRUE(with_finetuned(true));
  const auto refused = with_finetuned(false);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::unsupported);
  EXPECT_THAT(refused.error().message, HasSubstr("small.gguf: granite.rope.scaling.finetuned is false"));
}

TEST(GgufModel, MayNameTheLayersWithAWindow) {
  const auto windows = [](const char* architecture, const auto& pattern) {
    SmallLlama gemma(architecture);
    gemma.number("block_count", 3);
    gemma.number("attention.sliding_window", 16);
    gemma.set("attention.sliding_window_pattern",
              [&](GgufWriter& to, const std::string& key) { to.add(key, pattern); });
    auto spec = read_gguf_spec(*gemma.open().value());
    std::vector<std::int32_t> found;
    if (spec) {
      for (const auto& layer : spec->decoder.layer_shapes) found.push_back(layer.window);
    } else {
      EXPECT_THAT(spec.error().message,
                  HasSubstr("small.gguf: " + std::string(architecture) + ".attention.sliding_window_pattern"));
    }
    return found;
  };
  for (const char* architecture : {"gemma2", "gemma3"}) {
    SCOPED_TRACE(architecture);
    EXPECT_THAT(windows(architecture, std::vector<bool>{true, false, true}), ElementsAre(16, 0, 16));
    EXPECT_THAT(windows(architecture, std::uint32_t{1}), ElementsAre(0, 0, 0));
    EXPECT_THAT(windows(architecture, std::uint32_t{2}), ElementsAre(16, 0, 16));
    EXPECT_THAT(windows(architecture, std::uint32_t{3}), ElementsAre(16, 16, 0));
    EXPECT_THAT(windows(architecture, std::uint32_t{0}), ElementsAre());
    EXPECT_THAT(windows(architecture, std::vector<bool>{true, false}), ElementsAre());
    EXPECT_THAT(windows(architecture, std::string("often")), ElementsAre());
  }
}

/// What a conversation, one with tools and one with documents become; "none" without a template.
std::string prompts_of(const GgufWriter& writer) {
  const test::TemporaryFolder folder;
  const auto loaded = load_chat_prompts(writer.write(folder.path() / "chat.gguf"));
  if (!loaded) return loaded.error().message;
  if (!*loaded) return "none";
  chat::ChatInput plain;
  plain.messages.push_back({{"role", "user"}, {"content", "x"}});
  auto tools = plain;
  tools.tools = nlohmann::ordered_json::array({{{"type", "function"}}});
  auto documents = plain;
  documents.documents = nlohmann::ordered_json::array({{{"text", "d"}}});
  return (*loaded)->render(plain).value() + ' ' + (*loaded)->render(tools).value() + ' ' +
         (*loaded)->render(documents).value();
}

/// The keys that a file with a tokenizer has.
GgufWriter with_tokens() {
  GgufWriter writer;
  writer.add("general.architecture", "llama").add("tokenizer.ggml.model", "gpt2");
  writer.add("tokenizer.ggml.tokens", std::vector<std::string>{"<s>", "a"});
  writer.add("tokenizer.ggml.token_type", std::vector<std::int32_t>{3, 1});
  return writer.add("tokenizer.ggml.bos_token_id", std::uint32_t{0});
}

TEST(GgufModel, HasTheNamedChatTemplatesOfItsKeys) {
  const std::string key = "tokenizer.chat_template";
  EXPECT_EQ(prompts_of(with_tokens()), "none");
  EXPECT_EQ(prompts_of(with_tokens().add(key, "{{ bos_token }}one")), "<s>one <s>one <s>one");
  const std::vector<std::string> names{"rag", "own", "tool_use"};
  const auto named = [&](GgufWriter writer) {
    return writer.add("tokenizer.chat_templates", names)
        .add(key + ".rag", "{{ bos_token }}docs")
        .add(key + ".own", "{% oops")
        .add(key + ".tool_use", "tools");
  };
  EXPECT_EQ(prompts_of(named(with_tokens()).add(key, "plain")), "plain tools <s>docs");
  EXPECT_EQ(prompts_of(named(with_tokens())), "none") << "none of them is for all conversations";
  EXPECT_EQ(prompts_of(with_tokens().add(key, "plain").add(key + ".tool_use", "{% oops")), "plain plain plain");
  EXPECT_THAT(prompts_of(with_tokens().add(key, "\n{% oops")), HasSubstr("chat.gguf: tokenizer.chat_template: "));
}

TEST(GgufModel, IsFoundInAFolderThatHasNothingElse) {
  const test::TemporaryFolder folder;
  GgufWriter().write(folder.path() / "model.gguf");
  EXPECT_TRUE(open_model_files(folder.path()));
  const auto missing = open_model_files(folder.path() / "elsewhere");
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::bad_config);
}

struct Refusal {
  std::string what;
  std::function<void(SmallLlama&)> spoil;
  ErrorCode code;
  std::vector<std::string> message;
};

class GgufModelRefusal : public ::testing::TestWithParam<Refusal> {};

TEST_P(GgufModelRefusal, NamesFileAndKey) {
  SmallLlama llama;
  GetParam().spoil(llama);
  const auto file = llama.open();
  ASSERT_TRUE(file) << file.error().message;
  const auto spec = read_gguf_spec(**file);
  ASSERT_FALSE(spec);
  EXPECT_EQ(spec.error().code, GetParam().code) << spec.error().message;
  EXPECT_THAT(spec.error().message, HasSubstr("small.gguf"));
  for (const auto& part : GetParam().message) EXPECT_THAT(spec.error().message, HasSubstr(part));
}

void text(SmallLlama& llama, const std::string& name, const std::string& value) {
  llama.set(name, [value](GgufWriter& to, const std::string& key) { to.add(key, value); });
}

void real(SmallLlama& llama, const std::string& name, float value) {
  llama.set(name, [value](GgufWriter& to, const std::string& key) { to.add(key, value); });
}

TEST(GgufModel, OfYarnHasTransformersWordsForWhatConvertersCopy) {
  SmallLlama llama;
  text(llama, "rope.scaling.type", "yarn");
  real(llama, "rope.scaling.factor", 4.0F);
  real(llama, "rope.scaling.attn_factor", 1.0F);
  real(llama, "rope.scaling.yarn_ext_factor", 1.0F);
  llama.number("rope.scaling.original_context_length", 16);
  const auto scaling = [&] { return gguf_as_hf_config(*llama.open().value()).value().at("rope_scaling"); };
  nlohmann::json wanted{{"rope_type", "yarn"}, {"factor", 4.0}, {"original_max_position_embeddings", 16}};
  EXPECT_EQ(scaling(), wanted);
  real(llama, "rope.scaling.attn_factor", 0.5F);
  EXPECT_NEAR(scaling().at("attention_factor"), 0.5 * 1.138629436111989, 1e-12) << "0.1 ln 4 + 1";
  real(llama, "rope.scaling.yarn_attn_factor", 1.2F);
  real(llama, "rope.scaling.yarn_beta_fast", 24.0F);
  real(llama, "rope.scaling.yarn_beta_slow", 2.0F);
  wanted.update({{"attention_factor", 0.6}, {"beta_fast", 24.0}, {"beta_slow", 2.0}});
  EXPECT_EQ(scaling(), wanted);
}

INSTANTIATE_TEST_SUITE_P(
    Small, GgufModelRefusal,
    ::testing::Values(Refusal{"UnknownArchitecture",
                              [](auto& llama) { llama.said_architecture = "gemma9"; },
                              ErrorCode::unsupported,
                              {"general.architecture", "\"gemma9\"", "qwen3"}},
                      Refusal{"MissingSize",
                              [](auto& llama) { llama.erase("block_count"); },
                              ErrorCode::bad_config,
                              {"llama.block_count: is missing"}},
                      Refusal{"SizeOfAnotherType",
                              [](auto& llama) { text(llama, "feed_forward_length", "many"); },
                              ErrorCode::bad_config,
                              {"llama.feed_forward_length", "whole number"}},
                      Refusal{"NoHeads",
                              [](auto& llama) { llama.number("attention.head_count", 0); },
                              ErrorCode::bad_config,
                              {"llama.attention.head_count"}},
                      Refusal{"KeysAndValuesOfDifferentLength",
                              [](auto& llama) { llama.number("attention.value_length", 8); },
                              ErrorCode::unsupported,
                              {"llama.attention.value_length"}},
                      Refusal{"Experts",
                              [](auto& llama) { llama.number("expert_count", 8); },
                              ErrorCode::unsupported,
                              {"llama.expert_count", "experts"}},
                      Refusal{"UnknownKey",
                              [](auto& llama) { llama.number("logit_scale", 2); },
                              ErrorCode::unsupported,
                              {"llama.logit_scale", "may change"}},
                      Refusal{"UnknownScaling",
                              [](auto& llama) { text(llama, "rope.scaling.type", "longrope"); },
                              ErrorCode::unsupported,
                              {"llama.rope.scaling.type", "\"longrope\""}},
                      Refusal{"FactorOfAttentionWithoutAScaling",
                              [](auto& llama) { real(llama, "rope.scaling.attn_factor", 1.25F); },
                              ErrorCode::unsupported,
                              {"llama.rope.scaling.attn_factor must be 1"}},
                      Refusal{"FactorOfAttentionBesideLinear",
                              [](auto& llama) {
                                text(llama, "rope.scaling.type", "linear");
                                real(llama, "rope.scaling.factor", 2.0F);
                                real(llama, "rope.scaling.attn_factor", 1.25F);
                              },
                              ErrorCode::unsupported,
                              {"llama.rope.scaling.attn_factor must be 1"}},
                      Refusal{"FactorOfAttentionBesideFactors",
                              [](auto& llama) {
                                llama.tensors.emplace_back("rope_freqs.weight", std::vector<std::uint64_t>{8});
                                real(llama, "rope.scaling.attn_factor", 1.25F);
                              },
                              ErrorCode::unsupported,
                              {"llama.rope.scaling.attn_factor must be 1"}},
                      Refusal{"YarnThatExtrapolatesInPart",
                              [](auto& llama) {
                                text(llama, "rope.scaling.type", "yarn");
                                real(llama, "rope.scaling.factor", 2.0F);
                                real(llama, "rope.scaling.yarn_ext_factor", 0.5F);
                              },
                              ErrorCode::unsupported,
                              {"llama.rope.scaling.yarn_ext_factor must be 1"}},
                      Refusal{"YarnWithoutAFactor",
                              [](auto& llama) { text(llama, "rope.scaling.type", "yarn"); },
                              ErrorCode::bad_file,
                              {"llama.rope.scaling.factor is missing"}},
                      Refusal{"FactorsAndAScaling",
                              [](auto& llama) {
                                llama.tensors.emplace_back("rope_freqs.weight", std::vector<std::uint64_t>{8});
                                text(llama, "rope.scaling.type", "yarn");
                              },
                              ErrorCode::unsupported,
                              {"llama.rope.scaling.type", "rope_freqs.weight"}},
                      Refusal{"Longrope",
                              [](auto& llama) {
                                llama.tensors.emplace_back("rope_factors_long.weight", std::vector<std::uint64_t>{8});
                              },
                              ErrorCode::unsupported,
                              {"rope_factors_long.weight", "longrope"}},
                      Refusal{"HeadsTurnedInPart",
                              [](auto& llama) { llama.number("rope.dimension_count", 8); },
                              ErrorCode::unsupported,
                              {"llama.rope.dimension_count"}},
                      Refusal{"EndOfSequenceBeyondTheVocabulary",
                              [](auto& llama) {
                                llama.keys["tokenizer.ggml.eos_token_id"] = [](GgufWriter& to, const std::string& key) {
                                  to.add(key, std::uint32_t{4});
                                };
                              },
                              ErrorCode::bad_config,
                              {"tokenizer.ggml.eos_token_id"}},
                      Refusal{"NoEmbedding",
                              [](auto& llama) { llama.tensors.erase(llama.tensors.begin()); },
                              ErrorCode::bad_file,
                              {"token_embd.weight"}}),
    [](const auto& test) { return test.param.what; });

TEST(GgufWeights, HaveTheNamesOfHuggingFace) {
  const SmallLlama llama;
  const auto weights = GgufWeights::open(llama.open().value()).value();
  EXPECT_TRUE(weights->contains("model.layers.0.self_attn.q_proj.weight"));
  EXPECT_FALSE(weights->contains("model.layers.1.self_attn.q_proj.weight"));
  EXPECT_FALSE(weights->contains("model.layers.0.self_attn.q_proj.bias"));
  EXPECT_FALSE(weights->contains("blk.0.attn_q.weight"));
  const auto missing = weights->tensor("lm_head.weight", {4, kHidden});
  ASSERT_FALSE(missing);
  EXPECT_THAT(missing.error().message, HasSubstr("tensor \"output.weight\" is missing"));
}

TEST(GgufWeights, OfAnotherShapeAreRefused) {
  const SmallLlama llama;
  const auto weights = GgufWeights::open(llama.open().value()).value();
  const auto tensor = weights->tensor("model.layers.0.mlp.up_proj.weight", {40, kHidden});
  ASSERT_FALSE(tensor);
  EXPECT_EQ(tensor.error().code, ErrorCode::bad_file);
  EXPECT_THAT(tensor.error().message, HasSubstr("\"blk.0.ffn_up.weight\": shape [48, 32] does not fit"));
}

TEST(GgufWeights, OfMoreHeadsThanThereMayBeAreRefused) {
  for (const char* name : {"attention.head_count", "attention.head_count_kv"}) {
    for (const std::int64_t count : {std::int64_t{1} << 62, std::int64_t{0}, std::int64_t{-2}}) {
      SmallLlama llama;
      llama.set(name, [count](GgufWriter& to, const std::string& key) { to.add(key, count); });
      const auto weights = GgufWeights::open(llama.open().value());
      ASSERT_FALSE(weights) << count;
      EXPECT_EQ(weights.error().code, ErrorCode::bad_config);
      EXPECT_THAT(weights.error().message, HasSubstr("small.gguf: llama." + std::string(name) + " must be from 1"));
    }
  }
}

TEST(GgufWeights, ThatNobodyTookAreNamed) {
  SmallLlama llama;
  llama.tensors.emplace_back("blk.0.attn_sinks.weight", std::vector<std::uint64_t>{2});
  const auto file = llama.open().value();
  const auto spec = read_gguf_spec(*file).value();
  const auto weights = GgufWeights::open(file).value();
  ASSERT_TRUE(spec.build(*weights));
  const Status all = weights->check_all_used(spec);
  ASSERT_FALSE(all);
  EXPECT_THAT(all.error().message, HasSubstr("blk.0.attn_sinks.weight"));
}

}  // namespace
}  // namespace pagoda::io
