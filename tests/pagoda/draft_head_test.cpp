// Drafts of an EAGLE-3 head: as another implementation computes them (tools/make_eagle_goldens.py), however the head
// reads a text. Also which heads a plan refuses.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/pagoda/drafting_rows.hpp"
#include "tests/support/temporary_folder.hpp"

namespace pagoda::draft_heads {
namespace {

using nlohmann::json;
using test::DraftingRows;
using test::ServableModel;
using test::Where;
using testing::HasSubstr;

const std::filesystem::path kHeads = PAGODA_SOURCE_DIR "/tests/data/eagle";
constexpr std::int32_t kMaxLen = 128;
constexpr std::int32_t kNumDrafts = 5;

std::string speculation_with(const std::filesystem::path& head) {
  return json{{"method", "eagle3"}, {"model", head.string()}}.dump();
}

json golden_of(const std::string& head) {
  return json::parse(std::ifstream(kHeads / head / "golden.json"));
}

/// Rows of the head's model, with the head.
class Rows {
 public:
  Rows(const std::string& head, std::vector<TokenIds> texts, Where where)
      : model_(golden_of(head).at("target").get<std::string>()),
        rows_(config(head), std::move(texts), kMaxLen, where) {}

  DraftingRows* operator->() { return &rows_; }

 private:
  EngineConfig config(const std::string& head) const {
    return test::drafting_config(model_.path(), speculation_with(kHeads / head));
  }

