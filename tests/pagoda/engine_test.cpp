#include "pagoda/engine.hpp"

#include <atomic>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <future>
#include <thread>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/pagoda/test_models.hpp"
#include "tests/support/split_memory_device.hpp"
#include "tests/support/temporary_folder.hpp"

namespace pagoda {
namespace {

using nlohmann::json;
using test::greedy_request;

std::unique_ptr<Engine> engine_with(const std::string& model, const std::function<void(EngineConfig&)>& change = {},
                                    const EngineSetup& setup = {}) {
  EngineConfig config;
  config.model = model;
  config.threads = 2;
  config.max_num_seqs = 64;
  config.max_num_batched_tokens = 256;
  if (change) change(config);
  auto engine = Engine::create(config, setup);
  EXPECT_TRUE(engine) << engine.error().message;
  return engine ? std::move(*engine) : nullptr;
}

/// Requests of many kinds: lengths, seeds, filters, penalties, n, best_of, beams, prompt logprobs, shared beginnings.
std::vector<GenerateRequest> varied_requests(int count) {
  const std::vector<std::string> beginnings = {"Once upon a time", "The little fox",
                                               "One day, Lily went to the park and",
                                               "It was raining. The old bear sat in his house and looked out of the"};
  std::vector<GenerateRequest> requests;
  for (int i = 0; i < count; ++i) {
    const auto u = static_cast<std::size_t>(i);
    GenerateRequest request = greedy_request(beginnings[u % beginnings.size()], 6 + (i * 7) % 40);
    if (i % 3 == 1) *request.prompt += beginnings[(u / 4) % beginnings.size()];
    SamplingParams& sampling = request.sampling;
    if (i % 4 != 0) {
      sampling.temperature = 0.5 + 0.1 * (i % 8);
      sampling.seed = static_cast<std::uint64_t>(i) * 77 + 5;
    }
    if (i % 5 == 2) sampling.top_k = 20;
    if (i % 5 == 3) sampling.top_p = 0.8;
    if (i % 7 == 4) sampling.repetition_penalty = 1.2;
    if (i % 6 == 5) sampling.n = 3;
    if (i % 8 == 6) sampling.ignore_eos = false;
    if (i % 9 == 7) sampling.stop = {"the"};
    if (i % 11 == 3) sampling.best_of = sampling.n + 2;
    if (i % 5 == 1) sampling.prompt_logprobs = 2;
    if (i % 6 == 4) {
      const std::int64_t max_tokens = sampling.max_tokens;
      sampling = SamplingParams{};
      sampling.max_tokens = max_tokens;
      sampling.temperature = 0;
      sampling.use_beam_search = true;
      sampling.n = 2;
      sampling.best_of = 2 + i % 4;
      sampling.early_stopping = static_cast<EarlyStopping>(i / 6 % 3);
      sampling.logprobs = 1;
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

std::string text_of(const LogprobEntry& entry) {
  std::string text =
      std::to_string(entry.token_id) + ":" + std::to_string(entry.logprob) + "#" + std::to_string(entry.rank);
  for (const TokenLogprob& top : entry.top)
    text += "," + std::to_string(top.token_id) + ":" + std::to_string(top.logprob);
  return text + " ";
}

/// Everything but the times that a request gives, as text to compare.
std::vector<std::string> run_all(Engine& engine, const std::vector<GenerateRequest>& requests,
                                 bool one_by_one = false) {
  std::vector<Result<RequestResult>> results;
  if (one_by_one) {
    for (const GenerateRequest& request : requests) results.push_back(engine.generate(request));
  } else {
    results = engine.generate(requests);
  }
  std::vector<std::string> all;
  for (const auto& result : results) {
    if (!result) {
      all.push_back("error: " + result.error().message);
      continue;
    }
    std::string line;
    for (const SequenceResult& output : result->outputs) {
      for (const TokenId id : output.token_ids) line += std::to_string(id) + " ";
      line += std::string(to_string(output.finish_reason)) + "|" + output.text + "|";
      if (output.cumulative_logprob) line += std::to_string(*output.cumulative_logprob) + "|";
      for (const LogprobEntry& entry : output.logprobs.value_or(Logprobs())) line += text_of(entry);
    }
    if (result->prompt_logprobs) {
      line += "prompt ";
      for (const LogprobEntry& entry : *result->prompt_logprobs) line += text_of(entry);
    }
    all.push_back(std::move(line));
  }
  return all;
}

TEST(Engine, GivesTheExpectedGreedyTokensTextAndLogprobs) {
  PAGODA_NEEDS_SHARED_DATA();
  const auto engine = engine_with(test::shared_path("models/stories260k"));
  ASSERT_TRUE(engine);
  const json golden = json::parse(std::ifstream(test::shared_path("goldens/stories260k_greedy.json")));
  std::vector<GenerateRequest> requests;
  for (const json& g : golden) {
    requests.push_back(greedy_request(g["prompt"], static_cast<std::int64_t>(g["token_ids"].size())));
    requests.back().sampling.logprobs = 2;
  }
  const auto results = engine->generate(requests);
  for (std::size_t i = 0; i < golden.size(); ++i) {
    ASSERT_TRUE(results[i]) << results[i].error().message;
    const SequenceResult& output = results[i]->outputs.at(0);
    EXPECT_EQ(output.token_ids, golden[i]["token_ids"].get<TokenIds>());
    EXPECT_EQ(output.text, golden[i]["text"].get<std::string>());
    double sum = 0;
    for (std::size_t k = 0; k < output.logprobs->size(); ++k) {
      const LogprobEntry& entry = (*output.logprobs)[k];
      EXPECT_NEAR(entry.logprob, golden[i]["logprobs"][k].get<double>(), 2e-3);
      EXPECT_EQ(entry.rank, 1);
      ASSERT_EQ(entry.top.size(), 2U);
      EXPECT_EQ(entry.top[0].token_id, entry.token_id);
      sum += static_cast<double>(entry.logprob);
    }
    EXPECT_NEAR(output.cumulative_logprob.value(), sum, 1e-6);
  }
}

TEST(Engine, GivesTheSameTokensUnderEverySchedule) {
  const auto requests = varied_requests(32);
  const auto plain = engine_with(test::demo_model(), [](EngineConfig& c) {
    c.pipeline_depth = 1;
    c.threads = 1;
    c.enable_prefix_caching = false;
  });
  ASSERT_TRUE(plain);
  const auto expected = run_all(*plain, requests, true);  // each alone
  for (const std::string& line : expected) EXPECT_EQ(line.find("error"), std::string::npos) << line;

  const auto same = [&](const char* what, const std::function<void(EngineConfig&)>& change, bool must_preempt = false) {
    SCOPED_TRACE(what);
    const auto engine = engine_with(test::demo_model(), change);
    ASSERT_TRUE(engine);
    const auto got = run_all(*engine, requests);
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(got[i], expected[i]) << "request " << i;
    const EngineStats stats = engine->stats();
    EXPECT_EQ(stats.preemptions_recompute_total + stats.preemptions_swap_total > 0, must_preempt);
  };
  same("together, depth 1", [](EngineConfig& c) { c.pipeline_depth = 1; });
  same("together, depth 2", [](EngineConfig&) {});
  same("one thread", [](EngineConfig& c) { c.threads = 1; });
  same("blocks of 1", [](EngineConfig& c) { c.block_size = 1; });
  same("blocks of 16", [](EngineConfig& c) { c.block_size = 16; });
  same("no prefix cache", [](EngineConfig& c) { c.enable_prefix_caching = false; });
  same("small steps", [](EngineConfig& c) { c.max_num_seqs = c.max_num_batched_tokens = 8; });
  same("whole prompts", [](EngineConfig& c) {
    c.enable_chunked_prefill = false;
    c.max_num_batched_tokens = 1024;
  });
  same(
      "preempted by recompute",
      [](EngineConfig& c) {
        c.num_device_blocks = 64;
        c.block_size = 4;
        c.preemption_mode = PreemptionPolicy::recompute;
      },
      true);
  same(
      "preempted by swap",
      [](EngineConfig& c) {
        c.num_device_blocks = 64;
        c.block_size = 4;
        c.num_host_blocks = 500;
        c.preemption_mode = PreemptionPolicy::swap;
      },
      true);
  same(
      "preempted as measured, to disk",
      [](EngineConfig& c) {
        c.num_device_blocks = 64;
        c.block_size = 4;
        c.num_host_blocks = 500;
        c.swap_dir = std::filesystem::temp_directory_path().string();
      },
      true);
}

TEST(Engine, GivesTheSameTokensOnADeviceThatRunsBehindTheHostInMemoryOfItsOwn) {
  const auto requests = varied_requests(32);
  const auto plain = engine_with(test::demo_model(), [](EngineConfig& c) { c.threads = 1; });
  ASSERT_TRUE(plain);
  const auto expected = run_all(*plain, requests);
  const auto same = [&](const char* what, const std::function<void(EngineConfig&)>& change) {
    SCOPED_TRACE(what);
    const auto device = std::make_shared<test::SplitMemoryDevice>();
    const auto on_device = [&](EngineConfig& c) {
      c.device = "cuda";
      c.enforce_eager = true;
      change(c);
    };
    const auto engine = engine_with(test::demo_model(), on_device, {.device = device});
    ASSERT_TRUE(engine);
    const auto got = run_all(*engine, requests);
    for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_EQ(got[i], expected[i]) << "request " << i;
    EXPECT_EQ(device->late_error().value_or("none"), "none");
  };
  same("depth 1", [](EngineConfig& c) { c.pipeline_depth = 1; });
  same("depth 2", [](EngineConfig&) {});
  same("recorded", [](EngineConfig& c) {
    c.enforce_eager = false;
    c.max_num_seqs = 16;
  });
  same("small steps", [](EngineConfig& c) { c.max_num_seqs = c.max_num_batched_tokens = 8; });
  for (const auto mode : {PreemptionPolicy::swap, PreemptionPolicy::recompute}) {
    same(mode == PreemptionPolicy::swap ? "preempted by swap" : "preempted by recompute", [&](EngineConfig& c) {
      c.num_device_blocks = 64;
      c.block_size = 4;
      c.num_host_blocks = mode == PreemptionPolicy::swap ? 500 : 0;
      c.preemption_mode = mode;
    });
  }
}

TEST(Engine, AStepThatADeviceRefusesFailsItsRequestsAndNoOther) {
  const auto device = std::make_shared<test::SplitMemoryDevice>();
  const auto on_device = [](EngineConfig& c) {
    c.device = "cuda";
    c.max_num_seqs = 4;
  };
  const auto engine = engine_with(test::demo_model(), on_device, {.device = device});
  ASSERT_TRUE(engine);
  const auto expected = engine->generate(greedy_request("Once upon a time", 40));
  ASSERT_TRUE(expected) << expected.error().message;
  for (const int count : {0, 3, 17, 60}) {
    device->fail_op_after(count);
    const auto refused = engine->generate(greedy_request("The little fox", 40));
    ASSERT_FALSE(refused) << count;
    EXPECT_EQ(refused.error().message, "the device was told to fail");
    const auto again = engine->generate(greedy_request("Once upon a time", 40));
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ(again->outputs.at(0).token_ids, expected->outputs.at(0).token_ids);
  }
}

TEST(Engine, FillsTheShareOfADevicesMemoryThatItMayUse) {
  constexpr std::size_t kDeviceBytes = std::size_t{256} << 20U;
  std::vector<std::string> told;
  const auto device =
      std::make_shared<test::SplitMemoryDevice>(test::SplitMemoryDevice::Options{.device_bytes = kDeviceBytes});
  const auto on_device = [](EngineConfig& c) {
    c.device = "cuda";
    c.max_num_seqs = c.max_num_batched_tokens = 1024;  // whose contexts need more than there is
    c.gpu_memory_utilization = 0.75;
    c.enforce_eager = true;
  };
  const auto progress = [&](std::string_view what, double done) {
    if (done == 1.0) told.emplace_back(what);
  };
  const auto engine = engine_with(test::demo_model(), on_device, {.device = device, .progress = progress});
  ASSERT_TRUE(engine);
  const auto used = static_cast<double>(kDeviceBytes - device->available_bytes(kernels::MemoryKind::device));
  EXPECT_NEAR(used / static_cast<double>(kDeviceBytes), 0.75, 0.01);
  EXPECT_EQ(told, std::vector<std::string>{"loading weights"});
}

TEST(Engine, StreamsDeltasThatAddUpToTheResult) {
  const auto engine = engine_with(test::demo_model());
  ASSERT_TRUE(engine);
  GenerateRequest request = greedy_request("The little fox", 40);
  request.sampling.n = 2;
  request.sampling.temperature = 0.9;
  request.sampling.seed = 3;
  std::promise<RequestResult> done;
  std::map<std::int32_t, std::string> text;
  std::map<std::int32_t, TokenIds> ids;
  const auto ticket = engine->submit(request, [&](const RequestOutput& output) {
    for (const SequenceDelta& delta : output.deltas) {
      text[delta.index] += delta.text;
      ids[delta.index].insert(ids[delta.index].end(), delta.token_ids.begin(), delta.token_ids.end());
    }
    if (output.done) done.set_value(*output.done);
  });
  ASSERT_TRUE(ticket) << ticket.error().message;
  const RequestResult result = done.get_future().get();
  ASSERT_EQ(result.outputs.size(), 2U);
  for (const SequenceResult& output : result.outputs) {
    EXPECT_EQ(text[output.index], output.text);
    EXPECT_EQ(ids[output.index], output.token_ids);
    EXPECT_EQ(output.token_ids.size(), 40U);
  }
  EXPECT_NE(result.outputs[0].token_ids, result.outputs[1].token_ids);
  EXPECT_EQ(result.usage.completion_tokens, 80);
}

TEST(Engine, CancelEndsARequestWithAbortAndFreesItsMemory) {
  const auto engine = engine_with(test::demo_model());
  ASSERT_TRUE(engine);
  std::promise<RequestResult> done;
  std::promise<void> first;
  std::atomic<bool> seen = false;
  const auto ticket = engine->submit(greedy_request("Once upon a time", 900), [&](const RequestOutput& output) {
    if (!seen.exchange(true)) first.set_value();
    if (output.done) done.set_value(*output.done);
  });
  ASSERT_TRUE(ticket);
  first.get_future().wait();
  EXPECT_TRUE(engine->cancel(*ticket));
  EXPECT_EQ(done.get_future().get().outputs.at(0).finish_reason, FinishReason::abort);
  EXPECT_FALSE(engine->cancel(*ticket));
  for (int i = 0; i < 200; ++i) {
    const EngineStats stats = engine->stats();
    if (stats.requests_running == 0 &&
        stats.device_blocks_free + stats.device_blocks_cached == stats.device_blocks_total) {
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  FAIL() << "the cancelled request still holds memory";
}

TEST(Engine, GenerationThatOutgrowsTheCacheAloneEndsWithLength) {
  for (const int depth : {1, 2}) {
    const auto engine = engine_with(test::demo_model(), [&](EngineConfig& c) {
      c.pipeline_depth = depth;
      c.num_device_blocks = 4;
      c.block_size = 16;
    });
    ASSERT_TRUE(engine);
    const auto result = engine->generate(greedy_request("Once upon a time", 500));
    ASSERT_TRUE(result) << result.error().message;
    EXPECT_EQ(result->outputs.at(0).finish_reason, FinishReason::length);
    EXPECT_EQ(result->usage.prompt_tokens + result->usage.completion_tokens, 4 * 16 + 1) << "depth " << depth;
    const auto too_long = engine->generate(greedy_request(std::string(4000, 'z'), 5));
    ASSERT_FALSE(too_long);
    EXPECT_EQ(too_long.error().code, ErrorCode::context_too_long);
  }
}

TEST(Engine, RefusesWhatItCannotServeByTheNameOfTheField) {
  const auto engine = engine_with(test::demo_model());
  ASSERT_TRUE(engine);
  const auto refused = [&](const char* param, const std::function<void(GenerateRequest&)>& change) {
    GenerateRequest request = greedy_request("a", 4);
    change(request);
    const auto result = engine->generate(request);
    ASSERT_FALSE(result) << param;
    EXPECT_EQ(result.error().code, ErrorCode::invalid_request);
    EXPECT_EQ(result.error().param, param);
  };
  refused("temperature", [](GenerateRequest& r) {
    r.sampling.use_beam_search = true;
    r.sampling.temperature = 1;
  });
  refused("stop", [](GenerateRequest& r) {
    r.sampling.use_beam_search = true;
    r.sampling.stop = {"end"};
  });
  refused("best_of", [](GenerateRequest& r) {
    r.sampling.n = 3;
    r.sampling.best_of = 2;
  });
  refused("prompt_logprobs", [](GenerateRequest& r) { r.sampling.prompt_logprobs = 21; });
  refused("prompt", [](GenerateRequest& r) { r.prompt.reset(); });
  refused("prompt_token_ids", [](GenerateRequest& r) { r.prompt_token_ids = {{1}}; });
  refused("prompt_token_ids", [](GenerateRequest& r) {
    r.prompt.reset();
    r.prompt_token_ids.emplace();
  });
  refused("prompt_literals", [](GenerateRequest& r) { r.prompt_literals = {{0, 2}}; });
  refused("n", [](GenerateRequest& r) { r.sampling.n = 16385; });
  refused("top_p", [](GenerateRequest& r) { r.sampling.top_p = 0; });
}

TEST(Engine, ReadsSpecialTokensInLiteralsOfAPromptAsText) {
  const auto engine = engine_with(test::demo_model());
  ASSERT_TRUE(engine);
  GenerateRequest request = greedy_request("Once<|end_of_text|>upon", 1);
  request.add_special_tokens = false;
  const auto num_prompt_tokens = [&](std::vector<ByteRange> literals) {
    request.prompt_literals = std::move(literals);
    return engine->generate(request).value().usage.prompt_tokens;
  };
  const std::int64_t parsed = std::ssize(engine->tokenize(*request.prompt, false).value());
  EXPECT_EQ(num_prompt_tokens({}), parsed);
  EXPECT_EQ(num_prompt_tokens({{0, 4}, {19, 23}}), parsed);
  EXPECT_GT(num_prompt_tokens({{0, 23}}), parsed + 3);
}

TEST(Engine, ReportsAFolderThatIsNoModel) {
  EngineConfig config;
  config.model = "no/such/folder";
  const auto engine = Engine::create(config);
  ASSERT_FALSE(engine);
  EXPECT_NE(engine.error().message.find("no/such/folder"), std::string::npos) << engine.error().message;
}

TEST(Engine, RefusesAConfigThatLeavesTensorsOfTheCheckpointUnused) {
  const test::TemporaryFolder folder;
  std::filesystem::copy(test::demo_model(), folder.path(), std::filesystem::copy_options::recursive);
  json model = json::parse(std::ifstream(folder.path() / "config.json"));
  const int layers = model.at("num_hidden_layers");
  model["num_hidden_layers"] = layers - 1;
  std::ofstream(folder.path() / "config.json") << model;
  EngineConfig config;
  config.model = folder.path().string();
  const auto engine = Engine::create(config);
  ASSERT_FALSE(engine);
  EXPECT_EQ(engine.error().code, ErrorCode::bad_file);
  const std::string tensor = "model.layers." + std::to_string(layers - 1) + ".";
  EXPECT_NE(engine.error().message.find(tensor), std::string::npos) << engine.error().message;
}

TEST(Engine, TellsItsMemoryBeforeTheFirstRequest) {
  const auto engine = engine_with(test::demo_model(), [](EngineConfig& config) {
    config.num_device_blocks = 77;
    config.num_host_blocks = 5;
  });
  ASSERT_TRUE(engine);
  const EngineStats stats = engine->stats();
  EXPECT_EQ(stats.device_blocks_total, 77);
  EXPECT_EQ(stats.device_blocks_free, 77);
  EXPECT_EQ(stats.host_blocks_total, 5);
  EXPECT_EQ(stats.host_blocks_free, 5);
}

TEST(Engine, EndsWithLiveRequestsByTellingEachOne) {
  auto engine = engine_with(test::demo_model());
  ASSERT_TRUE(engine);
  std::atomic<int> terminal = 0;
  for (int i = 0; i < 8; ++i) {
    const auto ticket = engine->submit(greedy_request("Once upon a time", 900), [&](const RequestOutput& output) {
      if (output.done || output.error) ++terminal;
    });
    ASSERT_TRUE(ticket);
  }
  engine.reset();
  EXPECT_EQ(terminal, 8);
}

}  // namespace
}  // namespace pagoda
