// Runs the adapters of tests/data/adapters in whole engines. The tokens and logprobs of a request are those of peft in
// every schedule, whatever else runs.

#include <algorithm>
#include <map>
#include <memory>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "pagoda/engine.hpp"
#include "tests/io/adapters/golden_adapters.hpp"
#include "tests/pagoda/golden_model.hpp"
#include "tests/support/cuda_emulator/emulated_device.hpp"
#include "tests/support/instruction_sets.hpp"
#include "tests/support/split_memory_device.hpp"

namespace pagoda::adapter_schedules {
namespace {

constexpr std::int32_t kBlockSize = 4;
constexpr std::int32_t kChunkTokens = 8;
constexpr std::int64_t kEmulatedTokens = 4;

/// Names of the golden adapters, by their base models.
std::map<std::string, std::vector<std::string>> adapters_by_base() {
  std::map<std::string, std::vector<std::string>> by_base;
  for (const std::string& name : test::golden_adapter_names()) {
    by_base[test::GoldenAdapter(name).json().at("base").get<std::string>()].push_back(name);
  }
  return by_base;
}

std::vector<std::string> bases() {
  std::vector<std::string> names;
  for (const auto& [base, adapters] : adapters_by_base()) names.push_back(base);
  return names;
}

enum class Where { cpu, split_memory, emulated_cuda, worker_process };

struct Schedule {
  const char* name;
  int depth = 2;
  std::int32_t max_tokens = 512;  ///< per step
  PreemptionPolicy preemption = PreemptionPolicy::automatic;
  bool scarce_blocks = false;
  std::int32_t max_loras = 8;  ///< there is one place more, for a prompt adapter
  std::int32_t max_cpu_loras = 8;
  Where where = Where::cpu;
  std::int32_t ranks = 1;
  std::int32_t stages = 1;
};

void PrintTo(const Schedule& schedule, std::ostream* out) {
  *out << schedule.name;
}

class AdapterSchedules : public testing::TestWithParam<std::tuple<std::string, Schedule>> {
 protected:
  const std::string& base() const { return std::get<0>(GetParam()); }
  const Schedule& schedule() const { return std::get<1>(GetParam()); }

  void SetUp() override {
    const auto decoder = io::load_hf_config(test::kGoldenModels / base()).value().decoder;
    if (decoder.num_layers() < schedule().stages) GTEST_SKIP() << "the model has fewer layers than there are stages";
    const auto heads = decoder.attention.num_heads;
    if (heads % schedule().ranks != 0) GTEST_SKIP() << "the ranks do not divide " << heads << " heads";
    // The length of a row, which DoRA needs, is not known to one rank.
    if (schedule().ranks > 1)
      std::erase_if(names_, [](const std::string& name) { return name.find("dora") != std::string::npos; });
    if (names_.empty()) GTEST_SKIP() << "DoRA only";
  }

  std::int64_t num_tokens(const nlohmann::json& greedy) const {
    const std::int64_t all = std::ssize(greedy.at("token_ids"));
    return schedule().where == Where::emulated_cuda ? std::min(all, kEmulatedTokens) : all;
  }

  std::int32_t most_virtual_tokens() const {
    std::int32_t most = 0;
    for (const std::string& name : names_) {
      const nlohmann::json golden = test::GoldenAdapter(name).json();
      if (golden.contains("virtual_tokens")) most = std::max<std::int32_t>(most, golden["virtual_tokens"]["shape"][0]);
    }
    return most;
  }

  std::unique_ptr<Engine> make_engine() const {
    EngineConfig config;
    config.model = model_.path();
    config.tensor_parallel_size = schedule().ranks;
    config.pipeline_parallel_size = schedule().stages;
    config.threads = std::max(2, config.num_ranks());
    config.max_num_seqs = 8;
    config.block_size = kBlockSize;
    const KvLayout layout = model_.layout(kBlockSize);
    config.num_device_blocks = schedule().scarce_blocks ? layout.peak_blocks(73 + most_virtual_tokens(), kChunkTokens) +
                                                              2 * layout.num_groups()
                                                        : 600;
    config.num_host_blocks = schedule().preemption == PreemptionPolicy::swap ? 600 : 0;
    config.preemption_mode = schedule().preemption;
    config.pipeline_depth = schedule().depth;
    config.max_num_batched_tokens = schedule().max_tokens;
    config.kv_cache_dtype = "float32";
    config.enable_lora = config.enable_prompt_adapter = true;
    config.max_loras = schedule().max_loras;
    config.max_cpu_loras = schedule().max_cpu_loras;
    config.max_lora_rank = 256;
    config.lora_dtype = "float32";
    for (const std::string& name : names_) {
      config.lora_modules += (config.lora_modules.empty() ? "" : ",") + name + "=" + test::GoldenAdapter(name).path();
    }
    EngineSetup setup;
    if (schedule().where == Where::split_memory) {
      setup.device =
          std::make_shared<test::SplitMemoryDevice>(test::SplitMemoryDevice::Options{.isa = test::exact_isa()});
    } else if (schedule().where == Where::emulated_cuda) {
      setup.device = cuda_emulator::create_emulated_cuda_device().value();
    } else {
      config.cpu_isa = test::exact_isa();
      config.worker_processes = schedule().where == Where::worker_process;
      setup.worker_command = {PAGODA_BINARY_DIR "/bin/pagoda", "worker"};
    }
    if (setup.device != nullptr) config.device = "cuda";
    auto engine = Engine::create(config, setup);
    EXPECT_TRUE(engine) << engine.error().message;
    return engine ? std::move(*engine) : nullptr;
  }

