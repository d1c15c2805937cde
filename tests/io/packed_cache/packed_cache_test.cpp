#include "io/packed_cache/packed_cache.hpp"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_folder.hpp"

namespace pagoda::io {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::shared_ptr<const PackedCache> open(const fs::path& folder, std::int64_t max_bytes = 1 << 30) {
  auto cache = PackedCache::open(folder, max_bytes);
  EXPECT_TRUE(cache) << cache.error().message;
  return *cache;
}

std::vector<std::byte> bytes(std::size_t count, int value) {
  return std::vector<std::byte>(count, static_cast<std::byte>(value));
}

/// Writes a model with one copy of `count` bytes.
void write(const PackedCache& cache, const PackedModel& model, std::size_t count) {
  const auto data = bytes(count, 7);
  const Status written = cache.write(model, {{"a", data}});
  ASSERT_TRUE(written) << written.error().message;
}

std::vector<std::uint64_t> hashes(std::span<const std::byte> copy) {
  std::vector<std::uint64_t> chunks;
  for (; !copy.empty(); copy = copy.subspan(std::min(copy.size(), PackedFile::kChunkBytes))) {
    chunks.push_back(chunk_hash(copy.first(std::min(copy.size(), PackedFile::kChunkBytes))));
  }
  return chunks;
}

std::vector<std::string> models(const PackedCache& cache) {
  std::vector<std::string> names;
  for (const auto& entry : cache.list()) names.push_back(entry.model);
  return names;
}

void set_age(const fs::path& file, int hours) {
  fs::last_write_time(file, fs::file_time_type::clock::now() - std::chrono::hours(hours));
}

class PackedCacheTest : public ::testing::Test {
 protected:
  test::TemporaryFolder folder_;
  fs::path path_ = folder_.path() / "cache" / "packed";
};

TEST_F(PackedCacheTest, HasWhatAnotherProcessWrote) {
  const PackedModel model{"models/m", "files and formats"};
  const auto a = bytes(3 * PackedFile::kChunkBytes + 5, 1);
  const auto b = bytes(1, 2);
  ASSERT_TRUE(open(path_)->write(model, {{"a", a}, {"b", b}}));
  const auto file = open(path_)->find(model);
  ASSERT_TRUE(file);
  EXPECT_EQ(file->model().name, "models/m");
  for (const auto& [name, expected] : {std::pair{"a", a}, std::pair{"b", b}}) {
    const auto found = file->find(name, expected.size());
    ASSERT_EQ(std::vector(found.begin(), found.end()), expected);
    EXPECT_TRUE(file->has_hashes(name, hashes(found)));
  }
  EXPECT_FALSE(file->has_hashes("b", hashes(bytes(1, 3))));
  EXPECT_FALSE(file->has_hashes("c", hashes(b)));
  EXPECT_TRUE(file->find("a", 5).empty()) << "another size";
  EXPECT_TRUE(file->find("c", 1).empty());
  EXPECT_FALSE(open(path_)->find({"models/m", "other formats"}));
}

TEST_F(PackedCacheTest, CanBeReadAndWrittenByItsOwnerOnly) {
  const auto cache = open(path_);
  write(*cache, {"m", "1"}, 10);
  for (const fs::path& made : {path_, cache->list().at(0).file}) {
    EXPECT_EQ(fs::status(made).permissions() & (fs::perms::group_all | fs::perms::others_all), fs::perms::none) << made;
  }
}

TEST_F(PackedCacheTest, DoesNotReadWhatOthersMayHaveWritten) {
  const PackedModel model{"m", "1"};
  const auto cache = open(path_);
  write(*cache, model, 10);
  const fs::path file = cache->list().at(0).file;
  fs::permissions(file, fs::perms::others_write, fs::perm_options::add);
  EXPECT_FALSE(cache->find(model));
  fs::permissions(file, fs::perms::others_write, fs::perm_options::remove);
  EXPECT_TRUE(cache->find(model));
  // A link to a file elsewhere.
  fs::rename(file, folder_.path() / "elsewhere");
  fs::create_symlink(folder_.path() / "elsewhere", file);
  EXPECT_FALSE(cache->find(model));
  fs::permissions(path_, fs::perms::group_write, fs::perm_options::add);
  const auto shared = PackedCache::open(path_, 1 << 20);
  ASSERT_FALSE(shared);
  EXPECT_EQ(shared.error().code, ErrorCode::bad_config);
  EXPECT_THAT(shared.error().message, HasSubstr("no other user may write"));
}

TEST_F(PackedCacheTest, IgnoresAndReplacesADamagedFile) {
  const PackedModel model{"m", "1"};
  const auto cache = open(path_);
  for (const std::string& damage : {std::string(), std::string("short"), std::string(100, '\xff')}) {
    write(*cache, model, 10);
    std::ofstream(cache->list().at(0).file, std::ios::binary | std::ios::trunc) << damage;
    EXPECT_FALSE(cache->find(model));
    EXPECT_THAT(models(*cache), ElementsAre(""));
  }
  write(*cache, model, 10);
  EXPECT_TRUE(cache->find(model));
}

TEST_F(PackedCacheTest, RemovesWhatWasUsedLeastRecently) {
  const auto cache = open(path_, 10'000);
  for (const char* name : {"old", "older", "oldest"}) write(*cache, {name, name}, 2'500);
  for (const auto& entry : cache->list())
    set_age(entry.file, entry.model == "old" ? 1 : entry.model == "older" ? 2 : 3);
  EXPECT_THAT(models(*cache), ElementsAre("old", "older", "oldest"));
  EXPECT_TRUE(cache->find({"oldest", "oldest"}));
  EXPECT_THAT(models(*cache), ElementsAre("oldest", "old", "older"));
  write(*cache, {"new", "new"}, 5'500);
  EXPECT_THAT(models(*cache), ElementsAre("new", "oldest"));
  const auto data = bytes(10'001, 1);
  const Status too_large = cache->write({"large", "large"}, {{"a", data}});
  ASSERT_FALSE(too_large);
  EXPECT_THAT(models(*cache), ElementsAre("new", "oldest")) << "what cannot be kept removes nothing";
}

TEST_F(PackedCacheTest, RemovesWhatAProcessLeftUnfinished) {
  open(path_);
  const fs::path old = path_ / "1.0000000a.packed.part";
  const fs::path fresh = path_ / "2.0000000b.packed.part";
  for (const fs::path& file : {old, fresh}) std::ofstream(file) << "x";
  set_age(old, 2);
  open(path_);
  EXPECT_FALSE(fs::exists(old));
  EXPECT_TRUE(fs::exists(fresh)) << "a process may still write it";
}

TEST_F(PackedCacheTest, LeavesOtherFilesAlone) {
  const auto cache = open(path_, 1'000);
  const fs::path model = path_ / "model.safetensors";
  const fs::path download = path_ / "model.gguf.part";
  for (const fs::path& file : {model, download}) {
    std::ofstream(file) << std::string(2'000, 'x');
    set_age(file, 100);
  }
  write(*cache, {"m", "1"}, 900);
  EXPECT_THAT(models(*open(path_, 1'000)), ElementsAre("m"));
  EXPECT_TRUE(cache->clear());
  EXPECT_TRUE(fs::exists(model) && fs::exists(download));
}

TEST_F(PackedCacheTest, IsClearedWhileItsFilesAreRead) {
  const PackedModel model{"m", "1"};
  const auto cache = open(path_);
  write(*cache, model, 10'000);
  const auto file = cache->find(model);
  ASSERT_TRUE(file);
  EXPECT_GT(cache->clear().value(), 10'000);
  EXPECT_TRUE(cache->list().empty());
  EXPECT_EQ(file->find("a", 10'000).back(), std::byte{7});
}

TEST_F(PackedCacheTest, CannotBeWhereThereIsAFile) {
  folder_.write("file", "");
  const auto cache = PackedCache::open(folder_.path() / "file" / "cache", 1 << 20);
  ASSERT_FALSE(cache);
  EXPECT_EQ(cache.error().param, "packed_cache");
  EXPECT_THAT(cache.error().message, HasSubstr((folder_.path() / "file" / "cache").string()));
  const Status usable = PackedCache::check(folder_.path() / "file" / "cache");
  ASSERT_FALSE(usable);
  EXPECT_EQ(usable.error().code, ErrorCode::io_failed);
}

TEST_F(PackedCacheTest, IsCheckedWithoutBeingMade) {
  const fs::path deep = path_ / "a" / "b";
  EXPECT_TRUE(PackedCache::check(deep));
  EXPECT_FALSE(fs::exists(path_));
  open(deep);
  EXPECT_TRUE(PackedCache::check(deep));
  fs::permissions(deep, fs::perms::others_write, fs::perm_options::add);
  const Status shared = PackedCache::check(deep);
  ASSERT_FALSE(shared);
  EXPECT_EQ(shared.error().code, ErrorCode::bad_config);
  const fs::path link = folder_.path() / "link";
  fs::create_symlink(folder_.path() / "nowhere", link);
  EXPECT_FALSE(PackedCache::check(link)) << "open() does not make the target of a link";
}

}  // namespace
}  // namespace pagoda::io
