#include "apps/serve_options.hpp"

#include <string>
#include <utility>

#include <CLI/CLI.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/temporary_folder.hpp"

namespace pagoda::apps {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::UnorderedElementsAre;

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
  folder.write("models.json", R"({"a": {"model": "model"}})");
  EXPECT_FALSE(has_worker_process("--device cuda --models " + (folder.path() / "models.json").string()));
}

std::vector<std::string> problems_of(const std::string& flags) {
  CLI::App app;
  ServeOptions options(app);
  app.parse(flags);
  std::vector<std::string> messages;
  for (const auto& problem : options.finish()) {
    EXPECT_EQ(problem.code, ErrorCode::bad_config);
    messages.push_back(problem.message);
  }
  return messages;
}

TEST(ServeOptionsTest, AFlagOfAServerThatIsNotStartedIsRefused) {
  EXPECT_THAT(problems_of("model --tls-cert c --tls-key k"),
              UnorderedElementsAre("--tls-cert needs --http", "--tls-key needs --http"));
  EXPECT_THAT(problems_of("model --no-page"), ElementsAre("--no-page needs --http"));
  EXPECT_THAT(problems_of("model --page"), ElementsAre("--page needs --http"));
  EXPECT_THAT(problems_of("model --http-idle-timeout-ms 5 --max-body-bytes 5 --cors-origin *"),
              UnorderedElementsAre("--http-idle-timeout-ms needs --http", "--max-body-bytes needs --http",
                                   "--cors-origin needs --http"));
  EXPECT_THAT(problems_of("model --http 127.0.0.1:0 --no-page --max-body-bytes 5"), IsEmpty());
  EXPECT_THAT(problems_of("model --http 127.0.0.1:0 --listen none --max-line-bytes 1000"),
              ElementsAre("--max-line-bytes is a key of JSON lines, which --listen none turns off"));
}

TEST(ServeOptionsTest, UpdatesOfAdaptersNeedAnAdmin) {
  const test::TemporaryFolder folder;
  folder.write("keys", "somebody\n");
  folder.write("models.json", R"({"a": {"model": "model", "enable_lora": true, "enable_lora_updates": true,
                                       "lora_root": "/"}})");
  const auto keys = (folder.path() / "keys").string();
  const auto refusal =
      ElementsAre("enable_lora_updates needs an admin key: give admin_key_file, or an admin in keys_file");
  const std::string updates = " --enable-lora --enable-lora-updates --lora-root /";
  EXPECT_THAT(problems_of("model" + updates), refusal);
  EXPECT_THAT(problems_of("model --api-key-file " + keys + updates), refusal);
  EXPECT_THAT(problems_of("model --admin-key-file " + keys + updates), IsEmpty());
  EXPECT_THAT(problems_of("--models " + (folder.path() / "models.json").string()), refusal);
}

TEST(ServeOptionsTest, WhatBothServersHeedIsTakenWithOneOfThem) {
  EXPECT_THAT(problems_of("model --log-prompts --allow-unauthenticated --resume-window 5"), IsEmpty());
  EXPECT_THAT(problems_of("model --listen none --http 127.0.0.1:0 --log-prompts --resume-buffer-mib 5"), IsEmpty());
}

TEST(ServeOptionsTest, AConfigFileMayBeThatOfSeveralServers) {
  const test::TemporaryFolder folder;
  folder.write("config.json", R"({"page": false, "max_line_bytes": 1000, "models_kept_memory": 1})");
  const auto file = (folder.path() / "config.json").string();
  folder.write("models.json", R"({"a": {"model": "model"}})");
  const auto models = (folder.path() / "models.json").string();
  EXPECT_THAT(problems_of("--models " + models + " --config " + file), IsEmpty());
  EXPECT_THAT(problems_of("--models " + models + " --http 127.0.0.1:0 --listen none --config " + file), IsEmpty());
}

TEST(ServeOptionsTest, TheBoundOfAllBuffersHoldsOneRequest) {
  EXPECT_THAT(problems_of("model --http 127.0.0.1:0 --max-total-buffered-bytes 1000"),
              ElementsAre("max_total_buffered_bytes must be at least max_body_bytes and max_line_bytes, 33554432, not "
                          "1000"));
  EXPECT_THAT(problems_of("model --max-total-buffered-bytes 4194304"), IsEmpty()) << "lines alone are served";
  EXPECT_THAT(problems_of("model --http 127.0.0.1:0 --max-body-bytes 2147483648"), IsEmpty()) << "it rises with them";
}

}  // namespace
}  // namespace pagoda::apps
