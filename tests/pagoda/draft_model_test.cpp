// Drafts of a draft model on devices: a runner of two models, given steps by hand. A model that is its own draft model
// makes only right drafts, if each of them reads what it should. Also which draft models a plan refuses.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <ostream>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "pagoda/engine.hpp"
#include "pagoda/engine_parts.hpp"
#include "tests/pagoda/golden_model.hpp"
#include "tests/support/cuda_emulator/emulated_device.hpp"
#include "tests/support/instruction_sets.hpp"
#include "tests/support/split_memory_device.hpp"

namespace pagoda::draft_models {
namespace {

using test::kGoldenModels;
using test::ServableModel;
using testing::HasSubstr;

constexpr std::int32_t kBlockSize = 4;
constexpr double kSampled = 0.8;
constexpr std::int32_t kRows = 2;

enum class Where { cpu, split_memory, emulated_cuda };

void PrintTo(Where where, std::ostream* out) {
  constexpr const char* kNames[] = {"cpu", "split_memory", "emulated_cuda"};
  *out << kNames[static_cast<int>(where)];
}

EngineConfig config_of(const ServableModel& model, const ServableModel& draft) {
  EngineConfig config;
  config.model = model.path();
  config.speculative_config.text = nlohmann::json{{"model", draft.path()}}.dump();
  config.threads = 1;
  config.max_num_seqs = 16;
  config.max_num_batched_tokens = 512;
  config.block_size = kBlockSize;
  config.kv_cache_dtype = "float32";  // as the goldens were computed
  config.cpu_isa = test::exact_isa();
  return config;
}

/// Rows of a device that has a model and a draft model, each with the prompt of a golden case and its known tokens.
class TwoModels {
 public:
  /// `temperature`: above 0 the samples need not be those of the golden cases.
  TwoModels(const std::string& model, const std::string& draft, Where where, double temperature = 0)
      : model_(model), draft_(draft), temperature_(temperature) {
    EngineConfig config = config_of(model_, draft_);
    num_groups_ = model_.layout(kBlockSize).num_groups();
    const auto longest = io::load_hf_config(kGoldenModels / model).value().max_position_embeddings;
    blocks_of_row_ = static_cast<std::int32_t>(longest) / kBlockSize;
    config.num_device_blocks = 2 * num_blocks();
    config.num_host_blocks = num_blocks();
    EngineSetup setup;
    if (where == Where::split_memory) {
      setup.device =
          std::make_shared<test::SplitMemoryDevice>(test::SplitMemoryDevice::Options{.isa = test::exact_isa()});
    } else if (where == Where::emulated_cuda) {
      auto device = cuda_emulator::create_emulated_cuda_device();
      if (!device) throw std::runtime_error(device.error().message);
      setup.device = *device;
    }
    if (setup.device != nullptr) {
      config.device = "cuda";
      config.cpu_isa.clear();
      config.enforce_eager = where == Where::emulated_cuda;  // where recording takes long
    }
    auto parts = load_engine_parts(config, setup);
    if (!parts) throw std::runtime_error(parts.error().message);
    factory_ = std::move(parts->replicas.at(0).ranks.at(0));
    cache_ = factory_.make_cache_engine().value();
    worker_ = factory_.make_worker().value();
    const auto cases = test::golden_cases(model);
    for (std::int32_t row = 0; row < kRows; ++row) {
      const auto& golden = cases.at(static_cast<std::size_t>(row) % cases.size());
      prompts_.push_back(golden.at("prompt_token_ids").get<TokenIds>());
      greedy_.push_back(golden.at("float32").at("greedy").at("token_ids").get<TokenIds>());
    }
    known_ = prompts_;
    for (BlockId block = 0; block < num_blocks(); ++block) blocks_.push_back(block);
  }
  ~TwoModels() { worker_.stream->synchronize(); }

  /// The drafts of a row in a step, and the number of tokens that the draft model reads before, from the last.
  struct Drafts {
    std::int32_t count = 0;
    std::int32_t num_inputs = 0;
  };

