// Engines whose checkpoints hold 8-bit floats.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "io/model_files/file_text.hpp"
#include "kernels/dtype.hpp"
#include "pagoda/engine.hpp"
#include "pagoda/engine_plan.hpp"
#include "tests/pagoda/golden_model.hpp"
#include "tests/support/cuda_emulator/emulated_device.hpp"
#include "tests/support/safetensors_file.hpp"
#include "tests/support/split_memory_device.hpp"
#include "tests/support/temporary_folder.hpp"

namespace pagoda {
namespace {

using nlohmann::json;

/// Rows and columns that share a scale; 0 columns = a scale of each row.
struct ScaleBlock {
  std::int64_t rows = 1;
  std::int64_t columns = 0;
  std::int64_t scales = 0;  ///< of all projections
};

/// A safetensors file in which projections of layers are 8-bit floats, made of one of bfloat16.
std::string with_float8(const std::string& plain, const ScaleBlock& block) {
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, plain.data(), sizeof(header_bytes));
  const json header = json::parse(plain.substr(8, header_bytes));
  const char* const data = plain.data() + 8 + header_bytes;
  json made;
  std::string bytes;
  const auto add = [&](const std::string& name, const char* dtype, const json& shape, const auto& values) {
    const std::size_t begin = bytes.size();
    bytes.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(values[0]));
    made[name] = {{"dtype", dtype}, {"shape", shape}, {"data_offsets", {begin, bytes.size()}}};
    bytes.resize((bytes.size() + 7) / 8 * 8);
  };
  for (const auto& [name, tensor] : header.items()) {
    if (name == "__metadata__") continue;
    const auto begin = tensor["data_offsets"][0].get<std::size_t>();
    const auto end = tensor["data_offsets"][1].get<std::size_t>();
    std::vector<BFloat16> values((end - begin) / 2);
    std::memcpy(values.data(), data + begin, end - begin);
    if (name.find("_proj.") == name.npos) {
      add(name, "BF16", tensor["shape"], values);
      continue;
    }
    const auto rows = tensor["shape"][0].get<std::int64_t>();
    const auto columns = tensor["shape"][1].get<std::int64_t>();
    const std::int64_t width = block.columns == 0 ? columns : block.columns;
    const std::int64_t across = (columns + width - 1) / width;
    const std::int64_t down = (rows + block.rows - 1) / block.rows;
    std::vector<float> scales(static_cast<std::size_t>(down * across));
    const auto scale_of = [&](std::int64_t i) -> float& {
      return scales[static_cast<std::size_t>(i / columns / block.rows * across + i % columns / width)];
    };
    std::vector<Float8E4M3> floats;
    for (std::int64_t i = 0; i < rows * columns; ++i) {
      scale_of(i) = std::max(scale_of(i), std::abs(to_float(values[static_cast<std::size_t>(i)])) / 448.0F);
    }
    for (std::int64_t i = 0; i < rows * columns; ++i) {
      floats.push_back(to_fp8_e4m3(to_float(values[static_cast<std::size_t>(i)]) / scale_of(i)));
    }
    add(name, "F8_E4M3", tensor["shape"], floats);
    const json shape = {down, across};
    add(name + (block.columns == 0 ? "_scale" : "_scale_inv"), "F32", shape, scales);
  }
  std::string text = made.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  return test::safetensors_file(text, 0) + bytes;
}

