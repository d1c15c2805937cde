#include "pagoda/engine_parts.hpp"

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>

#include "actors/clock.hpp"
#include "engine/models/memory_plan.hpp"
#include "engine/models/model.hpp"
#include "io/model_files/checkpoint.hpp"
#include "io/model_files/hf_config.hpp"
#include "io/model_files/tokenizer_json.hpp"

namespace pagoda {
namespace {

constexpr double kBytesPerGib = 1024.0 * 1024.0 * 1024.0;
/// Without a budget of its own, the KV cache on a CPU takes at most this share of the memory that is free.
constexpr double kDefaultKvShare = 0.25;

Result<DType> chosen_dtype(const std::string& name, DType checkpoint, const char* key) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    if (name == to_string(dtype)) return dtype;
  }
  if (name == "auto") return checkpoint;
  return fail(ErrorCode::bad_config, std::string(key) + " must be auto, float32, float16 or bfloat16, not " + name, key);
}

Result<std::int64_t> chosen_model_len(const EngineConfig& config, const models::ModelConfig& model) {
  if (config.max_model_len == 0) return model.max_position_embeddings;
  if (config.max_model_len > model.max_position_embeddings) {
    return fail(ErrorCode::bad_config,
                "max_model_len is " + std::to_string(config.max_model_len) + ", the model knows positions up to " +
                    std::to_string(model.max_position_embeddings), "max_model_len");
  }
  return config.max_model_len;
}

/// Blocks of the device pool: as told, or as the memory budget allows, but no more than max_num_seqs full contexts.
Result<std::int32_t> num_device_blocks(const EngineConfig& config, const models::MemoryPlan& plan,
                                       std::int64_t max_model_len) {
  if (config.num_device_blocks > 0) return config.num_device_blocks;
  const std::int64_t blocks_per_context = (max_model_len + config.block_size - 1) / config.block_size;
  if (plan.num_blocks < blocks_per_context) {
    return fail(ErrorCode::out_of_memory,
                "the KV cache would hold " + std::to_string(plan.num_blocks * config.block_size) +
                    " tokens, less than one sequence of max_model_len " + std::to_string(max_model_len) +
                    ": raise kv_cache_memory or lower max_model_len", "kv_cache_memory");
  }
  return static_cast<std::int32_t>(std::min(plan.num_blocks, blocks_per_context * config.max_num_seqs));
}

Status check_supported(const EngineConfig& config, DType dtype, DType checkpoint) {
  if (config.device != "cpu") {
    return fail(ErrorCode::unsupported, "device " + config.device + " is not in this build", "device");
  }
  if (dtype != checkpoint) {
    return fail(ErrorCode::unsupported,
                "dtype " + std::string(to_string(dtype)) + ": the checkpoint is " + std::string(to_string(checkpoint)) +
                    " and is used as it lies", "dtype");
  }
  return {};
}

std::string model_name(const EngineConfig& config) {
  if (!config.served_model_name.empty()) return config.served_model_name;
  const auto path = std::filesystem::path(config.model).lexically_normal();
  return path.has_filename() ? path.filename().string() : path.parent_path().filename().string();
}

}  // namespace