  /// Runs the rows from where they are, with these drafts. Returns how many drafts of each were right. All samples must
  /// be those of the golden case.
  std::vector<std::int32_t> run(const std::vector<Drafts>& drafts) {
    ExecuteStep step;
    step.step = ++last_step_;
    for (std::int32_t row = 0; row < std::ssize(drafts); ++row) {
      const auto index = static_cast<std::size_t>(row);
      if (last_step_ == 1) add_row(row, step);
      if (has_moved_ || last_step_ == 1) add_tables(row, step);
      const auto num_known = static_cast<std::int32_t>(known_[index].size());
      RowWork work{row, static_cast<SequenceId>(row + 1), num_computed_[index]};
      work.num_tokens = num_known - num_computed_[index] + drafts[index].count;
      work.num_samples = 1;
      work.num_drafts = drafts[index].count;
      work.num_draft_inputs = drafts[index].num_inputs;
      work.first_draft_input = work.num_draft_inputs == 0 ? 0 : num_known - work.num_draft_inputs;
      step.work.push_back(work);
    }
    has_moved_ = false;
    const StepResult result = execute(step);
    EXPECT_FALSE(result.error) << result.error->message;
    std::vector<std::int32_t> num_right;
    for (std::size_t row = 0; !result.error && row < drafts.size(); ++row) {
      EXPECT_EQ(result.rows[row].error(), nullptr);
      const Range samples = result.rows[row].samples();
      for (std::int32_t i = 0; i < samples.count; ++i) {
        const TokenId token = result.samples[static_cast<std::size_t>(samples.first + i)].token;
        if (temperature_ == 0) {
          EXPECT_EQ(token, greedy_[row].at(known_[row].size() - prompts_[row].size())) << "row " << row;
        }
        known_[row].push_back(token);
      }
      num_computed_[row] = static_cast<std::int32_t>(known_[row].size()) - 1;
      EXPECT_EQ(result.rows[row].num_computed_tokens, num_computed_[row]);
      num_right.push_back(samples.count - 1);
    }
    return num_right;
  }

  /// Moves all blocks to the host, from there to the other blocks of the device, and copies them back in another order.
  void move_blocks() {
    CachePlan plan;
    plan.step = ++last_step_;
    CachePlan copies;
    copies.step = ++last_step_;
    for (BlockId block = 0; block < num_blocks(); ++block) {
      plan.swap_out.push_back({block, block});
      plan.swap_in.push_back({block, num_blocks() + block});
      copies.copies.push_back({num_blocks() + block, num_blocks() - 1 - block});
    }
    worker_.stream->submit([&] {
      EXPECT_TRUE(cache_.memory->issue_swaps(*worker_.stream, plan));
      EXPECT_TRUE(cache_.memory->issue_copies(*worker_.stream, copies));
    });
    worker_.stream->synchronize();
    for (BlockId& block : blocks_) block = num_blocks() - 1 - block;
    has_moved_ = true;
  }

  std::int32_t num_known(std::size_t row) const { return static_cast<std::int32_t>(known_[row].size()); }

 private:
  void add_row(std::int32_t row, ExecuteStep& step) const {
    NewRow fresh;
    fresh.row = row;
    fresh.sequence = static_cast<SequenceId>(row + 1);
    fresh.spec.prompt = std::make_shared<const TokenIds>(prompts_[static_cast<std::size_t>(row)]);
    fresh.spec.sampling.temperature = temperature_;
    fresh.spec.seed = static_cast<std::uint64_t>(row);
    step.new_rows.push_back(fresh);
  }

  void add_tables(std::int32_t row, ExecuteStep& step) const {
    for (KvGroupId group = 0; group < num_groups_; ++group) {
      const auto first = static_cast<std::int32_t>(step.blocks.size());
      const auto begin = blocks_.begin() + std::ptrdiff_t{row * num_groups_ + group} * blocks_of_row_;
      step.blocks.insert(step.blocks.end(), begin, begin + blocks_of_row_);
      step.table_deltas.push_back({row, 0, {first, blocks_of_row_}, group});
    }
  }

  std::int32_t num_blocks() const { return kRows * blocks_of_row_ * num_groups_; }

  StepResult execute(const ExecuteStep& step) {
    execution::IssuedStep issued;
    worker_.stream->submit([&] { issued = worker_.runner->issue(*worker_.stream, step); });
    worker_.stream->synchronize();
    EXPECT_TRUE(worker_.stream->status()) << worker_.stream->status().error().message;
    return worker_.runner->collect(std::move(issued));
  }