  ServableModel model_;
  DraftingRows rows_;
};

class GoldenHead : public testing::TestWithParam<std::tuple<std::string, Where>> {};

TEST_P(GoldenHead, DraftsAsTheReferenceDoes) {
  const auto& [head, where] = GetParam();
  const json golden = golden_of(head);
  std::vector<TokenIds> texts;
  for (const json& one : golden.at("cases")) {
    texts.push_back(one.at("tokens").get<TokenIds>());
    texts.back().pop_back();  // the last token is a sample, whose features the model has not computed
  }
  ASSERT_FALSE(texts.empty());
  Rows rows(head, texts, where);
  rows->run(std::vector<DraftingRows::Drafts>(texts.size()));
  for (std::size_t i = 0; i < texts.size(); ++i) {
    rows->replace_last(i, golden.at("cases")[i].at("tokens").get<TokenIds>().back());
  }
  std::vector<DraftingRows::Drafts> drafts;
  for (std::size_t i = 0; i < texts.size(); ++i) drafts.push_back({kNumDrafts, rows->num_known(i)});
  rows->run(drafts);
  for (std::size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(rows->made(i), golden.at("cases")[i].at("drafts").get<TokenIds>()) << "case " << i;
  }
}

/// Whatever it has read before, the head makes the drafts that it makes for a text that it reads at once.
TEST_P(GoldenHead, DraftsTheSameHoweverItReads) {
  const auto& [head, where] = GetParam();
  const json golden = golden_of(head);
  TokenIds text;
  for (const json& one : golden.at("cases")) {
    if (one.at("tokens").size() > text.size()) text = one.at("tokens").get<TokenIds>();
  }
  text.resize(std::min<std::size_t>(text.size(), 24));
  Rows rows(head, {text, TokenIds(text.begin(), text.begin() + 3)}, where);
  rows->run({{}, {}});
  std::int32_t read = rows->num_known(0);
  rows->run({{0, read}, {3, rows->num_known(1)}});
  for (const std::int32_t count : {1, 5, 2, 4}) {  // the KV of wrong drafts is written over
    const std::int32_t num_unread = rows->num_known(0) - read;
    read = rows->num_known(0);
    rows->run({{count, num_unread}, {0, 0}});
    if (count == 5) rows->move_blocks();
  }
  const TokenIds known = rows->known(0);
  rows->run({{kNumDrafts, rows->num_known(0) - read}, {2, rows->num_known(1)}});
  const std::vector<TokenIds> without_last{TokenIds(known.begin(), known.end() - 1)};
  Rows fresh(head, without_last, where);
  fresh->run({{}});
  fresh->replace_last(0, known.back());
  fresh->run({{kNumDrafts, fresh->num_known(0)}});
  EXPECT_EQ(rows->made(0), fresh->made(0));
}

/// Sequences that share blocks and go on differently read other tokens behind them.
TEST_P(GoldenHead, LeavesSharedBlocksAsTheyAre) {
  const auto& [head, where] = GetParam();
  constexpr std::int32_t kNumShared = 8;  // two blocks
  TokenIds text = golden_of(head).at("cases").back().at("tokens").get<TokenIds>();
  text.resize(kNumShared + 1);
  std::vector<TokenIds> texts;
  for (const TokenId next : {0, 1, 2, 3, 4, 5}) {
    texts.push_back(text);
    texts.back().back() = next;
  }
  Rows rows(head, texts, where);
  for (std::int32_t row = 1; row < std::ssize(texts); ++row) rows->share_blocks(row, 0, kNumShared / 4);
  rows->run(std::vector<DraftingRows::Drafts>(texts.size()));
  std::vector<std::int32_t> read;
  for (std::size_t row = 0; row < texts.size(); ++row) {
    std::vector<DraftingRows::Drafts> drafts(texts.size());
    read.push_back(rows->num_known(row));
    drafts[row] = {0, read.back()};
    rows->run(drafts);
  }
  std::vector<DraftingRows::Drafts> drafts;
  std::vector<DraftingRows::Drafts> drafts_of_fresh;
  for (std::size_t row = 0; row < texts.size(); ++row) {
    drafts.push_back({kNumDrafts, rows->num_known(row) - read[row]});
    drafts_of_fresh.push_back({kNumDrafts, rows->num_known(row)});
    texts[row] = rows->known(row);
    texts[row].pop_back();
  }
  Rows fresh(head, texts, where);
  fresh->run(std::vector<DraftingRows::Drafts>(texts.size()));
  for (std::size_t row = 0; row < texts.size(); ++row) fresh->replace_last(row, rows->known(row).back());
  rows->run(drafts);
  fresh->run(drafts_of_fresh);
  for (std::size_t row = 0; row < texts.size(); ++row) EXPECT_EQ(rows->made(row), fresh->made(row)) << "row " << row;
}

std::string test_name(const testing::TestParamInfo<GoldenHead::ParamType>& test) {
  std::string name = std::get<0>(test.param);
  std::ranges::replace(name, '-', '_');
  return name;
}

INSTANTIATE_TEST_SUITE_P(OnCpu, GoldenHead,
                         testing::Combine(testing::Values("llama-gqa", "speculators", "bf16", "norms", "fc-norm"),
                                          testing::Values(Where::cpu)),
                         test_name);
INSTANTIATE_TEST_SUITE_P(OnSplitMemory, GoldenHead,
                         testing::Combine(testing::Values("llama-gqa", "speculators"),
                                          testing::Values(Where::split_memory)),
                         test_name);
INSTANTIATE_TEST_SUITE_P(OnEmulatedCuda, GoldenHead,
                         testing::Combine(testing::Values("speculators"), testing::Values(Where::emulated_cuda)),
                         test_name);

/// Greedy texts of the demo model, with the head that comes with it.
TEST(DraftHead, OfTheDemoModelIsOftenRight) {
  const std::filesystem::path models = PAGODA_SOURCE_DIR "/examples/models";
  const json stories = json::parse(std::ifstream(test::kGoldenModels / "pagoda-stories" / "greedy.json"));
  std::vector<TokenIds> prompts;
  for (const json& story : stories) prompts.push_back(story.at("prompt_token_ids").get<TokenIds>());
  prompts.resize(std::min<std::size_t>(prompts.size(), 16));
  EngineConfig config =
      test::drafting_config((models / "pagoda-stories").string(), speculation_with(models / "pagoda-stories-eagle3"));
  const auto rows_of = [&](const std::vector<TokenIds>& texts) {
    return std::make_unique<DraftingRows>(config, texts, kMaxLen, Where::cpu);
  };
  const auto owned = rows_of(prompts);
  DraftingRows& rows = *owned;
  const std::size_t count = prompts.size();
  rows.run(std::vector<DraftingRows::Drafts>(count));
  std::vector<std::int32_t> read(count, 0);
  std::int32_t num_right = 0;
  constexpr std::int32_t kSteps = 10;
  constexpr std::int32_t kDraftsOfStep = 3;
  for (std::int32_t step = 0; step < kSteps; ++step) {
    std::vector<DraftingRows::Drafts> drafts;
    for (std::size_t row = 0; row < count; ++row) {
      const std::int32_t num_unread = rows.num_known(row) - std::exchange(read[row], rows.num_known(row));
      drafts.push_back({kDraftsOfStep, num_unread});
    }
    for (const std::int32_t right : rows.run(drafts)) num_right += right;
  }
  const double mean = static_cast<double>(num_right) / (kSteps * static_cast<double>(count));
  EXPECT_GT(mean, 1.2) << "of 3 drafts";

  // The head has read right drafts again: it makes the drafts that it makes for a text that it reads at once.
  std::vector<TokenIds> texts;
  std::vector<DraftingRows::Drafts> next;
  std::vector<DraftingRows::Drafts> next_of_fresh;
  for (std::size_t row = 0; row < count; ++row) {
    texts.push_back(rows.known(row));
    texts.back().pop_back();
    next.push_back({kDraftsOfStep, rows.num_known(row) - read[row]});
    next_of_fresh.push_back({kDraftsOfStep, rows.num_known(row)});
  }
  const auto fresh = rows_of(texts);
  fresh->run(std::vector<DraftingRows::Drafts>(count));
  for (std::size_t row = 0; row < count; ++row) fresh->replace_last(row, rows.known(row).back());
  fresh->run(next_of_fresh);
  rows.run(next);
  for (std::size_t row = 0; row < count; ++row) EXPECT_EQ(rows.made(row), fresh->made(row)) << "row " << row;
}

/// Returns the tokens of an engine of the demo model for requests of different kinds, and the number of their drafts.
std::pair<std::vector<TokenIds>, std::int64_t> stories_with(const std::string& speculation) {
  EngineConfig config = test::drafting_config(PAGODA_SOURCE_DIR "/examples/models/pagoda-stories", speculation);
  config.cpu_isa.clear();
  config.kv_cache_dtype = "auto";
  config.num_device_blocks = 300;  // fewer than all requests need
  const auto engine = Engine::create(config);
  if (!engine) throw std::runtime_error(engine.error().message);
  std::vector<GenerateRequest> requests;
  for (std::uint64_t seed = 0; seed < 8; ++seed) {
    GenerateRequest request;
    request.prompt = seed % 2 == 0 ? "Once upon a time" : "One day, a brave rabbit named Momo";
    request.sampling.max_tokens = 300;
    request.sampling.ignore_eos = true;
    request.sampling.temperature = seed % 3 == 0 ? 0 : 0.8;
    request.sampling.seed = static_cast<std::int64_t>(seed);
    request.sampling.n = seed == 4 ? 2 : 1;
    requests.push_back(request);
  }
  std::vector<TokenIds> tokens;
  std::int64_t num_drafts = 0;
  for (const auto& result : (*engine)->generate(requests)) {
    if (!result) throw std::runtime_error(result.error().message);
    for (const auto& output : result->outputs) tokens.push_back(output.token_ids);
    num_drafts += result->timing.draft_tokens;
  }
  return {tokens, num_drafts};
}

TEST(DraftHead, ChangesNoTokenOfAnEngine) {
  const auto plain = stories_with("");
  const auto drafted = stories_with(speculation_with(PAGODA_SOURCE_DIR "/examples/models/pagoda-stories-eagle3"));
  EXPECT_EQ(drafted.first, plain.first);
  EXPECT_EQ(plain.second, 0);
  EXPECT_GT(drafted.second, 0) << "from time to time the head is tried, however long it takes";
}

/// A copy of a head whose config a test changes.
class ChangedHead {
 public:
  explicit ChangedHead(const json& changes) {
    for (const auto& entry : std::filesystem::directory_iterator(kHeads / "llama-gqa")) {
      if (entry.path().filename() == "config.json") continue;
      std::filesystem::create_symlink(entry.path(), folder_.path() / entry.path().filename());
    }
    json config = json::parse(std::ifstream(kHeads / "llama-gqa" / "config.json"));
    config.merge_patch(changes);
    folder_.write("config.json", config.dump());
  }
  std::filesystem::path path() const { return folder_.path(); }

