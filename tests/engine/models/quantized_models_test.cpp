#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "io/model_files/file_text.hpp"
#include "tests/engine/models/model_runner.hpp"
#include "tests/support/temporary_folder.hpp"

namespace pagoda::test {
namespace {

const std::filesystem::path kData = std::string(PAGODA_SOURCE_DIR) + "/tests/data";

/// Makes llama-gqa-bf16 with the linear layers of its first decoder layer from tests/data/quantized, in a shard of
/// their own.
std::unique_ptr<const TemporaryFolder> quantized_llama(const std::string& format, const nlohmann::json& quantization) {
  const std::filesystem::path plain = kData / "models/llama-gqa-bf16";
  auto folder = std::make_unique<const TemporaryFolder>();
  std::filesystem::copy(plain / "model.safetensors", folder->path() / "plain.safetensors");
  std::filesystem::copy(kData / "quantized" / ("llama-" + format + ".safetensors"),
                        folder->path() / "linears.safetensors");
  auto config = io::read_json_file(plain / "config.json", 1 << 20, ErrorCode::bad_config).value();
  config["quantization_config"] = quantization;
  folder->write("config.json", config.dump());

  nlohmann::json shard_of = {{"model.embed_tokens.weight", "plain.safetensors"},
                             {"model.norm.weight", "plain.safetensors"},
                             {"lm_head.weight", "plain.safetensors"}};
  for (const std::string layer : {"model.layers.0.", "model.layers.1."}) {
    for (const char* norm : {"input_layernorm", "post_attention_layernorm"}) {
      shard_of[layer + norm + ".weight"] = "plain.safetensors";
    }
    for (const char* module : {"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
                               "mlp.gate_proj", "mlp.up_proj", "mlp.down_proj"}) {
      if (layer != "model.layers.0.") {
        shard_of[layer + module + ".weight"] = "plain.safetensors";
        continue;
      }
      const std::vector<std::string> parts =
          format == "compressed" ? std::vector<std::string>{"weight_packed", "weight_scale", "weight_shape"}
                                 : std::vector<std::string>{"qweight", "qzeros", "scales"};
      for (const auto& part : parts) shard_of[layer + module + "." + part] = "linears.safetensors";
      if (format == "gptq") shard_of[layer + module + ".g_idx"] = "linears.safetensors";
    }
  }
  folder->write("model.safetensors.index.json", nlohmann::json{{"weight_map", shard_of}}.dump());
  return folder;
}

double divergence(const std::vector<float>& of, const std::vector<float>& from) {
  double sum = 0.0;
  for (std::size_t i = 0; i < of.size(); ++i) {
    const auto token = static_cast<TokenId>(i);
    sum += std::exp(logprob(of, token)) * (logprob(of, token) - logprob(from, token));
  }
  return sum;
}

class QuantizedModels : public testing::TestWithParam<std::pair<const char*, const char*>> {};

TEST_P(QuantizedModels, ComputeAsTheirDequantisedWeightsDo) {
  const auto& [format, config] = GetParam();
  const auto folder = quantized_llama(format, nlohmann::json::parse(config));
  const auto run = [&](const std::string& quantize) {
    ModelRunner::Options options;
    options.dtype = "float32";
    options.quantize = quantize;
    ModelRunner runner(folder->path(), options);
    return runner.run(runner.add_sequence(), {1, 17, 42, 105, 3, 198, 77, 60});
  };
  const auto kept = run("auto");
  const auto dequantised = run("none");
  ASSERT_EQ(kept.size(), dequantised.size());
  double sum = 0.0;
  for (std::size_t row = 0; row < kept.size(); ++row) {
    const TokenId best = argmax(dequantised[row]);
    const double lost = logprob(dequantised[row], best) - logprob(dequantised[row], argmax(kept[row]));
    EXPECT_LT(lost, 0.05) << "row " << row << " has another best token, which was no close call";
    EXPECT_NE(kept[row], dequantised[row]) << "they are computed with in the same way";
    sum += divergence(dequantised[row], kept[row]);
  }
  // Kernels quantise the activations of integer weights; a wrong weight would give a thousand times this difference.
  EXPECT_LT(sum / static_cast<double>(kept.size()), 0.01);
}

INSTANTIATE_TEST_SUITE_P(Formats, QuantizedModels,
                         testing::Values(std::pair("awq", R"({"quant_method":"awq","bits":4,"group_size":16})"),
                                         std::pair("gptq", R"({"quant_method":"gptq","bits":4,"group_size":16})"),
                                         std::pair("compressed",
                                                   R"({"quant_method":"compressed-tensors","format":"pack-quantized",
                        "config_groups":{"group_0":{"weights":{"num_bits":4,"type":"int","strategy":"group"}}}})")),
                         [](const auto& named) { return std::string(named.param.first); });

}  // namespace
}  // namespace pagoda::test
