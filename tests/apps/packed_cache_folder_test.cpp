#include "apps/packed_cache_folder.hpp"

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>

#include <gtest/gtest.h>

#include "tests/support/temporary_folder.hpp"

namespace pagoda::apps {
namespace {

/// Sets an environment variable, and restores it.
class Variable {
 public:
  Variable(const char* name, const std::optional<std::string>& value) : name_(name) {
    if (const char* const old = std::getenv(name); old != nullptr) old_ = old;
    set(value);
  }
  ~Variable() { set(old_); }
  Variable(const Variable&) = delete;
  Variable& operator=(const Variable&) = delete;

 private:
  void set(const std::optional<std::string>& value) const {
    if (value) {
      ::setenv(name_, value->c_str(), 1);
    } else {
      ::unsetenv(name_);
    }
  }

  const char* name_;
  std::optional<std::string> old_;
};

TEST(PackedCacheFolder, IsInTheCachesOfTheUser) {
  const Variable home("HOME", "/home/a");
  {
    const Variable caches("XDG_CACHE_HOME", "/caches");
    EXPECT_EQ(packed_cache_folder(), "/caches/pagoda/packed");
  }
  const Variable caches("XDG_CACHE_HOME", "relative");  // the specification says to ignore it
  EXPECT_EQ(packed_cache_folder(), "/home/a/.cache/pagoda/packed");
  const Variable no_home("HOME", std::nullopt);
  EXPECT_TRUE(packed_cache_folder().empty());
}

TEST(PackedCacheFolder, IsChosenForACpuIfItCanBeUsed) {
  const test::TemporaryFolder folder;
  const Variable caches("XDG_CACHE_HOME", folder.path().string());
  EXPECT_EQ(chosen_packed_cache(kAutomaticCache, "cpu"), (folder.path() / "pagoda" / "packed").string());
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "pagoda")) << "a command that loads no weights leaves no folder";
  EXPECT_EQ(chosen_packed_cache(kAutomaticCache, "cuda"), "off");
  EXPECT_EQ(chosen_packed_cache("/elsewhere", "cpu"), "/elsewhere");
  EXPECT_EQ(chosen_packed_cache("off", "cpu"), "off");
  folder.write("pagoda", "a file");
  EXPECT_EQ(chosen_packed_cache(kAutomaticCache, "cpu"), "off");
}

}  // namespace
}  // namespace pagoda::apps