 private:
  test::TemporaryFolder folder_;
};

std::string error_of(const EngineConfig& config) {
  const auto device = create_device(config);
  const auto plan = plan_engine(config, **device);
  return plan ? "" : plan.error().message;
}

TEST(DraftHead, IsRefusedForReasonsThatAreNamed) {
  const ServableModel model(golden_of("llama-gqa").at("target").get<std::string>());
  const ServableModel other("qwen2-gqa-f32");
  const auto error_with = [&](const json& changes) {
    const ChangedHead head(changes);
    return error_of(test::drafting_config(model.path(), speculation_with(head.path())));
  };
  EXPECT_EQ(error_with(json::object()), "");
  EXPECT_THAT(error_with({{"num_hidden_layers", 2}}), HasSubstr("a draft head has 1 layer"));
  EXPECT_THAT(error_with({{"vocab_size", 999}}), HasSubstr("it is for a model with vocab_size 999"));
  EXPECT_THAT(error_with({{"target_hidden_size", 8}}), HasSubstr("it is for a model with hidden_size 8"));
  EXPECT_THAT(error_with({{"eagle_aux_hidden_state_layer_ids", {0, 1, 99}}}), HasSubstr("has layer 99"));
  EXPECT_THAT(error_with({{"eagle_aux_hidden_state_layer_ids", {1, 0, 1}}}), HasSubstr("must be in order"));
  EXPECT_THAT(error_with({{"draft_vocab_size", 3}}), HasSubstr("tensor \"d2t\" must be 3 numbers of type I64"));
  EXPECT_THAT(error_with({{"eagle_config", {{"use_aux_hidden_state", false}}}}), HasSubstr("EAGLE-1"));
  EXPECT_THAT(error_with({{"norm_before_fc", true}}), HasSubstr("\"input_norm.weight\" is missing"));

  const std::string head = (kHeads / "llama-gqa").string();
  EXPECT_THAT(error_of(test::drafting_config(model.path(), json{{"model", head}}.dump())),
              HasSubstr(R"(it is a draft head: add "method": "eagle3")"));
  EXPECT_THAT(error_of(test::drafting_config(model.path(), speculation_with(other.path()))),
              HasSubstr(R"(it is no draft head, but a Qwen2ForCausalLM: leave out "method": "eagle3")"));
  EXPECT_THAT(error_of(test::drafting_config(head, "")), HasSubstr("is a draft head, which makes drafts for another"));
}

TEST(DraftHead, DraftsNoTokenBeyondTheVocabulary) {
  const ServableModel model(golden_of("llama-gqa").at("target").get<std::string>());
  std::ifstream file(kHeads / "llama-gqa" / "model.safetensors", std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(file)), {});
  std::uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data(), sizeof(header_bytes));
  const json header = json::parse(bytes.substr(sizeof(header_bytes), header_bytes));
  const std::size_t first =
      sizeof(header_bytes) + header_bytes + header.at("d2t").at("data_offsets").at(0).get<std::size_t>();
  for (const std::int64_t distance : {std::int64_t{-1}, std::int64_t{149}, std::numeric_limits<std::int64_t>::max()}) {
    std::memcpy(bytes.data() + first, &distance, sizeof(distance));
    test::TemporaryFolder folder;
    std::filesystem::copy(kHeads / "llama-gqa" / "config.json", folder.path() / "config.json");
    folder.write("model.safetensors", bytes);
    EXPECT_THAT(error_of(test::drafting_config(model.path(), speculation_with(folder.path()))),
                HasSubstr("tensor \"d2t\" leads from token 0 out of the vocabulary"));
  }
}

TEST(DraftHead, ItsMemoryIsPlanned) {
  const ServableModel model(golden_of("llama-gqa").at("target").get<std::string>());
  EngineConfig config = test::drafting_config(model.path(), speculation_with(kHeads / "llama-gqa"));
  const auto device = create_device(config);
  const auto with = plan_engine(config, **device);
  ASSERT_TRUE(with) << with.error().message;
  config.speculative_config = {};
  const auto without = plan_engine(config, **device);
  ASSERT_TRUE(without) << without.error().message;
  const models::FeatureLayout features{with->draft->model.decoder.hidden_size, config.block_size};
  EXPECT_GE(with->layout.draft_bytes, with->draft->layout.block_bytes() + features.bytes());
  EXPECT_EQ(with->layout.block_bytes() % features.half_bytes(), 0) << "blocks are counted in halves";
  EXPECT_EQ(with->memory.weight_bytes, without->memory.weight_bytes + with->draft->weight_bytes);
  EXPECT_GT(with->memory.activation_bytes, without->memory.activation_bytes);
  EXPECT_GT(with->memory.batch_bytes, without->memory.batch_bytes);
}

}  // namespace
}  // namespace pagoda::draft_heads
