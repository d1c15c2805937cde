#include "io/model_files/model_location.hpp"

#include <array>
#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "io/model_files/model_files.hpp"
#include "tests/support/temporary_folder.hpp"

namespace pagoda::io {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// A cache of the hub with one repository, its files symlinks to blobs as the hub's programs make them.
class HubCache : public ::testing::Test {
 protected:
  void add_snapshot(const std::string& hash) {
    fs::create_directories(repository_ / "snapshots" / hash);
    fs::create_directories(repository_ / "blobs");
    std::ofstream(repository_ / "blobs" / "1") << R"({"architectures": ["LlamaForCausalLM"]})";
    fs::create_symlink("../../blobs/1", repository_ / "snapshots" / hash / "config.json");
  }
  void set_main(const std::string& hash) {
    fs::create_directories(repository_ / "refs");
    std::ofstream(repository_ / "refs" / "main") << hash;
  }

  pagoda::test::TemporaryFolder folder_;
  const std::array<fs::path, 2> caches_{folder_.path() / "none", folder_.path() / "hub"};
  const fs::path repository_ = caches_[1] / "models--acme--tiny";
};

TEST_F(HubCache, HasTheSnapshotOfTheMainBranch) {
  add_snapshot("0123");
  add_snapshot("4567");
  set_main("4567\n");
  const auto snapshot = repository_ / "snapshots" / "4567";
  EXPECT_EQ(locate_model(repository_).value(), snapshot);
  EXPECT_EQ(locate_model(repository_ / "").value(), snapshot);
  EXPECT_EQ(locate_model("acme/tiny", caches_).value(), snapshot);
  EXPECT_EQ(locate_model(snapshot / "").value(), snapshot);
  EXPECT_EQ(open_model_files(repository_).value()->name(), "acme/tiny");
  EXPECT_EQ(open_model_files(snapshot / "").value()->name(), "acme/tiny");
}

TEST_F(HubCache, WithOneSnapshotNeedsNoMainBranch) {
  add_snapshot("0123");
  EXPECT_EQ(locate_model("acme/tiny", caches_).value(), repository_ / "snapshots" / "0123");
}

TEST_F(HubCache, WithSeveralSnapshotsAndNoMainBranchSaysWhichThereAre) {
  add_snapshot("0123");
  add_snapshot("4567");
  const auto model = locate_model(repository_);
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code, ErrorCode::bad_config);
  EXPECT_THAT(model.error().message, AllOf(HasSubstr("0123, 4567"), HasSubstr("refs/main")));
}

TEST_F(HubCache, WithoutASnapshotIsRefused) {
  fs::create_directories(repository_ / "snapshots");
  const auto model = locate_model("acme/tiny", caches_);
  ASSERT_FALSE(model);
  EXPECT_THAT(model.error().message, HasSubstr("has no snapshot"));
}

TEST_F(HubCache, WithoutTheRepositorySaysWhereItWasLookedFor) {
  const auto model = locate_model("acme/other", caches_);
  ASSERT_FALSE(model);
  EXPECT_EQ(model.error().code, ErrorCode::bad_config);
  EXPECT_EQ(model.error().param, "model");
  EXPECT_THAT(model.error().message,
              AllOf(HasSubstr("local cache only"), HasSubstr((caches_[0] / "models--acme--other").string()),
                    HasSubstr((caches_[1] / "models--acme--other").string())));
}

TEST_F(HubCache, IsNotAskedForPaths) {
  for (const char* path : {"/acme/other", "./acme/other", "a/b/c", "acme/other.gguf", "acme", "~/x", "a b/c"}) {
    EXPECT_EQ(locate_model(path, caches_).value(), path);
  }
}

TEST_F(HubCache, GivesModelsWithoutAnOwnerToo) {
  fs::create_directories(caches_[1] / "models--gpt2" / "snapshots" / "7");
  EXPECT_EQ(locate_model("gpt2", caches_).value(), caches_[1] / "models--gpt2" / "snapshots" / "7");
}

TEST(FolderOfGgufFiles, IsTheOneModelInIt) {
  const pagoda::test::TemporaryFolder folder;
  folder.write("mmproj-x.gguf", "");
  folder.write("README.md", "");
  folder.write("x-00002-of-00002.gguf", "");
  folder.write("x-00001-of-00002.gguf", "");
  EXPECT_EQ(locate_model(folder.path()).value(), folder.path() / "x-00001-of-00002.gguf");
  EXPECT_EQ(locate_model(folder.path() / "").value(), folder.path() / "x-00001-of-00002.gguf");
  folder.write("y.gguf", "");
  const auto model = locate_model(folder.path());
  ASSERT_FALSE(model);
  EXPECT_THAT(model.error().message, HasSubstr("x-00001-of-00002.gguf, y.gguf"));
  folder.write("config.json", "{}");
  EXPECT_EQ(locate_model(folder.path()).value(), folder.path());
}

}  // namespace
}  // namespace pagoda::io
