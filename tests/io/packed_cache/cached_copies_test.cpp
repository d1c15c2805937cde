#include "io/packed_cache/cached_copies.hpp"

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/weights/copy_store.hpp"
#include "engine/weights/loaded_weights.hpp"
#include "tests/engine/weights/wave_weights.hpp"
#include "tests/support/temporary_folder.hpp"

namespace pagoda::io {
namespace {

namespace fs = std::filesystem;

const auto cache_cpu = kernels::create_cpu_device({2, "", "none"}).value();

class CachedCopiesTest : public ::testing::Test {
 protected:
  /// Loads a model of two matrices and a vector, and returns what its weights hold. The file is written at the end.
  std::vector<std::string> load(const weights::WeightSource& stored,
                                std::shared_ptr<weights::KeptCopies> kept = nullptr, bool is_complete = true,
                                std::int64_t min_bytes = 1) const {
    const auto copies = cached_copies(cache_, {"m", identity_}, min_bytes, cache_cpu, std::move(kept));
    weights::WeightPolicy policy = weights::weight_policy("bfloat16", quantize_);
    const weights::LoadedWeights loaded(stored, policy, cache_cpu, copies);
    std::vector<std::string> all;
    const auto add = [&](const void* data, std::int64_t bytes) {
      all.emplace_back(static_cast<const char*>(data), static_cast<std::size_t>(bytes));
    };
    for (const char* name : {"m", "lm_head"}) {
      const auto linear = loaded.linear(name, 40, 256).value();
      add(linear.quantized->matrix.data, linear.quantized->matrix.data_bytes());
      add(linear.quantized->matrix.scales, linear.quantized->matrix.scale_bytes());
    }
    const auto tensor = loaded.tensor("w", {7, 9}).value();
    add(tensor.data, 7 * 9 * 2);
    if (is_complete) copies->mark_complete();
    return all;
  }

  static test::WaveWeights other_weights() {
    test::WaveWeights others;
    for (const char* name : {"m.weight", "lm_head.weight"}) others.values(name).assign(40 * 256, 1.0F);
    return others;
  }

  fs::path file() const { return cache_->list().at(0).file; }

  test::TemporaryFolder folder_;
  std::shared_ptr<const PackedCache> cache_ = PackedCache::open(folder_.path() / "cache").value();
  test::WaveWeights waves_;
  std::string identity_ = "1";
  std::string quantize_ = "int8";
};

TEST_F(CachedCopiesTest, AreReadWhereTheyWereMadeBefore) {
  for (const char* quantize : {"int8", "int4"}) {
    quantize_ = identity_ = quantize;
    const auto made = load(waves_);
    EXPECT_EQ(load(waves_), made);
    EXPECT_EQ(load(other_weights()), made) << "they were made anew";
    identity_ = "other files";
    EXPECT_NE(load(other_weights()), made);
  }
}

TEST_F(CachedCopiesTest, AreNotKeptUnlessAllAreMade) {
  load(waves_, nullptr, false);
  EXPECT_TRUE(cache_->list().empty());
}

TEST_F(CachedCopiesTest, OfSmallModelsAreNotKept) {
  load(waves_, nullptr, true, 1 << 20);
  EXPECT_TRUE(cache_->list().empty());
}

TEST_F(CachedCopiesTest, HaveNoPlainWeights) {
  load(waves_);
  const auto packed = cache_->find({"m", identity_});
  ASSERT_TRUE(packed);
  std::vector<std::string> names;
  for (const auto& [name, bytes] : packed->copies()) names.push_back(name);
  EXPECT_THAT(names, ::testing::ElementsAre("quantized lm_head data", "quantized lm_head scales", "quantized m data",
                                            "quantized m scales"));
}

/// Changes one byte that is so far from the end of the file.
void flip_byte(const fs::path& file, std::streamoff from_end) {
  std::fstream bytes(file, std::ios::binary | std::ios::in | std::ios::out);
  bytes.seekg(-from_end, std::ios::end);
  const char flipped = static_cast<char>(bytes.get() ^ 1);
  bytes.seekp(-from_end, std::ios::end);
  bytes.put(flipped);
}

TEST_F(CachedCopiesTest, AreMadeAnewWhereTheFileIsDamaged) {
  const auto made = load(waves_);
  const auto size = static_cast<std::streamoff>(fs::file_size(file()));
  for (std::streamoff from_end = 1; from_end < size; from_end += 997) {
    flip_byte(file(), from_end);
    EXPECT_EQ(load(waves_), made) << from_end << " bytes from the end";
    EXPECT_EQ(load(other_weights()), made) << "the file was not written anew";
  }
  fs::resize_file(file(), 100);
  EXPECT_EQ(load(waves_), made);
  EXPECT_EQ(load(other_weights()), made);
}

TEST_F(CachedCopiesTest, FillMemoryThatOutlivesTheEngine) {
  const auto made = load(waves_);
  const auto store = std::make_shared<weights::CopyStore>(1 << 20, 1 << 20);
  EXPECT_EQ(load(other_weights(), store->use(0, 0, "1", cache_cpu)), made);
  EXPECT_GT(store->kept_bytes(), 0);
  fs::remove(file());
  EXPECT_EQ(load(other_weights(), store->use(0, 0, "1", cache_cpu)), made);
  EXPECT_TRUE(cache_->list().empty()) << "what was kept in memory is not written";
}

TEST_F(CachedCopiesTest, AreUsedWithoutAFileWhereItCannotBeWritten) {
  const auto made = load(waves_);
  fs::remove_all(folder_.path() / "cache");
  EXPECT_EQ(load(waves_), made);
  EXPECT_FALSE(fs::exists(folder_.path() / "cache"));
}

}  // namespace
}  // namespace pagoda::io
