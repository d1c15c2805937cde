#include "io/serving/served_adapters.hpp"

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "io/serving/served_models.hpp"

namespace pagoda::serving {
namespace {

namespace fs = std::filesystem;
using testing::ElementsAre;
using testing::HasSubstr;

class AdapterFolders : public testing::Test {
 protected:
  AdapterFolders() {
    fs::create_directories(root_ / "team" / "sql");
    fs::create_directories(folder_ / "root2" / "x");
    fs::create_directories(folder_ / "secret");
    std::ofstream(root_ / "one.gguf") << "x";
    fs::create_directory_symlink(folder_ / "secret", root_ / "link");
    fs::create_directory_symlink(root_ / "team", root_ / "inner");
    fs::create_directory_symlink(folder_ / "later", root_ / "dangling");
    fs::create_directory_symlink(root_, folder_ / "alias");
  }
  ~AdapterFolders() override { fs::remove_all(folder_); }

  /// The path in the result, or the message.
  std::string found(const std::string& path) const {
    const auto result = adapter_path(root_, path);
    return result ? result->string() : result.error().param + ": " + result.error().message;
  }

  const fs::path folder_ = fs::canonical(fs::temp_directory_path()) / ("adapters-" + std::to_string(::getpid()));
  const fs::path root_ = folder_ / "root";
};

TEST_F(AdapterFolders, BelowTheRootAreFound) {
  const auto sql = (root_ / "team" / "sql").string();
  for (const auto& path : {std::string("team/sql"), sql, std::string("./team/../team/sql"), std::string("inner/sql"),
                           (folder_ / "alias" / "team" / "sql").string(), (root_ / "../root/team/sql").string()}) {
    EXPECT_EQ(found(path), sql) << path;
  }
  EXPECT_EQ(found("one.gguf"), (root_ / "one.gguf").string());
  EXPECT_EQ(adapter_path(folder_ / "alias", "team/sql").value(), sql);
}

TEST_F(AdapterFolders, OutsideTheRootAreRefused) {
  for (const auto& path :
       {std::string(".."), std::string("."), std::string("../secret"), std::string("team/../../secret"),
        std::string("link"), std::string("link/sql"), std::string("/etc"), (folder_ / "root2" / "x").string(),
        (folder_ / "secret").string(), (folder_ / "no-such").string(), root_.string()}) {
    EXPECT_THAT(found(path), HasSubstr("lora_path: lora_path must be below")) << path;
  }
  for (const auto& path : {std::string("nothing"), std::string("team/nothing"), std::string(), std::string("team\nsql"),
                           std::string("team\0sql", 8), std::string(5000, 'a')}) {
    EXPECT_THAT(found(path), HasSubstr("lora_path: lora_path ")) << path;
  }
  EXPECT_THAT(found("dangling"), HasSubstr("lora_path: lora_path "));
  EXPECT_EQ(adapter_path(folder_ / "no-such-root", "x").error().param, "lora_root");
}

TEST_F(AdapterFolders, LinksInsideLeadToFilesBelowTheRoot) {
  const fs::path sql = root_ / "team" / "sql";
  fs::create_symlink(root_ / "one.gguf", sql / "inner");
  EXPECT_EQ(found("team/sql"), sql.string());
  for (const fs::path& target : {folder_ / "secret", folder_ / "nothing", root_ / "nothing"}) {
    fs::create_symlink(target, sql / "model");
    EXPECT_THAT(found("team/sql"), HasSubstr("lead out of the server's lora_root, or to nothing: model")) << target;
    fs::remove(sql / "model");
  }
  EXPECT_EQ(found("team/sql"), sql.string());
}

class Served : public AdapterFolders {
 protected:
  std::vector<std::string> names() const {
    std::vector<std::string> all;
    for (const auto& adapter : adapters_->list()) all.push_back(std::to_string(adapter.id) + adapter.name);
    return all;
  }

