#include "pagoda/engine_plan.hpp"

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>

#include "io/model_files/hf_config.hpp"

namespace pagoda {
namespace {

constexpr double kBytesPerGib = 1024.0 * 1024.0 * 1024.0;
/// Without a budget of its own, the KV cache on a CPU takes at most this share of the memory that is free.
constexpr double kDefaultKvShare = 0.25;

Result<DType> chosen_dtype(const std::string& name, DType checkpoint) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16}) {
    if (name == to_string(dtype)) return dtype;
  }
  if (name == "auto") return checkpoint;
  return fail(ErrorCode::bad_config, "dtype must be auto, float32, float16 or bfloat16, not " + name, "dtype");
}

Result<DType> chosen_kv_dtype(const std::string& name, DType weights) {
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::fp8_e4m3, DType::int8}) {
    if (name == to_string(dtype)) return dtype;
  }
  if (name == "fp8") return DType::fp8_e4m3;
  if (name == "auto") return weights;
  return fail(ErrorCode::bad_config,
              "kv_cache_dtype must be auto, float32, float16, bfloat16, fp8_e4m3 (or fp8) or int8, not " + name,
              "kv_cache_dtype");
}

Result<std::int64_t> chosen_model_len(const EngineConfig& config, const models::ModelConfig& model) {
  if (config.max_model_len == 0) return model.max_position_embeddings;
  if (config.max_model_len > model.position_limit()) {
    return fail(ErrorCode::bad_config,
                "max_model_len is " + std::to_string(config.max_model_len) + ", the model knows positions up to " +
                    std::to_string(model.position_limit()),
                "max_model_len");
  }
  return config.max_model_len;
}

/// Tokens whose KV one sequence of max_model_len holds at most: all, or with a sliding window those in it and a chunk.
std::int64_t tokens_held(const EngineConfig& config, const models::ModelConfig& model, std::int64_t max_model_len) {
  if (model.sliding_window == 0 || !config.enable_chunked_prefill) return max_model_len;
  return std::min(max_model_len,
                  std::int64_t{model.sliding_window} + config.max_num_batched_tokens + config.block_size);
}

/// Blocks of the device pool: as told, or as the memory budget allows, but no more than max_num_seqs full contexts.
Result<std::int32_t> num_device_blocks(const EngineConfig& config, const models::ModelConfig& model,
                                       const models::MemoryPlan& plan, std::int64_t max_model_len) {
  if (config.num_device_blocks > 0) return config.num_device_blocks;
  const std::int64_t blocks_per_context = (max_model_len + config.block_size - 1) / config.block_size;
  if (plan.num_blocks * config.block_size < tokens_held(config, model, max_model_len)) {
    const bool was_told = config.kv_cache_memory > 0;  // else the machine is too small
    return fail(was_told ? ErrorCode::bad_config : ErrorCode::out_of_memory,
                "the KV cache would hold " + std::to_string(plan.num_blocks * config.block_size) +
                    " tokens, less than one sequence of max_model_len " + std::to_string(max_model_len) +
                    ": raise kv_cache_memory or lower max_model_len",
                "kv_cache_memory");
  }
  return static_cast<std::int32_t>(std::min(plan.num_blocks, blocks_per_context * config.max_num_seqs));
}

}  // namespace

Result<std::shared_ptr<kernels::Device>> create_device(const EngineConfig& config) {
  if (config.device != "cpu") {
    return fail(ErrorCode::unsupported, "device " + config.device + " is not in this build", "device");
  }
  return kernels::create_cpu_device({config.threads, config.cpu_isa});
}

Result<EnginePlan> plan_engine(const EngineConfig& config, const kernels::Device& device) {
  const std::filesystem::path folder = config.model;
  EnginePlan plan;
  auto model = io::load_hf_config(folder);
  if (!model) return fail(model.error());
  plan.model = std::move(*model);
  const auto dtype = chosen_dtype(config.dtype, plan.model.checkpoint_dtype);
  if (!dtype) return fail(dtype.error());
  const auto kv_dtype = chosen_kv_dtype(config.kv_cache_dtype, *dtype);
  if (!kv_dtype) return fail(kv_dtype.error());
  plan.dtype = *dtype;
  plan.kv_dtype = *kv_dtype;
  plan.weights = models::weight_policy(config.dtype, config.quantize);
  const auto max_model_len = chosen_model_len(config, plan.model);
  if (!max_model_len) return fail(max_model_len.error());
  const std::int32_t max_tokens = config.max_num_batched_tokens;
  if (!config.enable_chunked_prefill && max_tokens < *max_model_len) {
    return fail(ErrorCode::bad_config,
                "without chunked prefill max_num_batched_tokens must be at least max_model_len (" +
                    std::to_string(*max_model_len) + "), not " + std::to_string(max_tokens),
                "max_num_batched_tokens");
  }
  plan.limits = {max_tokens, config.max_num_seqs, *max_model_len};

  auto checkpoint = io::Checkpoint::open(folder);
  if (!checkpoint) return fail(checkpoint.error());
  plan.checkpoint = std::move(*checkpoint);
  const auto free_bytes = static_cast<double>(device.available_bytes(kernels::MemoryKind::device));
  const double kv_budget =
      config.kv_cache_memory > 0 ? config.kv_cache_memory * kBytesPerGib : free_bytes * kDefaultKvShare;
  const auto facts = plan.checkpoint->facts();
  const auto weight_bytes =
      models::loaded_weight_bytes(plan.model, plan.weights, facts.num_parameters, facts.weight_bytes);
  models::MemoryRequest request{weight_bytes, plan.kv_dtype, config.block_size, plan.limits, 0};
  request.budget_bytes = models::plan_memory(plan.model, request).fixed_bytes() + static_cast<std::int64_t>(kv_budget);
  plan.memory = models::plan_memory(plan.model, request);
  const auto device_blocks = num_device_blocks(config, plan.model, plan.memory, *max_model_len);
  if (!device_blocks) return fail(device_blocks.error());
  plan.num_device_blocks = *device_blocks;
  plan.num_host_blocks = config.num_host_blocks >= 0
                             ? config.num_host_blocks
                             : static_cast<std::int32_t>(config.swap_space * kBytesPerGib /
                                                         static_cast<double>(plan.memory.kv_bytes_per_block));
  return plan;
}

}  // namespace pagoda
