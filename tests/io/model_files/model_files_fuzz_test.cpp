// The fuzz targets of what a model's files are made of, on their seeds and on seeded mutations of them, without
// libFuzzer.

#include <filesystem>
#include <functional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "tests/io/fuzz/adapter_target.hpp"
#include "tests/io/fuzz/config_json_target.hpp"
#include "tests/io/fuzz/gguf_model_target.hpp"
#include "tests/io/fuzz/gguf_target.hpp"
#include "tests/io/fuzz/model_folder_target.hpp"
#include "tests/io/fuzz/mutations.hpp"
#include "tests/io/fuzz/quantized_folder_target.hpp"
#include "tests/io/fuzz/safetensors_target.hpp"
#include "tests/io/fuzz/sentencepiece_target.hpp"
#include "tests/io/fuzz/tokenizer_json_target.hpp"
#include "tests/io/fuzz/torch_file_target.hpp"

namespace pagoda::io {
namespace {

using Pieces = std::vector<std::string>;

struct Target {
  const char* name;
  void (*run)(std::string_view bytes);
  int mutations;                    ///< of each seed
  Pieces pieces;                    ///< that break things
  const char* goldens = nullptr;    ///< the folder of tests/data whose files are the seeds, unless corpus has them
  const char* extension = nullptr;  ///< of these files
};

std::vector<std::string> seeds_of(const Target& target) {
  if (target.goldens == nullptr) return testing::fuzz_seeds(target.name);
  const auto data = std::filesystem::path(PAGODA_SOURCE_DIR) / "tests" / "data";
  return testing::texts_of_files(data / target.goldens, target.extension);
}

void PrintTo(const Target& target, std::ostream* out) {
  *out << target.name;
}

const Pieces kJsonPieces{"null",
                         "true",
                         "-1",
                         "1e9",
                         "\"\"",
                         "{}",
                         "[]",
                         ",",
                         ":",
                         "[[",
                         "}}",
                         "\xff",
                         "\\u0000",
                         "4294967296",
                         "1.5e300",
                         "1e999",
                         "-0",
                         "\"a\"",
                         "9223372036854775808"};

Pieces operator+(Pieces pieces, const Pieces& more) {
  pieces.insert(pieces.end(), more.begin(), more.end());
  return pieces;
}

const std::vector<Target> kTargets{
    {"tokenizer_json", testing::try_tokenizer_json, 1000, kJsonPieces + Pieces{"\"type\"", "\"<0x41>\"", "\"Regex\""}},
    {"config_json", testing::try_config_json, 500,
     kJsonPieces + Pieces{"\"rope_scaling\"", "\"yarn\"", "\"head_dim\""}},
    {"model_folder", testing::try_model_folder, 200,
     kJsonPieces + Pieces{"\n=== ", "config.json", "\"F16\"", "[8,8]", "../x", "{%", "}}", "\n"}},
    {"quantized_folder", testing::try_quantized_folder, 150,
     kJsonPieces + Pieces{"\"F32\"", "\"I8\"", "[32,32]", "[0]", "\"group_size\"", "\n", "m.weight_scale"}},
    {"adapter_folder", testing::try_adapter_folder, 150,
     kJsonPieces + Pieces{"\"F32\"", "\"F64\"", "[2,6]", "[0]", ".lora_A.weight", "base_model.model.", "\"r\":", "512",
                          "(a+)+", "\"bias\":\"all\"", "\n=== ", "\"PREFIX_TUNING\"", "\"PROMPT_TUNING\"",
                          "prompt_embeddings", "\"num_virtual_tokens\":"}},
    {"gguf_adapter",
     testing::try_gguf_adapter,
     150,
     {"\n", "\x1f", " ", "-1", "4294967295", "\xff", "nan", "tensor ", ".lora_a", ".lora_b", "blk.0.attn_k.weight",
      "llama", " 0 8 2"}},
    {"gguf_model",
     testing::try_gguf_model,
     200,
     {"\n", "\x1f", "\x1e", " ", "-1", "4294967295", "\xff", "nan", "true", "tokenizer.ggml.", "<0x41>", " as ",
      " ai "}},
    {"sentencepiece",
     testing::try_sentencepiece,
     300,
     {"\xff\xff\xff\xff\x0f", std::string(4, '\0'), "\x1a\x02\x18\x01", "\xe2\x96\x81", "\n\x02\n\x00", "\x7f\xc0"}},
    {"safetensors", testing::try_safetensors, 1000,
     kJsonPieces +
         Pieces{"\"F32\"", "\"F4\"", "\"shape\"", "\"data_offsets\"", "[0,4]", "__metadata__", std::string(8, '\xff')}},
    {"gguf", testing::try_gguf, 100,
     Pieces{"GGUF", std::string(8, '\xff'), std::string(8, '\0'), "general.alignment", std::string("\x09\0\0\0", 4),
            std::string("\x08\0\0\0", 4), "\x7f\xff\xff\xff"},
     "gguf", ".gguf"},
    {"torch_file", testing::try_torch_file, 300,
     Pieces{"PK\x03\x04", "PK\x01\x02", "PK\x05\x06", "\x80\x02", "ctorch\nFloatStorage\n", "cos\nsystem\n", "R.", "Q",
            "(t", std::string(4, '\xff'), std::string(4, '\0')},
     "torch", ".bin"},
};

class ModelFilesFuzzing : public ::testing::TestWithParam<Target> {};

TEST_P(ModelFilesFuzzing, SurvivesTheSeeds) {
  const auto seeds = seeds_of(GetParam());
  ASSERT_GE(seeds.size(), 4U);
  for (const std::string& seed : seeds) GetParam().run(seed);
}

TEST_P(ModelFilesFuzzing, SurvivesMutationsOfTheSeeds) {
  std::mt19937 rng(1);
  for (const std::string& seed : seeds_of(GetParam())) {
    for (int i = 0; i < GetParam().mutations; ++i) GetParam().run(testing::mutated(seed, GetParam().pieces, rng));
  }
}

TEST_P(ModelFilesFuzzing, SurvivesCutsOfASeed) {
  const std::string seed = seeds_of(GetParam()).front();
  const std::size_t step = 1 + seed.size() / 1500;
  for (std::size_t size = 0; size < seed.size(); size += step) GetParam().run(std::string_view(seed).substr(0, size));
}

INSTANTIATE_TEST_SUITE_P(Targets, ModelFilesFuzzing, ::testing::ValuesIn(kTargets),
                         [](const auto& target) { return std::string(target.param.name); });

}  // namespace
}  // namespace pagoda::io
