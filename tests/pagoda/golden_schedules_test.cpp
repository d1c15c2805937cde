// Every model folder under tests/data/models through the whole engine: whatever the schedule, the tokens and logprobs
// are those of Hugging Face transformers.

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <ostream>
#include <stdexcept>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "pagoda/engine.hpp"
#include "tests/pagoda/golden_model.hpp"
#include "tests/support/cuda_emulator/emulated_device.hpp"
#include "tests/support/instruction_sets.hpp"
#include "tests/support/split_memory_device.hpp"

namespace pagoda {
namespace {

using nlohmann::json;

using test::kGoldenModels;
using test::ServableModel;

std::vector<std::string> model_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kGoldenModels)) {
    if (std::filesystem::exists(entry.path() / "golden.json")) names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

constexpr std::int32_t kBlockSize = 4;
constexpr std::int32_t kChunkTokens = 8;

struct Schedule {
  const char* name;
  bool one_by_one = false;
  int depth = 2;
  std::int32_t max_tokens = 512;  ///< per step
  bool prefix_cache = true;
  PreemptionPolicy preemption = PreemptionPolicy::automatic;
  bool scarce_blocks = false;
  bool again = false;  ///< a second time, from the prefix cache
  const char* speculation = "";
  bool drafts_itself = false;  ///< whether the model is its own draft model
  const char* head = "";       ///< draft head of tests/data/eagle
};

void PrintTo(const Schedule& schedule, std::ostream* out) {
  *out << schedule.name;
}

constexpr Schedule kOneByOne{.name = "one_by_one", .one_by_one = true, .depth = 1, .prefix_cache = false};
constexpr Schedule kOneBatchDepth1{.name = "one_batch_depth_1", .depth = 1};
constexpr Schedule kOneBatch{.name = "one_batch_depth_2", .again = true};
constexpr Schedule kChunked{.name = "chunked_prefill", .max_tokens = kChunkTokens};
constexpr Schedule kSwapped{
    .name = "swapped", .max_tokens = kChunkTokens, .preemption = PreemptionPolicy::swap, .scarce_blocks = true};
constexpr Schedule kRecomputed{
    .name = "recomputed", .max_tokens = kChunkTokens, .preemption = PreemptionPolicy::recompute, .scarce_blocks = true};
/// One token that stood before is enough for drafts, so there are many wrong ones. The second time, earlier outputs
/// have the right ones.
constexpr Schedule kDrafted{
    .name = "drafted",
    .one_by_one = true,
    .again = true,
    .speculation = R"({"method":"suffix","suffix_decoding_max_tree_depth":1,"suffix_decoding_min_token_prob":0})"};
constexpr Schedule kDraftedInChunks{
    .name = "drafted_in_chunks",
    .max_tokens = kChunkTokens,
    .speculation = R"({"method":"ngram","prompt_lookup_min":1,"num_speculative_tokens":3})"};
/// Drafts run where they pay by measured times; of so small a model they seldom do (see draft_model_test.cpp).
constexpr Schedule kDraftedByItself{.name = "drafted_by_itself", .again = true, .drafts_itself = true};
constexpr Schedule kDraftedByItselfInChunks{
    .name = "drafted_by_itself_in_chunks", .one_by_one = true, .max_tokens = kChunkTokens, .drafts_itself = true};
constexpr Schedule kSwappedAndDraftedByItself{.name = "swapped_and_drafted_by_itself",
                                              .max_tokens = kChunkTokens,
                                              .preemption = PreemptionPolicy::swap,
                                              .scarce_blocks = true,
                                              .drafts_itself = true};
constexpr Schedule kSchedules[] = {kOneByOne, kOneBatchDepth1, kOneBatch, kChunked, kSwapped, kRecomputed};

constexpr Schedule kSchedulesWithDrafts[] = {kDrafted, kDraftedInChunks};

/// Where an engine runs.
enum class Where {
  cpu,
  rounding_cpu,
  split_memory,
  emulated_cuda,
  two_ranks,
  most_ranks,
  two_stages,
  three_stages,
  two_stages_of_two
};

void PrintTo(Where where, std::ostream* out) {
  constexpr const char* kNames[] = {"cpu",        "rounding_cpu", "split_memory", "emulated_cuda",    "two_ranks",
                                    "most_ranks", "two_stages",   "three_stages", "two_stages_of_two"};
  *out << kNames[static_cast<int>(where)];
}

class GoldenSchedules : public testing::TestWithParam<std::tuple<std::string, Schedule, Where>> {
 protected:
  const Schedule& schedule() const { return std::get<1>(GetParam()); }
  Where where() const { return std::get<2>(GetParam()); }
  void SetUp() override {
    if (where() == Where::rounding_cpu && test::rounding_isas().empty()) {
      GTEST_SKIP() << "this machine has no instruction set that rounds";
    }
    if (where() == Where::most_ranks && num_ranks() < 3) GTEST_SKIP() << "more ranks than 2 do not divide the heads";
    const models::DecoderConfig decoder = config_of_model();
    if (decoder.attention.num_heads % num_ranks() != 0) GTEST_SKIP() << "the ranks do not divide the heads";
    if (decoder.num_layers() < num_stages()) GTEST_SKIP() << "the model has fewer layers than there are stages";
  }

  models::DecoderConfig config_of_model() const {
    return io::load_hf_config(test::kGoldenModels / std::get<0>(GetParam())).value().decoder;
  }

  std::int32_t num_ranks() const {
    if (where() == Where::most_ranks) return static_cast<std::int32_t>(config_of_model().attention.num_heads);
    return where() == Where::two_ranks || where() == Where::two_stages_of_two ? 2 : 1;
  }
  std::int32_t num_stages() const {
    if (where() == Where::three_stages) return 3;
    return where() == Where::two_stages || where() == Where::two_stages_of_two ? 2 : 1;
  }

  /// Matrix products of bfloat16 weights round their other operand to bfloat16 too.
  bool is_rounded() const {
    const bool rounds = where() == Where::emulated_cuda || where() == Where::rounding_cpu;
    return rounds && std::get<0>(GetParam()).find("bf16") != std::string::npos;
  }

  /// The emulator is slow: the first tokens must do, but for those that it takes to run out of blocks.
  std::int64_t output_len(const json& golden_case) const {
    const std::int64_t all = std::ssize(golden_case.at("float32").at("greedy").at("token_ids"));
    if (where() != Where::emulated_cuda) return all;
    return std::min<std::int64_t>(all, schedule().scarce_blocks ? 24 : 8);
  }

  /// Blocks for the largest of the requests and a little more.
  std::int32_t scarce_blocks(const ServableModel& model) const {
    std::int64_t tokens = 0;
    for (const auto& golden_case : cases_) {
      tokens = std::max(tokens, std::ssize(golden_case.at("prompt_token_ids")) + output_len(golden_case));
    }
    const KvLayout layout = model.layout(kBlockSize);
    return layout.peak_blocks(static_cast<std::int32_t>(tokens) + 1, kChunkTokens) + 2 * layout.num_groups();
  }

  std::unique_ptr<Engine> engine_for(const ServableModel& model) const {
    EngineConfig config;
    config.model = model.path();
    config.tensor_parallel_size = num_ranks();
    config.pipeline_parallel_size = num_stages();
    config.threads = std::max(2, config.num_ranks());
    config.max_num_seqs = 8;
    config.block_size = kBlockSize;
    config.num_device_blocks = schedule().scarce_blocks ? scarce_blocks(model) : 600;
    config.num_host_blocks = schedule().preemption == PreemptionPolicy::swap ? 600 : 0;
    config.preemption_mode = schedule().preemption;
    config.pipeline_depth = schedule().depth;
    config.max_num_batched_tokens = schedule().max_tokens;
    config.enable_prefix_caching = schedule().prefix_cache;
    config.speculative_config.text = schedule().speculation;
    if (schedule().drafts_itself) config.speculative_config.text = json{{"model", model.path()}}.dump();
    if (const std::string head = schedule().head; !head.empty()) {
      config.speculative_config.text =
          json{{"method", "eagle3"}, {"model", PAGODA_SOURCE_DIR "/tests/data/eagle/" + head}}.dump();
    }
    config.kv_cache_dtype = "float32";  // as the goldens were computed
    EngineSetup setup;
    if (where() == Where::split_memory) {
      setup.device =
          std::make_shared<test::SplitMemoryDevice>(test::SplitMemoryDevice::Options{.isa = test::exact_isa()});
    } else if (where() == Where::emulated_cuda) {
      auto device = cuda_emulator::create_emulated_cuda_device();
      EXPECT_TRUE(device) << device.error().message;
      if (!device) return nullptr;
      setup.device = *device;
      config.enforce_eager = schedule().max_tokens > kChunkTokens;  // recording begins with the largest steps
    }
    if (setup.device != nullptr) {
      config.device = "cuda";
    } else {
      config.cpu_isa = where() == Where::rounding_cpu ? test::rounding_isas().back() : test::exact_isa();
    }
    auto engine = Engine::create(config, setup);
    EXPECT_TRUE(engine) << engine.error().message;
    return engine ? std::move(*engine) : nullptr;
  }

  GenerateRequest request_of(const json& golden_case, bool prompt_logprobs) const {
    GenerateRequest request;
    request.prompt_token_ids = golden_case.at("prompt_token_ids").get<std::vector<std::int64_t>>();
    request.sampling.max_tokens = output_len(golden_case);
    request.sampling.temperature = 0;
    request.sampling.ignore_eos = true;
    request.sampling.logprobs = 0;
    if (prompt_logprobs) request.sampling.prompt_logprobs = 0;
    return request;
  }

  void expect_golden(const RequestResult& result, const json& golden_case) const {
    const double tolerance = is_rounded() ? 0.12 : 1e-3;
    const auto& golden = golden_case.at("float32");
    const SequenceResult& output = result.outputs.at(0);
    auto tokens = golden.at("greedy").at("token_ids").get<TokenIds>();
    auto logprobs = golden.at("greedy").at("logprobs").get<std::vector<double>>();
    tokens.resize(static_cast<std::size_t>(output_len(golden_case)));
    logprobs.resize(tokens.size());
    if (!is_rounded()) {
      EXPECT_EQ(output.token_ids, tokens);
    }
    ASSERT_EQ(output.token_ids.size(), tokens.size());
    ASSERT_EQ(output.logprobs->size(), logprobs.size());
    for (std::size_t i = 0; i < logprobs.size(); ++i) {
      EXPECT_NEAR((*output.logprobs)[i].logprob, logprobs[i], tolerance);
      if (output.token_ids[i] != tokens[i]) break;  // two tokens nearly as likely: what follows is another text
    }
    if (!result.prompt_logprobs) return;
    const auto prompt = golden.at("prompt_logprobs").get<std::vector<double>>();
    ASSERT_EQ(result.prompt_logprobs->size(), prompt.size());
    for (std::size_t i = 0; i < prompt.size(); ++i) {
      EXPECT_NEAR((*result.prompt_logprobs)[i].logprob, prompt[i], tolerance) << "prompt position " << i + 1;
    }
  }

  /// Runs every case twice, with and without prompt logprobs; returns the prompt tokens that came from the prefix
  /// cache.
  std::int64_t run_all(Engine& engine) const {
    std::vector<GenerateRequest> requests;
    for (const bool prompt_logprobs : {true, false}) {
      for (const auto& golden_case : cases_) requests.push_back(request_of(golden_case, prompt_logprobs));
    }
    std::vector<Result<RequestResult>> results;
    if (schedule().one_by_one) {
      for (const auto& request : requests) results.push_back(engine.generate(request));
    } else {
      results = engine.generate(requests);
    }
    std::int64_t cached_tokens = 0;
    for (std::size_t i = 0; i < results.size(); ++i) {
      const auto& golden_case = cases_.at(i % cases_.size());
      SCOPED_TRACE(golden_case.at("name").get<std::string>());
      EXPECT_TRUE(results[i]) << results[i].error().message;
      if (!results[i]) continue;
      expect_golden(*results[i], golden_case);
      cached_tokens += results[i]->usage.cached_tokens;
    }
    return cached_tokens;
  }

  const json cases_ = test::golden_cases(std::get<0>(GetParam()));
};

TEST_P(GoldenSchedules, GivesTheTokensAndLogprobsOfTransformers) {
  const ServableModel model(std::get<0>(GetParam()));
  const auto engine = engine_for(model);
  ASSERT_TRUE(engine);
  run_all(*engine);
  if (schedule().again) {
    EXPECT_GT(run_all(*engine), 0) << "nothing came from the prefix cache";
  }
  const EngineStats stats = engine->stats();
  EXPECT_EQ(stats.preemptions_swap_total > 0, schedule().preemption == PreemptionPolicy::swap);
  EXPECT_EQ(stats.preemptions_recompute_total > 0, schedule().preemption == PreemptionPolicy::recompute);
}

std::string test_name(const testing::TestParamInfo<GoldenSchedules::ParamType>& test) {
  std::string name = std::get<0>(test.param) + "_" + std::get<1>(test.param).name;
  std::ranges::replace(name, '-', '_');
  return name;
}

/// One of each way to make weights, norms, positions and windows.
const std::string kModelsOfEachKind[] = {"baichuan-13b-f32",   "baichuan2-7b-bf16", "gpt2-tied-f32", "llama-gqa-bf16",
                                         "mistral-window-f32", "opt-pre-norm-f32",  "qwen3-gqa-f32"};

INSTANTIATE_TEST_SUITE_P(Models, GoldenSchedules,
                         testing::Combine(testing::ValuesIn(model_names()), testing::ValuesIn(kSchedules),
                                          testing::Values(Where::cpu)),
                         test_name);

INSTANTIATE_TEST_SUITE_P(WithDrafts, GoldenSchedules,
                         testing::Combine(testing::ValuesIn(model_names()), testing::ValuesIn(kSchedulesWithDrafts),
                                          testing::Values(Where::cpu)),
                         test_name);

const std::string kModelsThatDraft[] = {"baichuan2-7b-bf16",      "gemma3-six-layers-f32", "gpt2-tied-f32",
                                        "llama-gqa-bf16",         "opt-pre-norm-f32",      "qwen3-gqa-f32",
                                        "cohere2-four-layers-f32"};

INSTANTIATE_TEST_SUITE_P(WithDraftModels, GoldenSchedules,
                         testing::Combine(testing::ValuesIn(kModelsThatDraft),
                                          testing::Values(kDraftedByItself, kDraftedByItselfInChunks,
                                                          kSwappedAndDraftedByItself),
                                          testing::Values(Where::cpu)),
                         test_name);

INSTANTIATE_TEST_SUITE_P(WithDraftModelsOnSplitMemory, GoldenSchedules,
                         testing::Combine(testing::ValuesIn(kModelsThatDraft), testing::Values(kDraftedByItself),
                                          testing::Values(Where::split_memory)),
                         test_name);

/// Returns a schedule with a draft head.
constexpr Schedule with_head(const char* name, const char* head, std::int32_t max_tokens = 512,
                             PreemptionPolicy preemption = PreemptionPolicy::automatic) {
  return {.name = name,
          .max_tokens = max_tokens,
          .preemption = preemption,
          .scarce_blocks = preemption != PreemptionPolicy::automatic,
          .again = preemption == PreemptionPolicy::automatic,
          .head = head};
}

const GoldenSchedules::ParamType kWithHeads[] = {
    {"llama-sharded-bf16", with_head("with_head", "llama-gqa"), Where::cpu},
    {"llama-sharded-bf16", with_head("with_head_in_chunks", "llama-gqa", kChunkTokens), Where::cpu},
    {"llama-sharded-bf16", with_head("with_head_swapped", "llama-gqa", kChunkTokens, PreemptionPolicy::swap),
     Where::cpu},
    {"qwen3-gqa-f32", with_head("with_head", "speculators"), Where::cpu},
    {"qwen3-gqa-f32", with_head("with_head_recomputed", "speculators", kChunkTokens, PreemptionPolicy::recompute),
     Where::cpu},
    {"qwen3-gqa-f32", with_head("with_head_on_split_memory", "speculators"), Where::split_memory},
    {"llama-gqa-bf16", with_head("with_head", "bf16"), Where::cpu},
    {"gemma3-six-layers-f32", with_head("with_head", "fc-norm"), Where::cpu},
};

INSTANTIATE_TEST_SUITE_P(WithDraftHeads, GoldenSchedules, testing::ValuesIn(kWithHeads), test_name);

INSTANTIATE_TEST_SUITE_P(Rounding, GoldenSchedules,
                         testing::Combine(testing::Values("llama-gqa-bf16", "baichuan2-7b-bf16", "qwen3-untied-bf16"),
                                          testing::ValuesIn(kSchedules), testing::Values(Where::rounding_cpu)),
                         test_name);

INSTANTIATE_TEST_SUITE_P(OnTwoRanks, GoldenSchedules,
                         testing::Combine(testing::ValuesIn(model_names()), testing::ValuesIn(kSchedules),
                                          testing::Values(Where::two_ranks)),
                         test_name);

INSTANTIATE_TEST_SUITE_P(OnTwoRanksWithDrafts, GoldenSchedules,
                         testing::Combine(testing::ValuesIn(kModelsOfEachKind), testing::Values(kDrafted),
                                          testing::Values(Where::two_ranks)),
                         test_name);

INSTANTIATE_TEST_SUITE_P(OnMostRanks, GoldenSchedules,
                         testing::Combine(testing::ValuesIn(model_names()), testing::Values(kOneBatch, kSwapped),
                                          testing::Values(Where::most_ranks)),
                         test_name);

INSTANTIATE_TEST_SUITE_P(OnTwoStages, GoldenSchedules,
                         testing::Combine(testing::ValuesIn(model_names()), testing::ValuesIn(kSchedules),
                                          testing::Values(Where::two_stages)),
                         test_name);

INSTANTIATE_TEST_SUITE_P(OnThreeStages, GoldenSchedules,
                         testing::Combine(testing::ValuesIn(model_names()), testing::Values(kChunked, kSwapped),
                                          testing::Values(Where::three_stages)),
                         test_name);

INSTANTIATE_TEST_SUITE_P(OnTwoStagesOfTwo, GoldenSchedules,
                         testing::Combine(testing::ValuesIn(model_names()), testing::Values(kOneBatch, kRecomputed),
                                          testing::Values(Where::two_stages_of_two)),
                         test_name);

INSTANTIATE_TEST_SUITE_P(OnSplitMemory, GoldenSchedules,
                         testing::Combine(testing::ValuesIn(kModelsOfEachKind), testing::ValuesIn(kSchedules),
                                          testing::Values(Where::split_memory)),
                         test_name);

INSTANTIATE_TEST_SUITE_P(OnSplitMemoryWithDrafts, GoldenSchedules,
                         testing::Combine(testing::ValuesIn(kModelsOfEachKind), testing::Values(kDrafted),
                                          testing::Values(Where::split_memory)),
                         test_name);

/// One schedule for each model, float32 models but for one.
const GoldenSchedules::ParamType kOnEmulatedCuda[] = {
    {"llama-mha-f32", kOneBatch, Where::emulated_cuda},      {"gpt2-tied-f32", kOneBatchDepth1, Where::emulated_cuda},
    {"mistral-window-f32", kOneBatch, Where::emulated_cuda}, {"baichuan-13b-f32", kChunked, Where::emulated_cuda},
    {"llama-gqa-bf16", kChunked, Where::emulated_cuda},      {"opt-pre-norm-f32", kSwapped, Where::emulated_cuda},
    {"qwen3-gqa-f32", kRecomputed, Where::emulated_cuda},    {"llama-bias-f32", kDrafted, Where::emulated_cuda},
};

INSTANTIATE_TEST_SUITE_P(OnEmulatedCuda, GoldenSchedules, testing::ValuesIn(kOnEmulatedCuda), test_name);

/// The tokens of requests that are sampled in different ways, of float32 weights.
std::vector<TokenIds> sampled_tokens(const EngineSetup& setup) {
  const ServableModel model("llama-mha-f32");
  EngineConfig config;
  config.model = model.path();
  config.device = setup.device == nullptr ? "cpu" : "cuda";
  config.max_num_seqs = 8;
  config.max_num_batched_tokens = kChunkTokens;
  config.block_size = kBlockSize;
  config.num_device_blocks = 100;
  const auto engine = Engine::create(config, setup);
  if (!engine) throw std::runtime_error(engine.error().message);
  GenerateRequest plain;
  plain.prompt_token_ids = {5, 9, 5, 17, 40, 5, 9, 3, 60, 61};
  plain.sampling.max_tokens = 8;
  plain.sampling.temperature = 0;
  plain.sampling.ignore_eos = true;
  std::vector<GenerateRequest> requests(4, plain);
  requests[0].sampling.repetition_penalty = 1.5;
  requests[0].sampling.frequency_penalty = 0.4;
  requests[1].sampling.presence_penalty = 0.8;
  requests[1].sampling.logit_bias = {{7, 3.0}, {8, -100.0}};
  requests[2].sampling.use_beam_search = true;
  requests[2].sampling.n = 2;
  requests[2].sampling.best_of = 3;
  requests[3].sampling.temperature = 0.8;
  requests[3].sampling.top_k = 20;
  requests[3].sampling.top_p = 0.9;
  requests[3].sampling.seed = 11;
  requests[3].sampling.n = 2;
  std::vector<TokenIds> tokens;
  for (const auto& result : (*engine)->generate(requests)) {
    if (!result) throw std::runtime_error(result.error().message);
    for (const auto& output : result->outputs) tokens.push_back(output.token_ids);
  }
  return tokens;
}

TEST(EmulatedCuda, PenalisesBiasesSearchesAndDrawsAsTheCpu) {
  auto device = cuda_emulator::create_emulated_cuda_device();
  ASSERT_TRUE(device) << device.error().message;
  EXPECT_EQ(sampled_tokens({.device = *device}), sampled_tokens({}));
}

/// The output of one long request, and the most blocks that it was seen to hold. `num_blocks` are in the pool.
std::pair<TokenIds, std::int64_t> generate_long(const ServableModel& model, std::int32_t num_blocks, int depth) {
  EngineConfig config;
  config.model = model.path();
  config.threads = 1;
  config.max_num_seqs = 1;
  config.max_num_batched_tokens = 1;
  config.block_size = kBlockSize;
  config.num_device_blocks = num_blocks;
  config.num_host_blocks = 0;
  config.pipeline_depth = depth;
  const auto engine = Engine::create(config);
  if (!engine) throw std::runtime_error(engine.error().message);
  GenerateRequest request;
  request.prompt_token_ids = {3, 4, 5};
  request.sampling.max_tokens = 250;
  request.sampling.temperature = 0;
  request.sampling.ignore_eos = true;
  std::promise<RequestResult> done;
  const auto ticket = (*engine)->submit(request, [&](const RequestOutput& output) {
    if (output.done) done.set_value(*output.done);
  });
  EXPECT_TRUE(ticket) << ticket.error().message;
  auto result = done.get_future();
  std::int64_t most = 0;
  while (result.wait_for(std::chrono::milliseconds(1)) != std::future_status::ready) {
    most = std::max(most, (*engine)->stats().allocated_slots / kBlockSize);
  }
  const EngineStats stats = (*engine)->stats();
  EXPECT_EQ(stats.preemptions_recompute_total + stats.preemptions_swap_total, 0);
  return {result.get().outputs.at(0).token_ids, most};
}

TEST(SlidingWindow, BoundsTheBlocksThatASequenceHoldsHoweverMuchItGenerates) {
  for (const char* name : {"mistral-window-f32", "mistral-narrow-f32", "gemma3-six-layers-f32"}) {
    for (const int depth : {1, 2}) {
      SCOPED_TRACE(testing::Message() << name << " depth " << depth);
      const ServableModel model(name);
      const KvLayout layout = model.layout(kBlockSize);
      constexpr std::int32_t kAll = 64;  // blocks of all tokens
      std::int32_t bound = 0;
      for (const KvGroup& group : layout.groups) {
        bound += group.has_window() ? (group.window + kBlockSize - 1) / kBlockSize + 1 : kAll;
      }
      const auto [tokens, most] = generate_long(model, 2 * kAll * layout.num_groups(), depth);
      EXPECT_EQ(tokens.size(), 250U);
      EXPECT_LE(most, bound);
      EXPECT_LT(bound, kAll * layout.num_groups());
      EXPECT_EQ(generate_long(model, bound, depth).first, tokens) << "a pool of no more blocks";
    }
  }
}

TEST(RopeScaling, LetsMaxModelLenGoAsFarAsItReaches) {
  const ServableModel model("llama-rope-dynamic-f32");
  EngineConfig config;
  config.model = model.path();
  config.max_num_seqs = 1;
  config.num_device_blocks = 40;
  config.max_model_len = 513;
  const auto refused = Engine::create(config);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message, "max_model_len is 513, but the model has positions only up to 512");

  config.max_model_len = 512;
  const auto engine = Engine::create(config);
  ASSERT_TRUE(engine) << engine.error().message;
  GenerateRequest request;
  request.prompt_token_ids = {3, 4, 5};
  request.sampling.max_tokens = 400;
  request.sampling.ignore_eos = true;
  const auto result = (*engine)->generate(request);
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_EQ(result->outputs.at(0).token_ids.size(), 400U) << "256 positions without the scaling";
}

}  // namespace
}  // namespace pagoda