class Float8EngineTest : public testing::TestWithParam<ScaleBlock> {
 protected:
  Float8EngineTest() {
    const std::filesystem::path plain = test::kGoldenModels / "llama-gqa-bf16";
    auto config = io::read_json_file(plain / "config.json", 1 << 20, ErrorCode::bad_config).value();
    config["quantization_config"] = {{"quant_method", "fp8"}, {"activation_scheme", "dynamic"}};
    if (GetParam().columns != 0) {
      config["quantization_config"]["weight_block_size"] = {GetParam().rows, GetParam().columns};
    }
    folder_.write("config.json", config.dump());
    test::write_tokenizer(folder_, config["vocab_size"]);
    std::ifstream file(plain / "model.safetensors", std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    folder_.write("model.safetensors", with_float8(bytes, GetParam()));
  }

  EngineConfig config(const char* device) const {
    EngineConfig config;
    config.model = folder_.path().string();
    config.threads = 1;
    config.max_num_seqs = 1;
    config.num_device_blocks = 100;
    config.num_host_blocks = 0;
    config.kv_cache_dtype = "float32";
    config.cpu_isa = "scalar";
    config.device = device;
    return config;
  }

  /// Tokens behind a prompt of so many.
  static SequenceResult run(const EngineConfig& config, std::shared_ptr<kernels::Device> device = nullptr,
                            TokenId prompt_len = 8) {
    const auto engine = Engine::create(config, {.device = std::move(device)});
    EXPECT_TRUE(engine) << engine.error().message;
    if (!engine) return {};
    GenerateRequest request;
    request.prompt_token_ids.emplace();
    for (TokenId i = 0; i < prompt_len; ++i) request.prompt_token_ids->push_back(1 + i * 31 % 190);
    request.sampling.logprobs = 0;
    request.sampling.max_tokens = 5;
    request.sampling.temperature = 0;
    request.sampling.ignore_eos = true;
    const auto result = (*engine)->generate(request);
    EXPECT_TRUE(result) << result.error().message;
    return result ? result->outputs.at(0) : SequenceResult{};
  }

  test::TemporaryFolder folder_;
};

TEST_P(Float8EngineTest, GivesTheTokensOfACpuOnAGpu) {
  const TokenIds on_cpu = run(config("cpu")).token_ids;
  ASSERT_EQ(on_cpu.size(), 5U);
  auto emulated = cuda_emulator::create_emulated_cuda_device();
  ASSERT_TRUE(emulated) << emulated.error().message;
  EXPECT_EQ(run(config("cuda"), *emulated).token_ids, on_cpu);
  EXPECT_EQ(run(config("cuda"), std::make_shared<test::SplitMemoryDevice>()).token_ids, on_cpu);
  // A prompt of more rows than go in float32.
  const SequenceResult of_cpu = run(config("cpu"), nullptr, 24);
  const SequenceResult of_gpu = run(config("cuda"), *emulated, 24);
  ASSERT_TRUE(of_cpu.logprobs && of_gpu.logprobs);
  EXPECT_EQ(of_gpu.token_ids.front(), of_cpu.token_ids.front());
  const double difference = of_gpu.logprobs->front().logprob - of_cpu.logprobs->front().logprob;
  EXPECT_NE(difference, 0) << "it went in float32, too";
  EXPECT_LT(std::abs(difference), 0.05);
}

TEST_P(Float8EngineTest, TheyTakeAByteOfAGpuAndTheirScales) {
  constexpr std::int64_t kWeights = 2 * (3 * 48 * 80 + 2 * 16 * 48 + 2 * 48 * 48);
  test::SplitMemoryDevice gpu;
  EngineConfig plain = config("cuda");
  plain.quantize = "none";
  const auto kept = plan_engine(config("cuda"), gpu);
  const auto dequantised = plan_engine(plain, gpu);
  ASSERT_TRUE(kept && dequantised);
  EXPECT_EQ(dequantised->memory.weight_bytes - kept->memory.weight_bytes, kWeights - 4 * GetParam().scales);
}

INSTANTIATE_TEST_SUITE_P(Scales, Float8EngineTest, testing::Values(ScaleBlock{1, 0, 672}, ScaleBlock{24, 32, 68}),
                         [](const auto& block) {
                           return block.param.columns == 0 ? std::string("of_rows") : std::string("of_blocks");
                         });

}  // namespace
}  // namespace pagoda
