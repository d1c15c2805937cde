#include "engine/adapters/adapter_table.hpp"

#include <cstdint>
#include <memory>
#include <new>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/reference/element.hpp"
#include "tests/engine/adapters/random_adapters.hpp"
#include "tests/support/cpu_device.hpp"

namespace pagoda::adapters {
namespace {

using testing::HasSubstr;

/// A table over a model of one linear layer. Paths are what the reader returns: see read().
class AdapterTableTest : public testing::Test {
 protected:
  AdapterTableTest() {
    modules_.add({.name = "layer",
                  .kind = layers::AdapterModule::Kind::linear,
                  .in_features = 64,
                  .out_features = 32,
                  .row_width = 32});
  }

  Result<Adapter> read(const std::string& path) {
    ++num_reads_;
    if (path == "no file") return fail(ErrorCode::io_failed, "there is no such file");
    if (path == "too large") throw std::bad_alloc();
    Adapter adapter;
    adapter.changes.push_back(test::RandomAdapters(1).change(modules_.all().front(), 4));
    if (path == "another model") adapter.changes.front().module = "other";
    adapter.fingerprint = fingerprint_;
    return adapter;
  }

  layers::AdapterModules modules_;
  int num_reads_ = 0;
  std::uint64_t fingerprint_ = 5;
  std::shared_ptr<kernels::Device> device_ = test::cpu_device();
  AdapterTable table_{[this](const std::string& path) { return read(path); }, modules_, *device_};
};

TEST_F(AdapterTableTest, ReadsAnAdapterOnceUntilItIsUnloaded) {
  const auto first = table_.load({1, "a", "file"});
  ASSERT_TRUE(first);
  EXPECT_EQ(table_.load({1, "a", "file"}).value(), *first);
  EXPECT_NE(table_.load({2, "b", "file"}).value(), *first);
  EXPECT_EQ(num_reads_, 2);
  const std::weak_ptr<const BoundAdapter> memory = *first;
  table_.unload(1);
  table_.unload(1);
  table_.unload(7);
  EXPECT_FALSE(memory.expired()) << "a row may still have it";
  EXPECT_FALSE(table_.load({1, "a", "file"})) << "a row of a request that has ended";
  EXPECT_FALSE(table_.load({7, "a", "file"}));
  EXPECT_EQ(num_reads_, 2);
}

TEST_F(AdapterTableTest, AnAdapterThatIsUnloadedWhileItLoadsStaysUnloaded) {
  AdapterTable* table = nullptr;
  AdapterTable unloads([&](const std::string& path) { return table->unload(1), read(path); }, modules_, *device_);
  table = &unloads;
  EXPECT_FALSE(unloads.load({1, "a", "file"}));
  EXPECT_FALSE(unloads.load({1, "a", "file"}));
  EXPECT_TRUE(unloads.load({2, "a", "file"}));
}

TEST_F(AdapterTableTest, KnowsWhichOfManyWereUnloadedInWhateverOrder) {
  std::set<AdapterId> unloaded;
  for (AdapterId i = 0; i < 400; ++i) {
    const AdapterId id = 1 + i * 7919 % 500;
    table_.unload(id);
    unloaded.insert(id);
  }
  for (AdapterId id = 1; id <= 502; ++id) {
    EXPECT_EQ(table_.load({id, "a", "file"}).has_value(), !unloaded.contains(id)) << id;
  }
  table_.unload(501);
  EXPECT_FALSE(table_.load({501, "a", "file"}));
}

TEST_F(AdapterTableTest, GivesBackTheMemoryOfAnAdapterThatNoRowHas) {
  std::weak_ptr<const BoundAdapter> memory = table_.load({1, "a", "file"}).value();
  EXPECT_FALSE(memory.expired());
  table_.unload(1);
  EXPECT_TRUE(memory.expired());
}

TEST_F(AdapterTableTest, ErrorsNameTheAdapterAndStay) {
  AdapterId id = 3;
  for (const std::string path : {"no file", "too large", "another model"}) {
    const int num_reads = num_reads_;
    for (int time = 0; time < 2; ++time) {
      const auto loaded = table_.load({id, "mine", path});
      ASSERT_FALSE(loaded) << path;
      EXPECT_EQ(loaded.error().code, ErrorCode::bad_adapter) << path;
      EXPECT_THAT(loaded.error().message, HasSubstr("\"mine\"")) << path;
    }
    EXPECT_EQ(num_reads_, num_reads + 1);
    EXPECT_TRUE(table_.load({++id, "mine", "file"})) << path;
    ++id;
  }
}

TEST_F(AdapterTableTest, RefusesFilesThatHaveChanged) {
  AdapterRef adapter{1, "a", "file"};
  adapter.facts = table_.load(adapter).value()->facts();
  EXPECT_EQ(adapter.facts, (AdapterFacts{.fingerprint = 5, .num_virtual_tokens = 0}));
  adapter.id = 2;
  EXPECT_TRUE(table_.load(adapter));
  fingerprint_ = 6;
  adapter.id = 3;
  const auto changed = table_.load(adapter);
  ASSERT_FALSE(changed);
  EXPECT_EQ(changed.error().code, ErrorCode::bad_adapter);
  EXPECT_THAT(changed.error().message, HasSubstr("files have changed"));
  EXPECT_TRUE(table_.load({4, "a", "file"})) << "it is loaded as a new one";
}

TEST_F(AdapterTableTest, ThreadsThatNeedAnAdapterAtOnceShareIt) {
  std::vector<SharedAdapter> loaded(8);
  std::vector<std::jthread> threads;
  for (auto& one : loaded) threads.emplace_back([&] { one = table_.load({1, "a", "file"}).value(); });
  threads.clear();
  for (const auto& one : loaded) EXPECT_EQ(one, loaded.front());
  EXPECT_EQ(num_reads_, 1);
}

TEST(Fingerprints, DifferWithEachPartOfAnAdapter) {
  const auto make = [](auto&& change_it) {
    Adapter adapter;
    ModuleChange change{.module = "layer", .lora = LoraChange{}, .weight = std::nullopt, .bias = std::nullopt};
    change.lora->a = test::matrix_of(1, 2, {1.0F, 2.0F});
    change.lora->b = test::matrix_of(2, 1, {3.0F, 4.0F});
    adapter.changes.push_back(std::move(change));
    change_it(adapter);
    return fingerprint_of(adapter);
  };
  std::set<std::uint64_t> all;
  const auto add = [&](auto&& change_it) { EXPECT_TRUE(all.insert(make(change_it)).second) << all.size(); };
  const std::uint64_t same = make([](Adapter&) {});
  EXPECT_EQ(make([](Adapter&) {}), same);
  EXPECT_NE(same, 0U);
  all.insert(same);
  add([](Adapter& a) { a.changes[0].module = "other"; });
  add([](Adapter& a) { a.changes[0].lora->scale = 2; });
  add([](Adapter& a) { a.changes[0].lora->a = test::matrix_of(1, 2, {2.0F, 1.0F}); });
  add([](Adapter& a) { a.changes[0].lora->a = test::matrix_of(2, 1, {1.0F, 2.0F}); });
  add([](Adapter& a) { std::swap(a.changes[0].lora->a, a.changes[0].lora->b); });
  add([](Adapter& a) { a.changes[0].lora->magnitude = a.changes[0].lora->b; });
  add([](Adapter& a) { a.changes[0].bias = a.changes[0].lora->b; });
  add([](Adapter& a) { a.changes[0].weight = a.changes[0].lora->b; });
  add([](Adapter& a) { a.changes.push_back(a.changes[0]); });
  add([](Adapter& a) { a.changes.clear(); });
  VirtualTokens tokens;
  tokens.rows = test::matrix_of(1, 2, {1.0F, 2.0F});
  add([&](Adapter& a) { a.prompt = tokens; });
  tokens.kind = VirtualTokens::Kind::prefix;
  add([&](Adapter& a) { a.prompt = tokens; });
}

TEST(RoundMatrices, GivesMatricesThe16BitType) {
  const auto make = [](float value) {
    Adapter adapter;
    ModuleChange change{.module = "layer", .lora = LoraChange{}, .weight = std::nullopt, .bias = std::nullopt};
    change.lora->a = test::matrix_of(1, 2, {1.0F, 1.001F});
    change.lora->b = test::matrix_of(2, 1, {-3.0F, value});
    adapter.changes.push_back(change);
    return adapter;
  };
  Adapter adapter = make(0.1F);
  ASSERT_TRUE(round_matrices(adapter, DType::bf16));
  const LoraChange& lora = *adapter.changes[0].lora;
  EXPECT_EQ(lora.a.dtype, DType::bf16);
  EXPECT_EQ(lora.a.data.size(), 4U);
  EXPECT_EQ(kernels::reference::load(lora.a.data.data(), DType::bf16, 1), 1.0F);
  EXPECT_EQ(kernels::reference::load(lora.b.data.data(), DType::bf16, 0), -3.0F);
  EXPECT_NEAR(kernels::reference::load(lora.b.data.data(), DType::bf16, 1), 0.1F, 0.0005F);
  EXPECT_EQ(largest_rank(adapter), 1);
  Adapter large = make(70000.0F);
  const auto refused = round_matrices(large, DType::f16);
  ASSERT_FALSE(refused);
  EXPECT_THAT(refused.error().message, HasSubstr("module layer"));
  EXPECT_TRUE(round_matrices(large, DType::bf16));
}

}  // namespace
}  // namespace pagoda::adapters
