#include "apps/serve_options.hpp"

#include <string>
#include <utility>

#include <CLI/CLI.hpp>
#include <gtest/gtest.h>

#include "tests/support/temporary_folder.hpp"

namespace pagoda::apps {
namespace {

/// Whether `pagoda serve` with these flags has worker processes.
bool has_worker_process(const std::string& flags) {
  CLI::App app;
  ServeOptions options(app);
  app.parse(flags);
  const auto problems = options.finish();
  EXPECT_TRUE(problems.empty()) << problems.front().message;
  return options.engine.config.worker_processes;
}

TEST(ServeOptionsTest, AModelOnAGpuHasAProcessOfItsOwnUnlessTold) {
  EXPECT_FALSE(has_worker_process("model"));
  EXPECT_TRUE(has_worker_process("model --worker-processes"));
  EXPECT_TRUE(has_worker_process("model --device cuda"));
  EXPECT_TRUE(has_worker_process("model --device cuda:1 --step-deadline 2"));
  EXPECT_FALSE(has_worker_process("model --device cuda --no-worker-processes"));
  const test::TemporaryFolder folder;
  folder.write("config.json", R"({"device": "cuda", "worker_processes": false})");
  EXPECT_FALSE(has_worker_process("model --config " + (folder.path() / "config.json").string()));
  folder.write("models.json", R"({"a": {"model": "some/model"}})");
  EXPECT_FALSE(has_worker_process("--device cuda --models " + (folder.path() / "models.json").string()));
}

}  // namespace
}  // namespace pagoda::apps