  ServableModel model_;
  ServableModel draft_;
  double temperature_;
  std::int32_t num_groups_ = 0;
  std::int32_t blocks_of_row_ = 0;
  std::vector<BlockId> blocks_;  ///< of the rows and groups, blocks_of_row_ for each
  bool has_moved_ = false;       ///< whether blocks were moved since the last step
  actors::DeviceFactory factory_;
  actors::CacheParts cache_;
  actors::WorkerParts worker_;
  std::vector<TokenIds> prompts_;
  std::vector<TokenIds> greedy_;
  std::vector<TokenIds> known_;
  std::vector<std::int32_t> num_computed_ = std::vector<std::int32_t>(kRows);
  StepId last_step_ = 0;
};

std::vector<std::string> models_with_a_place_for_drafts() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kGoldenModels)) {
    if (!std::filesystem::exists(entry.path() / "golden.json")) continue;
    const auto spec = io::load_hf_config(entry.path());
    if (spec && !spec->kv_layout(1, DType::f32).groups.front().has_window()) {
      names.push_back(entry.path().filename().string());
    }
  }
  std::ranges::sort(names);
  return names;
}

class DraftsOfItself : public testing::TestWithParam<std::tuple<std::string, Where>> {};

TEST_P(DraftsOfItself, AreAllRightOnceItHasReadTheText) {
  const auto& [name, where] = GetParam();
  TwoModels models(name, name, where);
  using Counts = std::vector<std::int32_t>;
  EXPECT_EQ(models.run({{}, {}}), (Counts{0, 0})) << "prompts";
  // Reads all tokens but the last two of the first row, and those of the second row together with its drafts.
  const std::int32_t all = models.num_known(1);
  EXPECT_EQ(models.run({{0, models.num_known(0)}, {2, all}}), (Counts{0, 2}));
  // Behind right drafts two tokens are unread: the last draft and the sample. The rows differ in their runs.
  EXPECT_EQ(models.run({{4, 1}, {1, 2}}), (Counts{4, 1}));
  EXPECT_EQ(models.run({{1, 2}, {3, 2}}), (Counts{1, 3}));
  models.move_blocks();
  EXPECT_EQ(models.run({{0, 2}, {0, 0}}), (Counts{0, 0})) << "without drafts";
  EXPECT_EQ(models.run({{2, 1}, {2, 3}}), (Counts{2, 2}));
}