  /// A request, and what peft gave for it.
  struct Case {
    std::string name;
    GenerateRequest request;
    nlohmann::json greedy;
  };

  Case case_of(const std::string& adapter, const nlohmann::json& golden_case, bool with_adapter) const {
    Case made;
    made.greedy = golden_case.at(with_adapter ? "adapter" : "base").at("greedy");
    made.name = adapter + ", " + golden_case.at("name").get<std::string>() + (with_adapter ? "" : ", base model");
    made.request.prompt_token_ids = golden_case.at("prompt_token_ids").get<std::vector<std::int64_t>>();
    made.request.sampling.max_tokens = num_tokens(made.greedy);
    made.request.sampling.temperature = 0;
    made.request.sampling.ignore_eos = true;
    made.request.sampling.logprobs = 0;
    if (with_adapter) made.request.adapter = adapter;
    return made;
  }

  /// Every prompt of every adapter, with the adapter and without.
  std::vector<Case> cases() const {
    std::vector<Case> all;
    for (const std::string& name : names_) {
      const nlohmann::json golden = test::GoldenAdapter(name).json();
      for (const auto& golden_case : golden.at("cases")) {
        all.push_back(case_of(name, golden_case, true));
        all.push_back(case_of(name, golden_case, false));
      }
    }
    return all;
  }

  bool is_rounded() const {
    return schedule().where == Where::emulated_cuda && base().find("bf16") != std::string::npos;
  }

  void expect_golden(const RequestResult& result, const nlohmann::json& greedy) const {
    const SequenceResult& output = result.outputs.at(0);
    auto tokens = greedy.at("token_ids").get<TokenIds>();
    const auto logprobs = greedy.at("logprobs").get<std::vector<double>>();
    tokens.resize(static_cast<std::size_t>(num_tokens(greedy)));
    if (!is_rounded()) {
      EXPECT_EQ(output.token_ids, tokens);
    }
    ASSERT_EQ(output.token_ids.size(), tokens.size());
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      EXPECT_NEAR((*output.logprobs)[i].logprob, logprobs[i], is_rounded() ? 0.12 : 1e-3);
      if (output.token_ids[i] != tokens[i]) break;
    }
  }

  /// Returns the number of prompt tokens that came from the prefix cache.
  std::int64_t run_all(Engine& engine) const {
    std::vector<Case> all = cases();
    if (schedule().scarce_blocks) {
      // So many that they grow into each other's blocks.
      const std::vector<Case> again = all;
      all.insert(all.end(), again.begin(), again.end());
    }
    std::vector<GenerateRequest> requests;
    for (const Case& one : all) requests.push_back(one.request);
    const auto results = engine.generate(requests);
    std::int64_t cached_tokens = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      SCOPED_TRACE(all[i].name);
      EXPECT_TRUE(results[i]) << results[i].error().message;
      if (!results[i]) continue;
      expect_golden(*results[i], all[i].greedy);
      cached_tokens += results[i]->usage.cached_tokens;
    }
    return cached_tokens;
  }

  test::ServableModel model_{base()};
  std::vector<std::string> names_ = adapters_by_base().at(base());
};

TEST_P(AdapterSchedules, TokensAndLogprobsAreThoseOfPeft) {
  const auto engine = make_engine();
  ASSERT_NE(engine, nullptr);
  run_all(*engine);
  const std::int64_t cached_tokens = run_all(*engine);
  if (!schedule().scarce_blocks) {
    EXPECT_GT(cached_tokens, 0) << "nothing came from the prefix cache";
  }
  const EngineStats stats = engine->stats();
  EXPECT_EQ(stats.preemptions_swap_total > 0, schedule().preemption == PreemptionPolicy::swap);
  EXPECT_EQ(stats.preemptions_recompute_total > 0, schedule().preemption == PreemptionPolicy::recompute);
}

std::string test_name(const testing::TestParamInfo<AdapterSchedules::ParamType>& test) {
  return test::test_name(std::get<0>(test.param) + "_" + std::get<1>(test.param).name);
}

constexpr Schedule kSchedules[] = {
    {.name = "one_batch"},
    {.name = "two_ranks", .max_tokens = kChunkTokens, .ranks = 2},
    {.name = "four_ranks", .ranks = 4},
    {.name = "two_stages", .max_tokens = kChunkTokens, .stages = 2},
    {.name = "two_stages_of_two", .ranks = 2, .stages = 2},
    {.name = "chunked_prefill", .max_tokens = kChunkTokens},
    {.name = "swapped", .max_tokens = kChunkTokens, .preemption = PreemptionPolicy::swap, .scarce_blocks = true},
    {.name = "recomputed",
     .max_tokens = kChunkTokens,
     .preemption = PreemptionPolicy::recompute,
     .scarce_blocks = true},
    {.name = "two_adapters_at_a_time", .depth = 1, .max_loras = 1, .max_cpu_loras = 1},
    {.name = "worker_process", .where = Where::worker_process},
    {.name = "split_memory", .where = Where::split_memory},
};

INSTANTIATE_TEST_SUITE_P(Models, AdapterSchedules,
                         testing::Combine(testing::ValuesIn(bases()), testing::ValuesIn(kSchedules)), test_name);

constexpr Schedule kEmulated{.name = "emulated_cuda", .where = Where::emulated_cuda};

INSTANTIATE_TEST_SUITE_P(OnEmulatedCuda, AdapterSchedules,
                         testing::Combine(testing::Values("llama-mha-f32", "llama-gqa-bf16", "phi3-gqa-f32",
                                                          "gemma3-six-layers-f32"),
                                          testing::Values(kEmulated)),
                         test_name);

}  // namespace
}  // namespace pagoda::adapter_schedules
