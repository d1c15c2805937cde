#include "engine/weights/copy_store.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include <gtest/gtest.h>

namespace pagoda::weights {
namespace {

class CopyStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    kernels::CpuDeviceOptions options;
    options.num_threads = 1;
    auto device = kernels::create_cpu_device(options);
    ASSERT_TRUE(device) << device.error().message;
    device_ = std::move(*device);
  }

  /// A loaded model that made one copy of `bytes`, full of `value`. It lives as long as the returned object.
  struct Loaded {
    std::shared_ptr<CopyStore::ModelCopies> use;
    kernels::Buffer copy;
    bool was_made = false;
  };
  Loaded load(CopyStore& store, std::size_t model, std::size_t bytes, std::uint8_t value, const char* version = "1") {
    Loaded loaded;
    loaded.use = store.use(model, static_cast<std::int64_t>(bytes), version, device_);
    auto place = loaded.use->find("matrix", bytes, CopyKind::plain);
    if (!place) return loaded;
    loaded.was_made = place->is_filled;
    loaded.copy = std::move(place->memory);
    if (!loaded.was_made) loaded.copy.as<std::uint8_t>()[bytes - 1] = value;
    loaded.use->mark_complete();
    return loaded;
  }

  std::shared_ptr<kernels::Device> device_;
};

TEST_F(CopyStoreTest, KeepsTheCopiesOfAModelThatHasGone) {
  const auto store = std::make_shared<CopyStore>(1000, 1000);
  {
    const auto first = load(*store, 0, 300, 7);
    EXPECT_FALSE(first.was_made);
    EXPECT_EQ(store->kept_bytes(), 0);  // the copy is in use
  }
  EXPECT_EQ(store->kept_bytes(), 300);
  const auto second = load(*store, 0, 300, 8);
  EXPECT_TRUE(second.was_made);
  EXPECT_EQ(second.copy.as<std::uint8_t>()[299], 7);
  EXPECT_EQ(second.use->filled_bytes(), 300);
  EXPECT_EQ(store->kept_bytes(), 0);
}

TEST_F(CopyStoreTest, IsInUseAsLongAsACopyIs) {
  const auto store = std::make_shared<CopyStore>(1000, 1000);
  auto loaded = load(*store, 0, 300, 7);
  loaded.use.reset();
  EXPECT_EQ(store->kept_bytes(), 0);
  EXPECT_EQ(loaded.copy.as<std::uint8_t>()[299], 7);
  loaded.copy = {};
  EXPECT_EQ(store->kept_bytes(), 300);
}

TEST_F(CopyStoreTest, DropsWhatWasNotMadeToTheEnd) {
  const auto store = std::make_shared<CopyStore>(1000, 1000);
  store->use(0, 300, "1", device_)->find("matrix", 300, CopyKind::plain);
  EXPECT_EQ(store->kept_bytes(), 0);
  EXPECT_FALSE(load(*store, 0, 300, 7).was_made);
}

TEST_F(CopyStoreTest, DropsWhatWasMadeOfOtherFiles) {
  const auto store = std::make_shared<CopyStore>(1000, 1000);
  load(*store, 0, 300, 7);
  const auto other = load(*store, 0, 300, 8, "2");
  EXPECT_FALSE(other.was_made);
  EXPECT_EQ(other.copy.as<std::uint8_t>()[299], 8);
}

TEST_F(CopyStoreTest, LetsGoOfTheLeastRecentlyUsedWhereThereIsNoRoom) {
  const auto store = std::make_shared<CopyStore>(10'000, 700);
  for (const std::size_t model : {0U, 1U, 0U, 2U}) load(*store, model, 300, 1);
  EXPECT_EQ(store->kept_bytes(), 600);
  EXPECT_TRUE(load(*store, 0, 300, 2).was_made);
  EXPECT_FALSE(load(*store, 1, 300, 2).was_made);
}

TEST_F(CopyStoreTest, MakesRoomForModelsInUse) {
  const auto store = std::make_shared<CopyStore>(1000, 1000);
  load(*store, 0, 300, 1);
  load(*store, 1, 300, 1);
  const auto in_use = load(*store, 2, 600, 1);
  EXPECT_EQ(store->kept_bytes(), 300);  // that of model 1
  EXPECT_TRUE(load(*store, 1, 300, 2).was_made);
}

TEST_F(CopyStoreTest, HasNothingElseOnceTheCopiesAreMade) {
  const auto store = std::make_shared<CopyStore>(1000, 1000);
  const auto loaded = load(*store, 0, 300, 7);
  EXPECT_FALSE(loaded.use->find("another", 10, CopyKind::plain));
  EXPECT_FALSE(loaded.use->find("matrix", 200, CopyKind::plain));
}

TEST_F(CopyStoreTest, KeepsNothingWhereNothingMayStay) {
  const auto store = std::make_shared<CopyStore>(1000, 0);
  load(*store, 0, 300, 7);
  EXPECT_EQ(store->kept_bytes(), 0);
}

}  // namespace
}  // namespace pagoda::weights
