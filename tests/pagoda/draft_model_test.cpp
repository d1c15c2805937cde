// Drafts of a draft model on devices: a runner of two models, given steps by hand. A model that is its own draft model
// makes only right drafts, if each of them reads what it should. Also which draft models a plan refuses.

#include <algorithm>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/pagoda/drafting_rows.hpp"

namespace pagoda::draft_models {
namespace {

using test::DraftingRows;
using test::kGoldenModels;
using test::ServableModel;
using test::Where;
using testing::HasSubstr;

constexpr std::int32_t kBlockSize = 4;
constexpr double kSampled = 0.8;
constexpr std::size_t kRows = 2;

EngineConfig config_of(const ServableModel& model, const ServableModel& draft) {
  return test::drafting_config(model.path(), nlohmann::json{{"model", draft.path()}}.dump());
}

/// Rows with the prompts of golden cases.
class TwoModels {
 public:
  /// `temperature`: above 0 the samples need not be those of the golden cases.
  TwoModels(const std::string& model, const std::string& draft, Where where, double temperature = 0)
      : model_(model), draft_(draft), temperature_(temperature) {
    const auto cases = test::golden_cases(model);
    std::vector<TokenIds> prompts;
    for (std::size_t row = 0; row < kRows; ++row) {
      const auto& golden = cases.at(row % cases.size());
      prompts.push_back(golden.at("prompt_token_ids").get<TokenIds>());
      texts_.push_back(prompts.back());
      const auto greedy = golden.at("float32").at("greedy").at("token_ids").get<TokenIds>();
      texts_.back().insert(texts_.back().end(), greedy.begin(), greedy.end());
    }
    const auto longest = io::load_hf_config(kGoldenModels / model).value().max_position_embeddings;
    rows_.emplace(config_of(model_, draft_), prompts, static_cast<std::int32_t>(longest), where, temperature);
  }

  /// As DraftingRows::run. All samples must be those of the golden case.
  std::vector<std::int32_t> run(const std::vector<DraftingRows::Drafts>& drafts) {
    auto num_right = rows_->run(drafts);
    for (std::size_t row = 0; temperature_ == 0 && row < kRows; ++row) {
      const TokenIds& known = rows_->known(row);
      EXPECT_TRUE(std::equal(known.begin(), known.end(), texts_[row].begin())) << "row " << row;
    }
    return num_right;
  }
  void move_blocks() { rows_->move_blocks(); }
  std::int32_t num_known(std::size_t row) const { return rows_->num_known(row); }

 private:
  ServableModel model_;
  ServableModel draft_;
  double temperature_;
  std::vector<TokenIds> texts_;
  std::optional<DraftingRows> rows_;
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

class Replays : public testing::TestWithParam<Where> {};

/// The model's KV is in several groups. Of the three rows of a batch, padding makes four.
TEST_P(Replays, OfStepsWithDraftsAndOfTheDraftModelChangeNothing) {
  const ServableModel model("gemma3-six-layers-f32");
  const ServableModel draft("llama-mha-f32");
  EngineConfig config = config_of(model, draft);
  config.max_num_seqs = 4;
  config.max_num_batched_tokens = 16;
  constexpr std::int32_t kMaxLen = 64;
  const std::vector<TokenIds> prompts{{1, 2, 3, 4}, {5, 6, 7, 8, 9}, {10, 11, 12}};
  DraftingRows issued(config, prompts, kMaxLen, Where::cpu);
  DraftingRows replayed(config, prompts, kMaxLen, GetParam());
  struct Step {
    std::vector<DraftingRows::Drafts> drafts;
    int num_replays;  ///< runs of the draft model that read one token of each row, and the step
  };
  const Step steps[] = {{{{}, {}, {}}, 0},
                        {{{2, 5}, {3, 6}, {0, 0}}, 2 + 1},
                        {{{5, 1}, {0, 0}, {0, 0}}, 5 + 1},
                        {{{0, 0}, {3, 1}, {1, 6}}, 2 + 1},
                        {{{3, 1}, {3, 1}, {3, 2}}, 2 + 1},
                        {{{3, 1}, {3, 1}, {3, 1}}, 3 + 1},
                        {{{0, 0}, {0, 0}, {0, 0}}, 1}};
  for (const Step& step : steps) {
    const int before = replayed.num_replays();
    EXPECT_EQ(replayed.run(step.drafts), issued.run(step.drafts));
    if (GetParam() == Where::split_memory) {
      EXPECT_EQ(replayed.num_replays() - before, step.num_replays);
    }
    for (std::size_t row = 0; row < prompts.size(); ++row) {
      EXPECT_EQ(replayed.made(row), issued.made(row));
      EXPECT_EQ(replayed.known(row), issued.known(row));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, Replays, testing::Values(Where::split_memory, Where::recording_emulated_cuda));

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
