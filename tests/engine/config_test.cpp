#include "engine/config.hpp"

#include <algorithm>
#include <limits>

#include <gtest/gtest.h>

namespace pagoda {
namespace {

EngineConfig good() {
  EngineConfig config;
  config.model = "m";
  return config;
}

std::vector<std::string> wrong_keys(const EngineConfig& config) {
  std::vector<std::string> keys;
  for (const auto& problem : config.validate()) {
    EXPECT_EQ(problem.code, ErrorCode::bad_config);
    EXPECT_NE(problem.message.find(problem.param), std::string::npos);
    keys.push_back(problem.param);
  }
  return keys;
}

TEST(EngineConfig, DefaultsWithAModelAreRight) {
  EXPECT_TRUE(wrong_keys(good()).empty());
}

TEST(EngineConfig, AModelMayHaveSeveralNames) {
  auto config = good();
  EXPECT_TRUE(config.served_model_names().empty());
  config.served_model_name = "one/x:latest, two";
  EXPECT_EQ(config.served_model_names(), (std::vector<std::string>{"one/x:latest", "two"}));
  EXPECT_TRUE(wrong_keys(config).empty());
}

TEST(EngineConfig, EachReplicaHasADevice) {
  auto config = good();
  config.data_parallel_size = 2;
  EXPECT_TRUE(wrong_keys(config).empty());
  EXPECT_EQ(config.devices(), (std::vector<std::string>{"cpu", "cpu"}));
  config.device = "cuda";
  EXPECT_TRUE(wrong_keys(config).empty());
  EXPECT_EQ(config.devices(), (std::vector<std::string>{"cuda:0", "cuda:1"}));
  config.device = "cuda:3, cuda:1";
  EXPECT_TRUE(wrong_keys(config).empty());
  EXPECT_EQ(config.of_replica(0).cuda_index(), 3);
  const EngineConfig second = config.of_replica(1);
  EXPECT_EQ(second.cuda_index(), 1);
  EXPECT_EQ(second.replica, 1);
  EXPECT_EQ(second.data_parallel_size, 2);
  EXPECT_EQ(config.with_one_device().data_parallel_size, 1);
  EXPECT_EQ(config.with_one_device().device, "cuda:3");
}

TEST(EngineConfig, RanksDivideTheMemoryOfTheirReplica) {
  auto config = good();
  config.tensor_parallel_size = 4;
  config.data_parallel_size = 2;
  config.kv_cache_memory = 2;
  config.swap_space = 1;
  EXPECT_TRUE(wrong_keys(config).empty());
  const EngineConfig third = config.of_replica(1).of_rank(3);
  EXPECT_EQ(third.rank, 3);
  EXPECT_EQ(third.replica, 1);
  EXPECT_EQ(third.kv_cache_memory, 0.5);
  EXPECT_EQ(third.swap_space, 0.25);
  EXPECT_EQ(third.num_devices(), 8);
  EXPECT_EQ(third.device_name(), "replica 1, rank 3");
  EXPECT_EQ(config.with_one_device().num_devices(), 1);
}

TEST(EngineConfig, StagesHaveRanksEach) {
  auto config = good();
  config.tensor_parallel_size = 2;
  config.pipeline_parallel_size = 3;
  config.kv_cache_memory = 6;
  EXPECT_TRUE(wrong_keys(config).empty());
  EXPECT_EQ(config.num_ranks(), 6);
  EXPECT_EQ(config.of_rank(5).kv_cache_memory, 1);
  EXPECT_EQ(config.max_steps_in_flight(), 3);
  EXPECT_EQ(config.devices_in_words(), "pipeline_parallel_size is 3, tensor_parallel_size 2");
  EXPECT_EQ(config.with_one_device().num_devices(), 1);
  config.pipeline_parallel_size = 2;
  config.pipeline_depth = 1;
  EXPECT_EQ(config.max_steps_in_flight(), 2);
}

TEST(EngineConfig, EachWrongValueIsNamed) {
  using Change = void (*)(EngineConfig&);
  const std::vector<std::pair<std::string, Change>> cases{
      {"model", [](EngineConfig& c) { c.model.clear(); }},
      {"served_model_name", [](EngineConfig& c) { c.served_model_name = "a,,b"; }},
      {"served_model_name", [](EngineConfig& c) { c.served_model_name = "a,"; }},
      {"served_model_name", [](EngineConfig& c) { c.served_model_name = " "; }},
      {"served_model_name", [](EngineConfig& c) { c.served_model_name = "a,b,a"; }},
      {"dtype", [](EngineConfig& c) { c.dtype = "int3"; }},
      {"kv_cache_dtype", [](EngineConfig& c) { c.kv_cache_dtype = ""; }},
      {"device", [](EngineConfig& c) { c.device = "tpu"; }},
      {"device", [](EngineConfig& c) { c.device = "cuda:"; }},
      {"device", [](EngineConfig& c) { c.device = "cuda:-1"; }},
      {"device", [](EngineConfig& c) { c.device = "cuda:1x"; }},
      {"device", [](EngineConfig& c) { c.device = "cuda:0,cuda:1"; }},
      {"device",
       [](EngineConfig& c) {
         c.device = "cuda:0,cuda:1";
         c.data_parallel_size = 3;
       }},
      {"device",
       [](EngineConfig& c) {
         c.device = "cuda:1";
         c.data_parallel_size = 2;
       }},
      {"device",
       [](EngineConfig& c) {
         c.device = "cuda:1,cuda:1";
         c.data_parallel_size = 2;
       }},
      {"device",
       [](EngineConfig& c) {
         c.device = "cuda:1,cpu";
         c.data_parallel_size = 2;
       }},
      {"data_parallel_size", [](EngineConfig& c) { c.data_parallel_size = 0; }},
      {"data_parallel_size", [](EngineConfig& c) { c.data_parallel_size = 65; }},
      {"data_parallel_size",
       [](EngineConfig& c) {
         c.data_parallel_size = 3;
         c.threads = 2;
       }},
      {"data_parallel_size",
       [](EngineConfig& c) {
         c.data_parallel_size = 2;
         c.worker_processes = true;
         c.worker_listen = "127.0.0.1:0";
         c.worker_tls_cert = c.worker_tls_key = c.worker_tls_ca = "file";
       }},
      {"enforce_eager", [](EngineConfig& c) { c.enforce_eager = true; }},
      {"swap_dir",
       [](EngineConfig& c) {
         c.device = "cuda";
         c.swap_dir = "/tmp";
         c.swap_space = 1;
       }},
      {"cpu_isa", [](EngineConfig& c) { c.cpu_isa = "mmx"; }},
      {"max_model_len", [](EngineConfig& c) { c.max_model_len = -1; }},
      {"block_size", [](EngineConfig& c) { c.block_size = -1; }},
      {"num_device_blocks", [](EngineConfig& c) { c.num_device_blocks = -1; }},
      {"max_chunk_ms", [](EngineConfig& c) { c.max_chunk_ms = -2; }},
      {"target_itl_ms", [](EngineConfig& c) { c.target_itl_ms = -1; }},
      {"target_ttft_ms", [](EngineConfig& c) { c.target_ttft_ms = -1; }},
      {"target_itl_ms",
       [](EngineConfig& c) {
         c.target_itl_ms = 50;
         c.enable_chunked_prefill = false;
       }},
      {"num_host_blocks", [](EngineConfig& c) { c.num_host_blocks = -2; }},
      {"swap_space", [](EngineConfig& c) { c.swap_space = -0.5; }},
      {"swap_space", [](EngineConfig& c) { c.swap_space = -2; }},
      {"swap_space", [](EngineConfig& c) { c.swap_space = std::numeric_limits<double>::quiet_NaN(); }},
      {"swap_space", [](EngineConfig& c) { c.swap_space = std::numeric_limits<double>::infinity(); }},
      {"kv_cache_memory", [](EngineConfig& c) { c.kv_cache_memory = std::numeric_limits<double>::quiet_NaN(); }},
      {"gpu_memory_utilization", [](EngineConfig& c) { c.gpu_memory_utilization = 0; }},
      {"gpu_memory_utilization", [](EngineConfig& c) { c.gpu_memory_utilization = 1.01; }},
      {"max_num_seqs", [](EngineConfig& c) { c.max_num_seqs = -1; }},
      {"max_num_batched_tokens",
       [](EngineConfig& c) {
         c.max_num_seqs = 256;
         c.max_num_batched_tokens = 255;
       }},
      {"touch_memory",
       [](EngineConfig& c) {
         c.device = "cuda";
         c.touch_memory = false;
       }},
      {"swap_dir", [](EngineConfig& c) { c.swap_dir = "/tmp"; }},
      {"swap_dir",
       [](EngineConfig& c) {
         c.swap_dir = "/tmp";
         c.swap_space = 0;
       }},
      {"long_prefill_token_threshold", [](EngineConfig& c) { c.long_prefill_token_threshold = -1; }},
      {"max_num_partial_prefills", [](EngineConfig& c) { c.max_num_partial_prefills = 0; }},
      {"priority_aging_s", [](EngineConfig& c) { c.priority_aging_s = -1; }},
      {"scheduler_delay_factor", [](EngineConfig& c) { c.scheduler_delay_factor = -0.5; }},
      {"watermark", [](EngineConfig& c) { c.watermark = 0.6; }},
      {"pipeline_depth", [](EngineConfig& c) { c.pipeline_depth = 3; }},
      {"speculative_config", [](EngineConfig& c) { c.speculative_config.text = R"({"method":"eagle"})"; }},
      {"speculative_config",
       [](EngineConfig& c) {
         c.speculative_config.text = R"({"method":"ngram"})";
         c.pipeline_parallel_size = 2;
       }},
      {"speculative_config",
       [](EngineConfig& c) {
         c.speculative_config.text = R"({"method":"ngram"})";
         c.journal = "j";
         c.journal_tokens = false;
       }},
      {"speculative_config",
       [](EngineConfig& c) {
         c.speculative_config.text = R"({"model":"small"})";
         c.tensor_parallel_size = 2;
         c.threads = 2;
       }},
      {"speculative_config",
       [](EngineConfig& c) {
         c.speculative_config.text = R"({"model":"small"})";
         c.worker_processes = true;
         c.worker_listen = "127.0.0.1:0";
         c.worker_tls_cert = c.worker_tls_key = c.worker_tls_ca = "f";
       }},
      {"cpu_affinity", [](EngineConfig& c) { c.cpu_affinity = "core"; }},
      {"threads", [](EngineConfig& c) { c.threads = -1; }},
      {"tensor_parallel_size", [](EngineConfig& c) { c.tensor_parallel_size = 0; }},
      {"tensor_parallel_size", [](EngineConfig& c) { c.tensor_parallel_size = 65; }},
      {"tensor_parallel_size",
       [](EngineConfig& c) {
         c.tensor_parallel_size = 4;
         c.data_parallel_size = 2;
         c.threads = 7;
       }},
      {"tensor_parallel_size",
       [](EngineConfig& c) {
         c.tensor_parallel_size = 2;
         c.device = "cuda";
       }},
      {"pipeline_parallel_size", [](EngineConfig& c) { c.pipeline_parallel_size = 0; }},
      {"pipeline_parallel_size", [](EngineConfig& c) { c.tensor_parallel_size = c.pipeline_parallel_size = 9; }},
      {"pipeline_parallel_size",
       [](EngineConfig& c) {
         c.pipeline_parallel_size = 2;
         c.device = "cuda";
       }},
      {"pipeline_parallel_size",
       [](EngineConfig& c) {
         c.tensor_parallel_size = c.pipeline_parallel_size = 2;
         c.threads = 3;
       }},
      {"max_queued_requests", [](EngineConfig& c) { c.max_queued_requests = 0; }},
      {"max_queued_prompt_tokens", [](EngineConfig& c) { c.max_queued_prompt_tokens = 0; }},
      {"max_queued_prompt_bytes", [](EngineConfig& c) { c.max_queued_prompt_bytes = 0; }},
      {"trace_max_events", [](EngineConfig& c) { c.trace_max_events = 0; }},
      {"max_sequences", [](EngineConfig& c) { c.limits.max_sequences = 16385; }},
      {"max_logprobs", [](EngineConfig& c) { c.limits.max_logprobs = -2; }},
      {"max_stop_strings", [](EngineConfig& c) { c.limits.max_stop_strings = 65; }},
      {"max_stop_string_bytes", [](EngineConfig& c) { c.limits.max_stop_string_bytes = 0; }},
      {"max_stop_token_ids", [](EngineConfig& c) { c.limits.max_stop_token_ids = 1025; }},
      {"max_logit_bias", [](EngineConfig& c) { c.limits.max_logit_bias = 1025; }},
      {"max_logprob_token_ids", [](EngineConfig& c) { c.limits.max_logprob_token_ids = 129; }},
      {"max_bad_words", [](EngineConfig& c) { c.limits.max_bad_words = 1025; }},
      {"max_bad_word_bytes", [](EngineConfig& c) { c.limits.max_bad_word_bytes = 1025; }},
      {"stream_interval", [](EngineConfig& c) { c.stream_interval = 0; }},
  };
  for (const auto& [key, change] : cases) {
    auto config = good();
    change(config);
    EXPECT_EQ(wrong_keys(config), std::vector<std::string>{key});
  }
}

TEST(EngineConfig, AGpuIsNamedByItsNumberOrIsTheFirst) {
  auto config = good();
  for (const auto& [device, index] : {std::pair("cuda", 0), std::pair("cuda:0", 0), std::pair("cuda:12", 12)}) {
    config.device = device;
    EXPECT_TRUE(wrong_keys(config).empty()) << device;
    EXPECT_EQ(config.cuda_index(), index);
  }
}

TEST(EngineConfig, EveryProblemIsReturnedAtOnce) {
  EngineConfig config;
  config.block_size = -3;
  config.pipeline_depth = 9;
  EXPECT_EQ(wrong_keys(config).size(), 3U);
}

TEST(EngineConfig, WithoutChunkedPrefillAStepMustHoldTheLongestPrompt) {
  auto config = good();
  config.enable_chunked_prefill = false;
  config.max_model_len = 4096;
  config.max_num_batched_tokens = 2048;
  EXPECT_EQ(wrong_keys(config), std::vector<std::string>{"max_num_batched_tokens"});
  config.max_num_batched_tokens = 4096;
  EXPECT_TRUE(wrong_keys(config).empty());
}

TEST(EngineConfig, AStepHasAsManyTokensAsSuitTheDeviceUnlessTold) {
  auto config = good();
  EXPECT_EQ(config.tokens_per_step(8192), 384);
  config.device = "cuda";
  EXPECT_EQ(config.tokens_per_step(8192), 2048);
  config.enable_chunked_prefill = false;
  EXPECT_EQ(config.tokens_per_step(8192), 8192);
  config.max_num_batched_tokens = 9000;
  EXPECT_EQ(config.tokens_per_step(8192), 9000);
}

TEST(EngineConfig, PromptsHaveAShareOfAStepHoweverManyRowsDecode) {
  auto config = good();
  for (const std::int32_t rows : {1, 16, 256, 1024, 5000}) {
    config.max_num_seqs = rows;
    config.device = "cpu";
    EXPECT_EQ(config.tokens_per_step(8192), rows + 128);
    config.device = "cuda";
    EXPECT_EQ(config.tokens_per_step(8192), std::max(2048, rows + 512));
  }
}

TEST(EngineConfig, ASmallStepThatIsAllAUserSaysLowersTheRows) {
  auto config = good();
  EXPECT_EQ(config.num_rows(), 256);
  for (const auto& [tokens, rows] : {std::pair(1, 1), {2, 1}, {8, 6}, {100, 75}, {255, 191}, {256, 256}, {4096, 256}}) {
    config.max_num_batched_tokens = tokens;
    EXPECT_EQ(config.num_rows(), rows) << tokens;
    EXPECT_TRUE(wrong_keys(config).empty()) << tokens;
  }
  config.max_num_batched_tokens = 100;
  config.max_num_seqs = 100;
  EXPECT_EQ(config.num_rows(), 100);
  EXPECT_TRUE(wrong_keys(config).empty());
  config.max_num_seqs = 101;
  EXPECT_EQ(wrong_keys(config), std::vector<std::string>{"max_num_batched_tokens"});
}

TEST(EngineConfig, SwapSpaceFollowsFromTheDeviceUnlessTold) {
  constexpr std::int64_t kGib = std::int64_t{1} << 30;
  auto config = good();
  EXPECT_EQ(config.swap_bytes(100 * kGib), 0);
  config.device = "cuda";
  EXPECT_EQ(config.swap_bytes(100 * kGib), 4 * kGib);
  EXPECT_EQ(config.swap_bytes(6 * kGib), 6 * kGib / 4);
  config.swap_space = 0;
  EXPECT_EQ(config.swap_bytes(100 * kGib), 0);
  EXPECT_TRUE(wrong_keys(config).empty());
  config.swap_space = 1.5;
  EXPECT_EQ(config.swap_bytes(0), 3 * kGib / 2);
}

TEST(EngineConfig, PromptsTakeALimitedTimeBesideDecodesOnACpuUnlessTold) {
  auto config = good();
  EXPECT_EQ(config.chunk_ms(), 100);
  EXPECT_EQ(config.chunk_stretch(), 2);
  config.target_itl_ms = 100;
  EXPECT_EQ(config.chunk_stretch(), 0);
  config.target_itl_ms = 0;
  config.device = "cuda";
  EXPECT_EQ(config.chunk_ms(), 0);
  EXPECT_EQ(config.chunk_stretch(), 0);
  config.device = "cpu";
  config.max_chunk_ms = 20;
  EXPECT_EQ(config.chunk_ms(), 20);
  EXPECT_EQ(config.chunk_stretch(), 0);
}

TEST(EngineConfig, ABlockHasAsManySlotsAsSuitTheDeviceUnlessTold) {
  auto config = good();
  EXPECT_EQ(config.slots_per_block(), 32);
  config.device = "cuda";
  EXPECT_EQ(config.slots_per_block(), 16);
  config.block_size = 8;
  EXPECT_EQ(config.slots_per_block(), 8);
}

}  // namespace
}  // namespace pagoda