Result<EngineParts> load_engine_parts(const EngineConfig& config) {
  if (const auto problems = config.validate(); !problems.empty()) return fail(problems.front());
  const std::filesystem::path folder = config.model;

  const auto model = io::load_hf_config(folder);
  if (!model) return fail(model.error());
  auto tokenizer = io::load_tokenizer(folder);
  if (!tokenizer) return fail(tokenizer.error());
  const auto dtype = chosen_dtype(config.dtype, model->checkpoint_dtype, "dtype");
  if (!dtype) return fail(dtype.error());
  const auto kv_dtype = chosen_dtype(config.kv_cache_dtype, *dtype, "kv_cache_dtype");
  if (!kv_dtype) return fail(kv_dtype.error());
  if (Status supported = check_supported(config, *dtype, model->checkpoint_dtype); !supported) {
    return fail(supported.error());
  }
  const auto max_model_len = chosen_model_len(config, *model);
  if (!max_model_len) return fail(max_model_len.error());
  const std::int32_t max_tokens = config.max_num_batched_tokens;
  if (!config.enable_chunked_prefill && max_tokens < *max_model_len) {
    return fail(ErrorCode::bad_config,
                "without chunked prefill max_num_batched_tokens must be at least max_model_len (" +
                    std::to_string(*max_model_len) + "), not " + std::to_string(max_tokens), "max_num_batched_tokens");
  }

  auto opened = io::Checkpoint::open(folder);
  if (!opened) return fail(opened.error());
  const std::shared_ptr<io::Checkpoint> checkpoint = std::move(*opened);
  const auto device = kernels::create_cpu_device({config.threads, config.cpu_isa});
  if (!device) return fail(device.error());

  const models::ModelLimits limits{max_tokens, config.max_num_seqs, *max_model_len};
  const auto free_bytes = static_cast<double>((*device)->available_bytes(kernels::MemoryKind::device));
  const double kv_budget = config.kv_cache_memory > 0 ? config.kv_cache_memory * kBytesPerGib : free_bytes * kDefaultKvShare;
  models::MemoryRequest request{checkpoint->facts().weight_bytes, *kv_dtype, config.block_size, limits, 0};
  request.budget_bytes = models::plan_memory(*model, request).fixed_bytes() + static_cast<std::int64_t>(kv_budget);
  const models::MemoryPlan plan = models::plan_memory(*model, request);
  const auto device_blocks = num_device_blocks(config, plan, *max_model_len);
  if (!device_blocks) return fail(device_blocks.error());
  const auto host_blocks = config.num_host_blocks >= 0
                               ? config.num_host_blocks
                               : static_cast<std::int32_t>(config.swap_space * kBytesPerGib /
                                                           static_cast<double>(plan.kv_bytes_per_block));
  auto memory = execution::KvMemory::create(*device, plan.kv_bytes_per_block, *device_blocks, host_blocks);
  if (!memory) return fail(memory.error());
  auto copy_stream = (*device)->create_stream("pagoda-copy");
  if (!copy_stream) return fail(copy_stream.error());

  EngineParts parts;
  parts.tokenizer = std::move(*tokenizer);
  parts.memory = *memory;
  parts.copy_stream = std::move(*copy_stream);
  const execution::RunnerConfig runner{config.max_num_seqs, max_tokens, *max_model_len, model->vocab_size,
                                       model->eos_token_ids};
  const models::KvCache cache{(*memory)->device_base(), *device_blocks, config.block_size, *kv_dtype};
  parts.make_worker = [=, device = *device, model = *model, kv_memory = *memory]() -> Result<actors::WorkerParts> {
    auto loaded = models::create_model(model, *checkpoint, device, limits);
    if (!loaded) return fail(loaded.error());
    auto stream = device->create_stream("pagoda-step");
    if (!stream) return fail(stream.error());
    // The runner's model points into the mapped checkpoint and its steps write the KV memory, so it keeps both.
    auto* made = new execution::ModelRunner(runner, std::move(*loaded), device, cache, actors::now_us);
    const auto end = [checkpoint, kept = kv_memory](execution::ModelRunner* p) { delete p; };
    return actors::WorkerParts{{made, end}, std::move(*stream)};
  };
  parts.scheduler.max_num_seqs = config.max_num_seqs;
  parts.scheduler.max_num_batched_tokens = max_tokens;
  parts.scheduler.pipeline_depth = config.pipeline_depth;
  parts.scheduler.enable_chunked_prefill = config.enable_chunked_prefill;
  parts.scheduler.can_swap = host_blocks > 0;
  parts.scheduler.policy = config.scheduling_policy;
  parts.scheduler.preemption = config.preemption_mode;
  parts.scheduler.eos_token_ids = model->eos_token_ids;
  parts.blocks = {config.block_size, *device_blocks, host_blocks, config.watermark, config.enable_prefix_caching,
                  model->sliding_window};
  parts.limits.vocab_size = model->vocab_size;
  parts.limits.max_model_len = *max_model_len;
  parts.limits.max_kv_tokens = std::int64_t{*device_blocks} * config.block_size;
  parts.limits.max_num_seqs = config.max_num_seqs;
  parts.limits.max_queued_requests = config.max_queued_requests;
  parts.limits.max_queued_prompt_tokens = config.max_queued_prompt_tokens;
  parts.limits.sampling = config.limits;
  parts.limits.seed = config.seed;
  parts.info = {model_name(config), model->architecture, std::string(to_string(*dtype)),
                std::string(to_string(*kv_dtype)), (*device)->description(), model->vocab_size, *max_model_len,
                config.block_size, *device_blocks, host_blocks, config.max_num_seqs, max_tokens, config.pipeline_depth};
  return parts;
}

}  // namespace pagoda