  const std::shared_ptr<ServedAdapters> adapters_ =
      std::make_shared<ServedAdapters>(std::vector<ServedAdapters::Adapter>{{0, "sql", "s"}, {0, "poet", "p"}}, root_);
};

TEST_F(Served, AnAdapterIsKnownOnceTheEngineHasIt) {
  EXPECT_THAT(names(), ElementsAre("0sql", "1poet"));
  const auto change = adapters_->begin_add("new", "team/sql").value();
  EXPECT_FALSE(adapters_->contains("new"));
  EXPECT_THAT(adapters_->begin_add("new", "team/sql").error().message, HasSubstr("is being loaded"));
  EXPECT_EQ(adapters_->begin_remove("new").error().code, ErrorCode::unknown_adapter);
  change->settle({});
  EXPECT_THAT(names(), ElementsAre("0sql", "1poet", "2new"));
  EXPECT_EQ(adapters_->list().back().path, (root_ / "team" / "sql").string());
  EXPECT_THAT(adapters_->begin_add("new", "team/sql").error().message, HasSubstr("already loaded"));
}

TEST_F(Served, ARemovedAdapterIsUnknownFromTheBeginning) {
  const auto change = adapters_->begin_remove("sql").value();
  EXPECT_THAT(names(), ElementsAre("1poet"));
  EXPECT_THAT(adapters_->begin_add("sql", "team/sql").error().message, HasSubstr("is being unloaded"));
  EXPECT_EQ(adapters_->begin_remove("sql").error().code, ErrorCode::unknown_adapter);
  change->settle({});
  adapters_->begin_add("sql", "team/sql").value()->settle({});
  EXPECT_THAT(names(), ElementsAre("1poet", "2sql"));  // the number is a new one
}

TEST_F(Served, AChangeThatFailsIsUndone) {
  adapters_->begin_add("new", "team/sql").value()->settle(fail(ErrorCode::bad_file, "damaged"));
  EXPECT_TRUE(adapters_->begin_add("new", "team/sql").has_value());  // dropped without an answer
  EXPECT_TRUE(adapters_->begin_add("new", "team/sql").has_value());
  EXPECT_THAT(names(), ElementsAre("0sql", "1poet"));
  EXPECT_TRUE(adapters_->begin_remove("sql").has_value());
  EXPECT_THAT(names(), ElementsAre("0sql", "1poet"));
  adapters_->begin_remove("sql").value()->settle(fail(ErrorCode::internal, "no answer"));
  EXPECT_THAT(names(), ElementsAre("0sql", "1poet"));
  adapters_->begin_remove("sql").value()->settle(fail(ErrorCode::unknown_adapter, "no such adapter"));
  EXPECT_THAT(names(), ElementsAre("1poet"));
}

TEST_F(Served, NamesOfClientsAreChecked) {
  for (const auto& name : {std::string(), std::string(257, 'a'), std::string("a\nb")}) {
    EXPECT_EQ(adapters_->begin_add(name, "team/sql").error().param, "lora_name");
  }
  const auto fixed = std::make_shared<ServedAdapters>(std::vector<ServedAdapters::Adapter>{{0, "sql", "s"}}, "");
  EXPECT_THAT(fixed->begin_add("new", "team/sql").error().message, HasSubstr("--enable-lora-updates"));
  EXPECT_THAT(fixed->begin_remove("sql").error().message, HasSubstr("--enable-lora-updates"));
  EXPECT_TRUE(fixed->contains("sql"));
}

TEST(ServedAdaptersOfConfig, AreThoseOfItsModules) {
  EngineConfig config;
  EXPECT_EQ(ServedAdapters::of(config).value(), nullptr);
  config.enable_lora = true;
  config.lora_modules = "sql=/a";
  config.served_model_name = "base,other";
  EXPECT_TRUE(ServedAdapters::of(config).value()->contains("sql"));
  config.lora_modules = "other=/a";
  EXPECT_EQ(ServedAdapters::of(config).error().param, "lora_modules");
}

TEST(ServedModelsWithAdapters, AreFoundByTheNamesOfBoth) {
  ServedModel one{.info = {}, .aliases = {"uno"}};
  one.info.name = "one";
  one.adapters = std::make_shared<ServedAdapters>(std::vector<ServedAdapters::Adapter>{{0, "sql", "s"}}, "");
  ServedModel two{.info = {}};
  two.info.name = "two";
  two.adapters = std::make_shared<ServedAdapters>(std::vector<ServedAdapters::Adapter>{{0, "poet", "p"}}, "");
  const ServedModels models({one, two});
  EXPECT_EQ(models.find("uno")->info.name, "one");
  EXPECT_EQ(models.find("uno")->adapter(), "");
  for (const char* name : {"poet", "poet:latest"}) {
    const auto found = models.find(name);
    ASSERT_NE(found, nullptr);
    EXPECT_EQ(found->info.name, "poet");
    EXPECT_EQ(found->adapter(), "poet");
    EXPECT_EQ(found->parent, "two");
    EXPECT_FALSE(found->serves("two"));
    EXPECT_EQ(models.find_model(name), &models.all()[1]);
  }
  EXPECT_EQ(models.find("nobody"), nullptr);
  EXPECT_EQ(models.find_model("nobody"), nullptr);
  EXPECT_EQ(models.listed("<", ">"), "<one>, <uno>, <sql>, <two>, <poet>");
}

}  // namespace
}  // namespace pagoda::serving