std::string test_name(const testing::TestParamInfo<DraftsOfItself::ParamType>& test) {
  std::string name = std::get<0>(test.param);
  std::ranges::replace(name, '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(OnCpu, DraftsOfItself,
                         testing::Combine(testing::ValuesIn(models_with_a_place_for_drafts()),
                                          testing::Values(Where::cpu)),
                         test_name);
INSTANTIATE_TEST_SUITE_P(OnSplitMemory, DraftsOfItself,
                         testing::Combine(testing::Values("llama-gqa-bf16", "gemma3-six-layers-f32", "gpt2-tied-f32",
                                                          "qwen3-gqa-f32"),
                                          testing::Values(Where::split_memory)),
                         test_name);
INSTANTIATE_TEST_SUITE_P(OnEmulatedCuda, DraftsOfItself,
                         testing::Combine(testing::Values("llama-mha-f32", "gemma3-classic-f32"),
                                          testing::Values(Where::emulated_cuda)),
                         test_name);

TEST(DraftModel, DrawsAsTheModelDoes) {
  for (const Where where : {Where::cpu, Where::split_memory}) {
    TwoModels models("llama-mha-f32", "llama-mha-f32", where, kSampled);
    using Counts = std::vector<std::int32_t>;
    models.run({{}, {}});
    EXPECT_EQ(models.run({{6, models.num_known(0)}, {6, models.num_known(1)}}), (Counts{6, 6}));
    EXPECT_EQ(models.run({{6, 2}, {6, 2}}), (Counts{6, 6}));
  }
}

class DraftsOfAnother : public testing::TestWithParam<std::tuple<std::string, std::string, Where>> {};

TEST_P(DraftsOfAnother, ChangeNoToken) {
  const auto& [name, draft, where] = GetParam();
  TwoModels models(name, draft, where);
  models.run({{}, {}});
  models.run({{3, models.num_known(0)}, {3, models.num_known(1)}});
  models.run({{1, 1}, {4, 1}});
  models.run({{2, 1}, {0, 0}});
  models.run({{2, 1}, {2, 2}});
}

/// The draft models are of other families. Their vocabularies are smaller, larger, or as large as the model's.
INSTANTIATE_TEST_SUITE_P(Pairs, DraftsOfAnother,
                         testing::Values(std::tuple("llama-mha-f32", "qwen2-gqa-f32", Where::cpu),
                                         std::tuple("qwen3-gqa-f32", "llama-gqa-bf16", Where::cpu),
                                         std::tuple("gemma3-classic-f32", "granite-gqa-f32", Where::cpu),
                                         std::tuple("gpt2-tied-f32", "mistral-window-f32", Where::cpu),
                                         std::tuple("llama-rope-linear-f32", "qwen2-gqa-f32", Where::cpu),
                                         std::tuple("llama-mha-f32", "gemma3-six-layers-f32", Where::split_memory),
                                         std::tuple("qwen2-gqa-f32", "llama-mha-f32", Where::emulated_cuda)));

/// Returns the error of a plan, or of the check of its tokens.
std::string error_of(const EngineConfig& config) {
  const auto device = create_device(config);
  const auto plan = plan_engine(config, **device);
  if (!plan) return plan.error().message;
  const Status same = check_draft_tokens(*plan);
  return same ? "" : same.error().message;
}

TEST(DraftModel, IsRefusedForReasonsThatAreNamed) {
  const ServableModel llama("llama-mha-f32");
  const ServableModel window("mistral-window-f32");
  const ServableModel short_one("opt-pre-norm-f32");
  EXPECT_EQ(error_of(config_of(llama, short_one)).find("speculative_config: the draft model: max_model_len is 256"), 0U)
      << error_of(config_of(llama, short_one));
  EngineConfig config = config_of(llama, short_one);
  config.max_model_len = 128;
  EXPECT_EQ(error_of(config), "");
  EXPECT_THAT(error_of(config_of(window, llama)), HasSubstr("all layers of the model have a window"));
  config = config_of(llama, llama);
  config.speculative_config.text = R"({"model":"/nowhere"})";
  EXPECT_THAT(error_of(config), HasSubstr("speculative_config: the draft model: /nowhere"));
  test::TemporaryFolder other;
  for (const auto& entry : std::filesystem::directory_iterator(kGoldenModels / "llama-mha-f32")) {
    std::filesystem::create_symlink(entry.path(), other.path() / entry.path().filename());
  }
  nlohmann::json vocab = nlohmann::json::object();
  for (int id = 0; id < 131; ++id) vocab[(id == 7 || id == 8 ? "u" : "t") + std::to_string(id)] = id;
  other.write(
      "tokenizer.json",
      nlohmann::json{{"model", {{"type", "BPE"}, {"vocab", vocab}, {"merges", nlohmann::json::array()}}}}.dump());
  config.speculative_config.text = nlohmann::json{{"model", other.path().string()}}.dump();
  EXPECT_THAT(error_of(config), HasSubstr(R"(for example token 8: "u8", in the model "t8")"));
}

TEST(DraftModel, ItsMemoryIsPlanned) {
  const ServableModel model("llama-mha-f32");
  const ServableModel draft("gemma3-six-layers-f32");
  EngineConfig config = config_of(model, draft);
  const auto device = create_device(config);
  const auto with = plan_engine(config, **device);
  ASSERT_TRUE(with) << with.error().message;
  config.speculative_config = {};
  const auto without = plan_engine(config, **device);
  ASSERT_TRUE(without) << without.error().message;
  const KvLayout of_draft = draft.layout(kBlockSize);
  EXPECT_EQ(with->layout.draft_bytes, with->draft->layout.num_groups() * with->draft->layout.block_bytes());
  EXPECT_EQ(with->layout.draft_bytes, of_draft.num_groups() * of_draft.block_bytes() * kBlockSize);
  EXPECT_EQ(with->memory.kv_bytes_per_block, without->memory.kv_bytes_per_block + with->layout.draft_bytes);
  EXPECT_EQ(with->memory.weight_bytes, without->memory.weight_bytes + with->draft->weight_bytes);
  EXPECT_GT(with->memory.activation_bytes, without->memory.activation_bytes);
  EXPECT_GT(with->memory.batch_bytes, without->memory.batch_bytes);
}

}  // namespace
}  // namespace pagoda::draft_models
