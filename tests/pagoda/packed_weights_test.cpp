// Engines whose packed weights are kept for the next start.

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/packed_cache/packed_cache.hpp"
#include "pagoda/engine.hpp"
#include "tests/pagoda/test_models.hpp"
#include "tests/support/temporary_folder.hpp"

namespace pagoda {
namespace {

namespace fs = std::filesystem;

class PackedWeights : public testing::Test {
 protected:
  /// Runs an engine from start to end, and returns what it writes.
  TokenIds run(const std::function<void(EngineConfig&)>& change = [](EngineConfig&) {}) const {
    EngineConfig config;
    config.model = model_.string();
    config.quantize = "int8";
    config.packed_cache = folder().string();
    config.packed_cache_min_mib = 0;
    config.threads = 2;
    config.max_num_seqs = 4;
    config.kv_cache_memory = 0.03125;
    change(config);
    const auto engine = Engine::create(config);
    EXPECT_TRUE(engine) << engine.error().message;
    if (!engine) return {};
    const auto result = (*engine)->generate(test::greedy_request("Once upon a time", 16));
    EXPECT_TRUE(result) << result.error().message;
    return result ? result->outputs.front().token_ids : TokenIds{};
  }

  fs::path folder() const { return temporary_.path() / "packed"; }
  std::vector<io::PackedCache::Entry> entries() const { return io::PackedCache::open(folder()).value()->list(); }

  /// Sets all integers in a file to zero, and its checksums to theirs.
  void blank(const fs::path& path) const {
    std::vector<std::pair<std::string, std::vector<std::byte>>> copies;
    io::PackedModel model;
    {
      const auto file = io::PackedFile::open(path).value();
      model = file.model();
      for (const auto& [name, bytes] : file.copies()) {
        const auto copy = file.find(name, bytes);
        copies.emplace_back(name, std::vector(copy.begin(), copy.end()));
        if (name.ends_with(" data")) std::ranges::fill(copies.back().second, std::byte{0});
      }
    }
    std::vector<io::PackedCopy> all;
    for (const auto& [name, bytes] : copies) all.push_back({name, bytes});
    ASSERT_TRUE(io::PackedCache::open(folder()).value()->write(model, all));
  }

  test::TemporaryFolder temporary_;
  fs::path model_ = test::demo_model();
};

TEST_F(PackedWeights, AreMadeOnceAndReadAtTheNextStart) {
  const TokenIds made = run();
  ASSERT_EQ(entries().size(), 1U);
  EXPECT_EQ(entries()[0].model, model_.string());
  EXPECT_EQ(run(), made);
  EXPECT_EQ(entries().size(), 1U);
  blank(entries()[0].file);
  EXPECT_NE(run(), made) << "they were made anew";
}

TEST_F(PackedWeights, OfOtherFormatsAndPartsOfAModelAreOthers) {
  run();
  run([](EngineConfig& config) { config.quantize = "int4"; });
  EXPECT_EQ(entries().size(), 2U);
  const auto ranks = [](EngineConfig& config) { config.tensor_parallel_size = 2; };
  const TokenIds made = run(ranks);
  EXPECT_EQ(entries().size(), 4U);
  EXPECT_EQ(run(ranks), made);
  run([](EngineConfig& config) { config.data_parallel_size = 2; });
  EXPECT_EQ(entries().size(), 4U) << "replicas have the same copies as one engine";
}

TEST_F(PackedWeights, OfFilesThatHaveChangedAreMadeAnew) {
  const fs::path copy = temporary_.path() / "model";
  fs::copy(model_, copy, fs::copy_options::recursive);
  model_ = copy;
  const TokenIds made = run();
  blank(entries().at(0).file);
  for (const auto& file : fs::directory_iterator(copy)) {
    if (file.path().extension() == ".safetensors") {
      fs::last_write_time(file, fs::last_write_time(file) + std::chrono::seconds(1));
    }
  }
  EXPECT_EQ(run(), made);
  EXPECT_EQ(entries().size(), 2U);
}

TEST_F(PackedWeights, AreNotKeptWhereNothingIsPackedOrNobodyWantsIt) {
  run([](EngineConfig& config) { config.quantize = "none"; });
  run([](EngineConfig& config) { config.packed_cache_min_mib = 64; });
  run([](EngineConfig& config) { config.packed_cache = "off"; });
  run([](EngineConfig& config) { config.load_format = "dummy"; });
  EXPECT_TRUE(entries().empty());
}

TEST_F(PackedWeights, InAFolderThatCannotBeUsedAreRefused) {
  temporary_.write("file", "");
  EngineConfig config;
  config.model = model_.string();
  config.quantize = "int8";
  config.packed_cache_min_mib = 0;
  config.packed_cache = (temporary_.path() / "file").string();
  const auto engine = Engine::create(config);
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().param, "packed_cache");
  EXPECT_THAT(engine.error().message, testing::HasSubstr(config.packed_cache));
}

}  // namespace
}  // namespace pagoda
