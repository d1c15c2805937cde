#include "pagoda/engine_parts.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>
#include <utility>

#include <spdlog/spdlog.h>

#include "io/model_files/generation_config.hpp"
#include "io/model_files/tokenizer_loader.hpp"
#include "io/swap_file.hpp"
#include "pagoda/engine_plan.hpp"
#include "pagoda/model_loader.hpp"

namespace pagoda {
namespace {

Result<trace::SharedTrace> open_trace(const EngineConfig& config) {
  if (config.trace.empty()) return nullptr;
  auto file = std::make_unique<std::ofstream>(config.trace, std::ios::binary | std::ios::trunc);
  if (!*file) {
    return fail(ErrorCode::bad_config, "trace: cannot write " + config.trace + ": " + std::strerror(errno), "trace");
  }
  return std::make_shared<trace::StepTrace>(std::move(file), config.trace_max_events);
}

std::string model_name(const EngineConfig& config) {
  if (!config.served_model_name.empty()) return config.served_model_name;
  const auto path = std::filesystem::path(config.model).lexically_normal();
  return path.has_filename() ? path.filename().string() : path.parent_path().filename().string();
}

/// Tokens whose KV the pool can hold, one after the other: with a sliding window a prompt in chunks leaves behind what
/// no later token sees, so that its length does not matter.
std::int64_t longest_prompt(const EngineConfig& config, const EnginePlan& plan) {
  const KvGroup& kv = plan.layout.only();
  const std::int64_t slots = std::int64_t{plan.num_device_blocks} * kv.block_size;
  const bool leaves_behind = kv.has_window() && config.enable_chunked_prefill && slots > kv.window;
  return leaves_behind ? std::max(slots, plan.limits.max_model_len) : slots;
}

/// A client that knew the key could construct prompts whose blocks have equal hashes, so it is drawn for each engine.
Result<std::array<std::uint64_t, 2>> random_prefix_hash_key() {
  try {
    std::random_device random;
    const auto word = [&] { return (std::uint64_t{random()} << 32U) | random(); };
    return std::array{word(), word()};
  } catch (const std::exception& error) {
    return fail(ErrorCode::io_failed, std::string("the system gives no random numbers: ") + error.what());
  }
}

/// A pool that the user made small is allowed, but says what it means for long requests.
void warn_of_small_pool(const EngineConfig& config, std::int32_t device_blocks, std::int64_t longest,
                        std::int64_t max_model_len) {
  if (longest >= max_model_len) return;
  spdlog::warn(
      "the KV cache holds {} tokens ({} blocks of {}), fewer than max_model_len {}: longer prompts are refused and "
      "outputs that outgrow it end with finish_reason length; raise num_device_blocks or lower max_model_len",
      longest, device_blocks, config.slots_per_block(), max_model_len);
}

}  // namespace

Result<EngineParts> load_engine_parts(const EngineConfig& config, const EngineSetup& setup) {
  if (const auto problems = config.validate(); !problems.empty()) return fail(problems.front());
  const auto device =
      setup.device != nullptr ? Result<std::shared_ptr<kernels::Device>>(setup.device) : create_device(config);
  if (!device) return fail(device.error());
  const auto available = static_cast<std::int64_t>((*device)->available_bytes(kernels::MemoryKind::device));
  auto plan = plan_engine(config, **device);
  if (!plan) return fail(plan.error());
  const auto defaults = config.generation_config == "auto" ? io::load_sampling_defaults(config.model)
                                                           : Result<SamplingDefaults>(SamplingDefaults{});
  if (!defaults) return fail(defaults.error());
  auto tokenizer = io::load_tokenizer(config.model);
  if (!tokenizer) return fail(tokenizer.error());
  const models::ModelSpec& model = plan->model;
  const layers::ModelLimits& limits = plan->limits;
  const std::int32_t max_tokens = limits.max_tokens;
  const std::int64_t max_model_len = limits.max_model_len;
  const std::int32_t host_blocks = plan->num_host_blocks;
  const std::int64_t block_bytes = plan->memory.kv_bytes_per_block;
  const auto loader = ModelLoader::create(config, *plan, *device, setup.progress);
  if (!loader) return fail(loader.error());
  if (plan->measures_kv_cache) {
    const auto free_bytes = (*loader)->measure_free_bytes();
    if (!free_bytes) return fail(free_bytes.error());
    const auto spared =
        static_cast<std::int64_t>((1.0 - config.gpu_memory_utilization) * static_cast<double>(available));
    const auto blocks = size_kv_cache(config, *plan, *free_bytes - spared);
    if (!blocks) return fail(blocks.error());
    plan->num_device_blocks = *blocks;
  }
  const std::int32_t device_blocks = plan->num_device_blocks;
  const bool takes_memory_now = (*device)->shares_host_memory() && config.touch_memory;
  if (takes_memory_now) {
    if (const Status fits = check_host_memory(config, *plan); !fits) return fail(fits.error());
  }
  Result<kernels::Buffer> swap_file;
  if (!config.swap_dir.empty() && host_blocks > 0) {
    swap_file = io::map_swap_file(config.swap_dir, block_bytes * host_blocks);
  }
  if (!swap_file) return fail(swap_file.error());
  auto memory = execution::KvMemory::create(*device, block_bytes, device_blocks, host_blocks, std::move(*swap_file));
  if (!memory) return fail(memory.error());
  if (takes_memory_now) {
    const auto report = [&](double done) {
      if (setup.progress) setup.progress("taking memory for the KV cache", done);
    };
    if (const Status touched = (*memory)->touch(report); !touched) return fail(touched.error());
  }
  auto trace = open_trace(config);
  if (!trace) return fail(trace.error());
  const auto prefix_hash_key = random_prefix_hash_key();
  if (!prefix_hash_key) return fail(prefix_hash_key.error());

  EngineParts parts;
  parts.trace = std::move(*trace);
  parts.tokenizer = std::move(*tokenizer);
  parts.device.make_worker = [loader = *loader, kv_memory = *memory, device_blocks] {
    return loader->make_worker(kv_memory, device_blocks);
  };
  parts.device.make_cache_engine = [device = *device, kv_memory = *memory]() -> Result<actors::CacheParts> {
    auto stream = device->create_stream("pagoda-copy");
    if (!stream) return fail(std::move(stream.error()));
    return actors::CacheParts{kv_memory, std::move(*stream)};
  };
  parts.scheduler.max_num_seqs = config.num_rows();
  parts.scheduler.max_num_batched_tokens = max_tokens;
  parts.scheduler.max_chunk_us = TimeUs{1000} * config.chunk_ms();
  parts.scheduler.pipeline_depth = config.pipeline_depth;
  parts.scheduler.enable_chunked_prefill = config.enable_chunked_prefill;
  parts.scheduler.can_swap = host_blocks > 0;
  parts.scheduler.block_bytes = block_bytes;
  parts.scheduler.num_device_blocks = device_blocks;
  parts.scheduler.num_host_blocks = host_blocks;
  parts.scheduler.policy = config.scheduling_policy;
  parts.scheduler.priority_aging_s = config.priority_aging_s;
  parts.scheduler.delay_factor = config.scheduler_delay_factor;
  parts.scheduler.preemption = config.preemption_mode;
  parts.scheduler.eos_token_ids = model.eos_token_ids;
  parts.blocks = {.layout = plan->layout,
                  .num_device_blocks = device_blocks,
                  .num_host_blocks = host_blocks,
                  .watermark = config.watermark,
                  .enable_prefix_caching = config.enable_prefix_caching,
                  .prefix_hash_key = *prefix_hash_key};
  parts.limits.vocab_size = model.vocab_size;
  parts.limits.eos_token_ids = model.eos_token_ids;
  parts.limits.max_model_len = max_model_len;
  parts.limits.max_kv_tokens = longest_prompt(config, *plan);
  warn_of_small_pool(config, device_blocks, parts.limits.max_kv_tokens, max_model_len);
  parts.limits.max_num_seqs = config.num_rows();
  parts.limits.max_queued_requests = config.max_queued_requests;
  parts.limits.max_queued_prompt_tokens = config.max_queued_prompt_tokens;
  parts.limits.max_queued_prompt_bytes = config.max_queued_prompt_bytes;
  parts.limits.max_bytes_per_token = parts.tokenizer->max_bytes_per_token();
  parts.limits.sampling = config.limits;
  parts.limits.defaults = *defaults;
  parts.limits.seed = config.seed;
  parts.info = {.name = model_name(config),
                .architecture = model.architecture,
                .dtype = std::string(to_string(plan->dtype)),
                .kv_cache_dtype = std::string(to_string(plan->kv_dtype)),
                .device = (*device)->description(),
                .vocab_size = model.vocab_size,
                .max_model_len = max_model_len,
                .block_size = config.slots_per_block(),
                .num_device_blocks = device_blocks,
                .num_host_blocks = host_blocks,
                .max_num_seqs = config.num_rows(),
                .max_num_batched_tokens = max_tokens,
                .pipeline_depth = config.pipeline_depth};
  return parts;
}

}  // namespace pagoda
