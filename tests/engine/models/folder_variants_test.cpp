// Tests folders as they are published: the tensors of the golden models under other names, with another
// tie_word_embeddings, and with tensors that a language model does not use. The logits stay those of the golden model.

#include <array>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "io/model_files/checkpoint.hpp"
#include "io/model_files/model_files.hpp"
#include "tests/engine/models/model_runner.hpp"
#include "tests/support/safetensors_file.hpp"
#include "tests/support/temporary_folder.hpp"

namespace pagoda::models {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::ModelRunner;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const fs::path kModels = PAGODA_SOURCE_DIR "/tests/data/models";

struct Tensor {
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::string bytes;
};
using Tensors = std::map<std::string, Tensor>;

Tensors tensors_of(const fs::path& folder) {
  const auto checkpoint = io::Checkpoint::open(folder).value();
  Tensors tensors;
  for (const auto& name : checkpoint->tensor_names()) {
    const auto stored = checkpoint->stored(name).value();
    tensors[name] = {std::string(stored.dtype),
                     {stored.shape.begin(), stored.shape.end()},
                     {reinterpret_cast<const char*>(stored.data.data()), stored.data.size()}};
  }
  return tensors;
}

std::string safetensors_of(const Tensors& tensors) {
  json header;
  std::string data;
  for (const auto& [name, tensor] : tensors) {
    const auto begin = data.size();
    data += tensor.bytes;
    header[name] = {{"dtype", tensor.dtype}, {"shape", tensor.shape}, {"data_offsets", {begin, data.size()}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return test::safetensors_file(text, 0) + data;
}

/// A copy of a golden model's folder whose config and tensors may be changed.
class Variant {
 public:
  explicit Variant(const std::string& model) : tensors(tensors_of(kModels / model)) {
    config = json::parse(std::ifstream(kModels / model / "config.json"));
  }

  json config;
  Tensors tensors;

  void rename(const std::function<std::string(std::string)>& rule) {
    Tensors renamed;
    for (auto& [name, tensor] : tensors) renamed[rule(name)] = std::move(tensor);
    tensors = std::move(renamed);
  }

  const fs::path& write() {
    folder_.write("config.json", config.dump());
    folder_.write("model.safetensors", safetensors_of(tensors));
    return folder_.path();
  }

  /// Writes the folder with two shards, the head in the second.
  const fs::path& write_sharded() {
    folder_.write("config.json", config.dump());
    std::array<Tensors, 2> shards;
    json map;
    for (const auto& [name, tensor] : tensors) {
      const bool is_head = name.starts_with("lm_head");
      shards.at(is_head ? 1 : 0)[name] = tensor;
      map[name] = is_head ? "b.safetensors" : "a.safetensors";
    }
    folder_.write("a.safetensors", safetensors_of(shards[0]));
    folder_.write("b.safetensors", safetensors_of(shards[1]));
    folder_.write("model.safetensors.index.json", json{{"weight_map", map}}.dump());
    return folder_.path();
  }

 private:
  test::TemporaryFolder folder_;
};

const TokenIds kPrompt = {3, 1, 4, 1, 5, 9, 2, 6};

ModelRunner::Rows logits_of(const fs::path& folder) {
  ModelRunner runner(folder);
  return runner.run(runner.add_sequence(), kPrompt);
}

std::vector<std::string> remarks_of(const fs::path& folder) {
  return io::open_model_files(folder).value()->remarks();
}

std::string load_error(const fs::path& folder) {
  const auto files = io::open_model_files(folder).value();
  const auto spec = files->spec();
  if (!spec) return spec.error().message;
  const auto weights = files->weights();
  if (!weights) return weights.error().message;
  const auto model = spec->build(**weights);
  if (!model) return model.error().message;
  const Status all = (*weights)->check_all_used(*spec);
  return all ? "" : all.error().message;
}

class UntiedModels : public ::testing::TestWithParam<const char*> {};
class TiedModels : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(OfEveryFamily, UntiedModels,
                         ::testing::Values("baichuan-7b-f32", "baichuan2-7b-bf16", "gpt2-relu-f32", "llama-gqa-bf16",
                                           "mistral-window-f32", "phi3-gqa-f32", "qwen2-untied-bf16",
                                           "qwen3-untied-bf16"));
INSTANTIATE_TEST_SUITE_P(OfEveryFamily, TiedModels,
                         ::testing::Values("gpt2-tied-bf16", "llama-mqa-odd", "mistral-narrow-f32", "opt-pre-norm-f32",
                                           "phi3-window-bf16", "qwen2-gqa-f32", "qwen3-gqa-f32"));

TEST_P(UntiedModels, UseTheirOwnHeadAlthoughTheConfigTiesIt) {
  const auto expected = logits_of(kModels / GetParam());
  for (const bool sharded : {false, true}) {
    Variant variant(GetParam());
    variant.config["tie_word_embeddings"] = true;
    const auto& folder = sharded ? variant.write_sharded() : variant.write();
    EXPECT_EQ(logits_of(folder), expected) << (sharded ? "sharded" : "one file");
    EXPECT_THAT(remarks_of(folder), ElementsAre(HasSubstr("the weights have another lm_head")));
    EXPECT_FALSE(io::open_model_files(folder).value()->spec().value().tie_word_embeddings);
  }
}

TEST_P(TiedModels, UseTheEmbeddingAlthoughTheConfigDoesNotTieIt) {
  Variant variant(GetParam());
  variant.config["tie_word_embeddings"] = false;
  const auto& folder = variant.write();
  EXPECT_EQ(logits_of(folder), logits_of(kModels / GetParam()));
  EXPECT_THAT(remarks_of(folder), ElementsAre(HasSubstr("the weights have no lm_head")));
}

std::string embedding_of(const Tensors& tensors) {
  for (const char* name :
       {"model.embed_tokens.weight", "transformer.wte.weight", "model.decoder.embed_tokens.weight"}) {
    if (tensors.contains(name)) return name;
  }
  ADD_FAILURE() << "no embedding";
  return {};
}

TEST_P(TiedModels, ShareACopyOfTheEmbedding) {
  Variant variant(GetParam());
  variant.tensors["lm_head.weight"] = variant.tensors.at(embedding_of(variant.tensors));
  const auto& folder = variant.write();
  EXPECT_TRUE(io::open_model_files(folder).value()->spec().value().tie_word_embeddings);
  EXPECT_THAT(remarks_of(folder), IsEmpty());
  EXPECT_EQ(logits_of(folder), logits_of(kModels / GetParam()));
}

TEST_P(TiedModels, TakeTheEmbeddingFromAHeadThatIsThereAlone) {
  Variant variant(GetParam());
  const auto embedding = embedding_of(variant.tensors);
  variant.tensors["lm_head.weight"] = variant.tensors.at(embedding);
  variant.tensors.erase(embedding);
  EXPECT_EQ(logits_of(variant.write()), logits_of(kModels / GetParam()));
  EXPECT_EQ(load_error(variant.write()), "");
}

TEST(FolderVariants, UseAQuantisedHeadAlthoughTheConfigTiesIt) {
  Variant variant("llama-gqa-bf16");
  const auto shape = variant.tensors.at("lm_head.weight").shape;
  std::string numbers(static_cast<std::size_t>(shape[0] * shape[1]), '\0');
  for (std::size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<char>(static_cast<int>(i * 37 % 255) - 127);
  std::string scales;
  for (std::int64_t row = 0; row < shape[0]; ++row) scales += std::string("\0\0\0\74", 4);  // 1/128
  variant.tensors["lm_head.weight"] = {"I8", shape, numbers};
  variant.tensors["lm_head.weight_scale"] = {"F32", {shape[0], 1}, scales};
  variant.config["quantization_config"] = json::parse(R"({"quant_method": "compressed-tensors",
      "format": "int-quantized", "config_groups": {"group_0": {"targets": ["re:.*lm_head"],
      "weights": {"num_bits": 8, "type": "int", "strategy": "channel", "symmetric": true}}}})");
  variant.config["tie_word_embeddings"] = false;
  const auto expected = logits_of(variant.write());
  EXPECT_NE(expected, logits_of(kModels / "llama-gqa-bf16"));
  variant.config["tie_word_embeddings"] = true;
  EXPECT_EQ(logits_of(variant.write()), expected);
  EXPECT_EQ(load_error(variant.write()), "");
}

TEST(FolderVariants, WithAHeadAloneThatIsNotTiedAreRefused) {
  Variant variant("llama-gqa-bf16");
  variant.tensors.erase("model.embed_tokens.weight");
  EXPECT_THAT(load_error(variant.write()), HasSubstr("lm_head.weight, and no embedding"));
}

TEST(FolderVariants, MayHavePrefixesInFrontOfTheTensorsNames) {
  const std::vector<std::pair<const char*, std::function<std::string(std::string)>>> rules{
      {"language_model.", [](const std::string& name) { return "language_model." + name; }},
      {"base_model.model.", [](const std::string& name) { return "base_model.model." + name; }},
      {"module.", [](const std::string& name) { return "module." + name; }},
      {"_orig_mod.module.", [](const std::string& name) { return "_orig_mod.module." + name; }},
      {"model.language_model.model.", [](const std::string& name) { return "model.language_model." + name; }},
      {"model.language_model.",
       [](std::string name) {
         return name.starts_with("model.") ? name.replace(0, 6, "model.language_model.") : name;
       }},
  };
  for (const char* model : {"llama-gqa-bf16", "qwen3-gqa-f32", "gpt2-tied-f32", "opt-pre-norm-f32"}) {
    const auto expected = logits_of(kModels / model);
    for (const auto& [prefix, rule] : rules) {
      Variant variant(model);
      variant.rename(rule);
      EXPECT_EQ(logits_of(variant.write()), expected) << model << " " << prefix;
    }
  }
}

TEST(FolderVariants, MayLackThePrefixOfTheBaseModel) {
  Variant variant("llama-mqa-odd");
  variant.rename([](std::string name) { return name.starts_with("model.") ? name.substr(6) : name; });
  EXPECT_EQ(logits_of(variant.write()), logits_of(kModels / "llama-mqa-odd"));
}

TEST(FolderVariants, WithTwoTensorsOfOneNameAreRefused) {
  Variant variant("llama-mqa-odd");
  variant.tensors["language_model.model.norm.weight"] = variant.tensors.at("model.norm.weight");
  EXPECT_THAT(load_error(variant.write()),
              AllOf(HasSubstr("\"language_model.model.norm.weight\""), HasSubstr("\"model.norm.weight\""),
                    HasSubstr("differ only in their prefixes")));
}

TEST(FolderVariants, LeaveOutTensorsThatALanguageModelHasNoUseFor) {
  Variant variant("llama-gqa-bf16");
  const Tensor small{"F32", {2}, std::string("\0\0\200\77\0\0\0\100", 8)};
  for (const char* name : {"v_head.summary.weight", "v_head.summary.bias", "score.weight", "vision_tower.patch.weight",
                           "model.visual.merger.weight", "model.layers.0.self_attn.rotary_emb.cos_cached"}) {
    variant.tensors[name] = small;
  }
  variant.tensors["model.layers.0.self_attn.q_proj.bias"] = {"F32", {2}, std::string(8, '\0')};
  const auto& folder = variant.write();
  EXPECT_EQ(load_error(folder), "");
  EXPECT_EQ(logits_of(folder), logits_of(kModels / "llama-gqa-bf16"));
  EXPECT_THAT(remarks_of(folder),
              ElementsAre(AllOf(HasSubstr("left out: model.visual.merger.weight, score.weight, "
                                          "v_head.summary.bias, v_head.summary.weight and 1 more"))));
}

TEST(FolderVariants, OfGemma3WithImagesAreItsTextPart) {
  const std::vector<std::function<std::string(std::string)>> rules{
      [](const std::string& name) { return "language_model." + name; },
      [](std::string name) { return name.starts_with("model.") ? name.replace(0, 6, "model.language_model.") : name; }};
  const Tensor small{"F32", {2}, std::string("\0\0\200\77\0\0\0\100", 8)};
  for (const char* model : {"gemma3-classic-f32", "gemma3-scaled-bf16"}) {
    for (const auto& rule : rules) {
      Variant variant(model);
      variant.rename(rule);
      for (const char* name : {"vision_tower.patch.weight", "model.multi_modal_projector.norm.weight"}) {
        variant.tensors[name] = small;
      }
      json text = variant.config;
      for (const char* key : {"architectures", "dtype", "torch_dtype", "bos_token_id", "eos_token_id"}) text.erase(key);
      variant.config["architectures"] = {"Gemma3ForConditionalGeneration"};
      for (const auto& [key, value] : text.items()) variant.config.erase(key);
      variant.config["text_config"] = text;
      variant.config["vision_config"] = {{"hidden_size", 2}};
      const auto& folder = variant.write();
      EXPECT_EQ(load_error(folder), "") << model;
      EXPECT_EQ(logits_of(folder), logits_of(kModels / model)) << model;
      EXPECT_THAT(remarks_of(folder), ElementsAre(HasSubstr("vision_tower.patch.weight")));
    }
  }
}

TEST(FolderVariants, WithTensorsThatMightMatterAreRefusedByTheNameInTheFile) {
  for (const char* name : {"lm_head.bias", "model.layers.0.self_attn.q_proj.bias", "model.layers.9.mlp.up_proj.weight",
                           "model.layers.0.self_attn.q_proj.lora_A.weight", "model.extra.weight"}) {
    Variant variant("llama-gqa-bf16");
    variant.rename([](const std::string& stored) { return "language_model." + stored; });
    const std::string stored = "language_model." + std::string(name);
    variant.tensors[stored] = {"F32", {2}, std::string("\0\0\200\77\0\0\0\100", 8)};
    EXPECT_THAT(load_error(variant.write()), HasSubstr("tensor \"" + stored + "\" is not used by ")) << name;
  }
}

}  // namespace
}  // namespace pagoda::models
