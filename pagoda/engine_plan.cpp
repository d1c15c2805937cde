#include "pagoda/engine_plan.hpp"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <string>
#include <utility>

#include "engine/adapters/bound_adapter.hpp"
#include "engine/scheduling/scheduler_config.hpp"
#include "engine/weights/measured_weights.hpp"
#include "engine/weights/rank_weights.hpp"
#include "io/device_link/frame_channel.hpp"
#include "kernels/cpu/cpu_memory.hpp"
#include "kernels/cpu_parts.hpp"
#include "kernels/cuda/cuda_device.hpp"

namespace pagoda {
namespace {

/// Share of free memory that the KV cache on a CPU takes at most when no budget is configured.
constexpr double kDefaultKvShare = 0.25;
constexpr std::int64_t kMaxBlocks = std::numeric_limits<BlockId>::max();

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

Result<std::int64_t> chosen_model_len(const EngineConfig& config, const models::ModelSpec& model) {
  if (config.max_model_len == 0) return model.max_position_embeddings;
  if (config.max_model_len > model.position_limit) {
    return fail(ErrorCode::bad_config,
                "max_model_len is " + std::to_string(config.max_model_len) +
                    ", but the model has positions only up to " + std::to_string(model.position_limit),
                "max_model_len");
  }
  return config.max_model_len;
}

models::RankPlace place_of(const EngineConfig& config) {
  const std::int32_t num_ranks = config.tensor_parallel_size;
  return {config.rank % num_ranks, num_ranks, config.rank / num_ranks, config.pipeline_parallel_size};
}

/// Returns how many blocks fit so many bytes of each stage, all stages of a host together: stages have as many blocks,
/// which are as large as their layers need.
std::int64_t num_blocks_in(std::int64_t bytes_of_stage, const EngineConfig& config, const EnginePlan& plan) {
  models::RankPlace place = plan.model.place;
  if (place.num_stages == 1 || config.has_own_host) return bytes_of_stage / plan.memory.kv_bytes_per_block;
  std::int64_t block_bytes = 0;
  for (place.stage = 0; place.stage < place.num_stages; ++place.stage) {
    const models::ModelSpec part = plan.model.of_rank(place);
    block_bytes += part.kv_layout(config.slots_per_block(), plan.kv_dtype).block_bytes();
  }
  return bytes_of_stage * place.num_stages / block_bytes;
}

/// Returns the place of a draft head's features in blocks of this layout.
models::FeatureLayout features_of(const models::ModelSpec& head, const KvLayout& layout) {
  return {.hidden_size = head.decoder.hidden_size, .block_size = layout.block_size()};
}

tl::unexpected<Error> refuse_draft_model(ErrorCode code, const std::string& what) {
  return fail(code, "speculative_config: the draft model: " + what, "speculative_config");
}

/// The use of a planned model: it answers requests, or it makes drafts for another model.
enum class Role : std::uint8_t { target, draft };
Result<EnginePlan> plan_in_role(const EngineConfig& config, Role role);

/// Checks that a draft head is for the planned model, and chooses the layers whose inputs it reads.
Status fit_draft_head(const models::ModelSpec& model, models::ModelSpec& head) {
  models::DraftHeadFacts& facts = *head.draft_head;
  const auto refuse_unless_same = [](const char* what, std::int64_t its, std::int64_t of_model) -> Status {
    if (its == of_model) return {};
    return refuse_draft_model(ErrorCode::bad_config, std::string("it is for a model with ") + what + " " +
                                                         std::to_string(its) + ", and the model has " +
                                                         std::to_string(of_model));
  };
  if (Status same = refuse_unless_same("vocab_size", head.vocab_size, model.vocab_size); !same) return same;
  if (Status same = refuse_unless_same("hidden_size", facts.target_hidden_size, model.decoder.hidden_size); !same) {
    return same;
  }
  const std::int64_t num_layers = model.decoder.num_layers();
  const bool is_default = facts.feature_layers.empty();
  if (is_default) facts.feature_layers = models::DraftHeadFacts::default_feature_layers(num_layers);
  const auto& layers = facts.feature_layers;
  if (std::ranges::is_sorted(layers) && layers.front() >= 0 && layers.back() < num_layers) return {};
  return refuse_draft_model(ErrorCode::bad_config,
                            is_default
                                ? "its config needs eagle_aux_hidden_state_layer_ids, since the model has only " +
                                      std::to_string(num_layers) + " layers"
                                : "its eagle_aux_hidden_state_layer_ids has layer " + std::to_string(layers.back()) +
                                      ", and the model has " + std::to_string(num_layers) + " layers");
}

/// Adds the features of a draft head to the draft model's part of a block, and rounds the block up so that rows of
/// features can be counted across blocks.
void add_features(const models::FeatureLayout& features, KvLayout& layout) {
  constexpr std::int64_t kAlignment = 64;
  const std::int64_t unit = std::lcm(features.half_bytes(), kAlignment);
  layout.draft_bytes += features.bytes();
  layout.draft_bytes = (layout.block_bytes() + unit - 1) / unit * unit - layout.draft_offset();
}

/// Adds the plan of the draft model, whose KV lies in the blocks of the first group.
Status plan_draft_model(const EngineConfig& config, EnginePlan& plan) {
  EngineConfig its = config;
  its.model = config.speculation().draft_model;
  its.speculative_config = {};
  its.max_model_len = plan.limits.max_model_len;
  its.kv_cache_dtype = to_string(plan.kv_dtype);
  auto draft = plan_in_role(its, Role::draft);
  if (!draft) return refuse_draft_model(draft.error().code, draft.error().message);
  if (draft->model.draft_head.has_value() != config.speculation().has_draft_head()) {
    return refuse_draft_model(ErrorCode::bad_config, draft->model.draft_head
                                                         ? R"(it is a draft head: add "method": "eagle3")"
                                                         : "it is no draft head, but a " + draft->model.architecture +
                                                               R"(: leave out "method": "eagle3")");
  }
  if (draft->model.draft_head) {
    if (Status fits = fit_draft_head(plan.model, draft->model); !fits) return fits;
  }
  if (plan.layout.groups.front().has_window()) {
    return refuse_draft_model(ErrorCode::bad_config,
                              "all layers of the model have a window, so no blocks keep all tokens");
  }
  draft->limits = plan.limits;
  plan.layout.draft_bytes = draft->layout.num_groups() * draft->layout.block_bytes();
  if (draft->model.draft_head) add_features(features_of(draft->model, plan.layout), plan.layout);
  plan.draft = std::make_shared<EnginePlan>(std::move(*draft));
  return {};
}

/// Returns the weights of the rank whose plan it is.
std::shared_ptr<const weights::WeightSource> weights_of_rank(const EnginePlan& plan) {
  const models::RankPlace place = plan.model.place;
  if (place.num_ranks == 1) return plan.checkpoint;  // a stage takes only its layers
  const auto slice = [decoder = plan.model.decoder, place](std::string_view module) {
    return models::slice_of(decoder, place, module);
  };
  return {new weights::RankWeights(*plan.checkpoint, place.rank == 0, plan.weights.keep_quantized, slice),
          [checkpoint = plan.checkpoint](weights::RankWeights* part) { delete part; }};
}

/// Returns the bytes that the memory plan may give to the KV cache.
std::int64_t kv_budget(const EngineConfig& config, const kernels::Device& device, std::int64_t fixed_bytes) {
  if (config.kv_cache_memory > 0) return static_cast<std::int64_t>(config.kv_cache_memory * kBytesPerGib);
  const auto free_bytes = static_cast<double>(device.available_bytes(kernels::MemoryKind::device));
  if (device.shares_host_memory()) {
    return static_cast<std::int64_t>(free_bytes * kDefaultKvShare / config.num_devices_on_host());
  }
  return std::max<std::int64_t>(0, static_cast<std::int64_t>(free_bytes * config.gpu_memory_utilization) - fixed_bytes);
}

/// Returns whether plain weights are copied into the device's memory, where they are faster to read than in a mapped
/// file. `needed`: bytes that the engine's replicas take without the copy.
bool copies_linear(const EngineConfig& config, const kernels::Device& device, bool is_mapped, std::int64_t copied,
                   std::int64_t needed) {
  if (!device.shares_host_memory() || config.weight_memory == "mapped") return false;
  if (config.weight_memory == "copied") return true;
  if (!is_mapped) return false;
  const auto free_bytes = static_cast<std::int64_t>(device.available_bytes(kernels::MemoryKind::device));
  return copied <= free_bytes / 2 && copied <= free_bytes - needed;
}

/// Returns the number of blocks in the pool for swapped blocks. A number that is derived from the device is at most the
/// number that all rows can fill.
std::int32_t host_blocks(const EngineConfig& config, const EnginePlan& plan, const kernels::Device& device) {
  if (config.num_host_blocks >= 0) return config.num_host_blocks;
  const auto free_bytes = static_cast<std::int64_t>(device.available_bytes(kernels::MemoryKind::host));
  const std::int64_t num_blocks = num_blocks_in(config.swap_bytes(free_bytes), config, plan);
  const std::int64_t useful = config.swap_space < 0 ? blocks_for_all_rows(config, plan) : kMaxBlocks;
  return static_cast<std::int32_t>(std::min({num_blocks, kMaxBlocks, useful}));
}

/// Memory that a model takes of a device.
struct MeasuredModel {
  std::int64_t weight_bytes = 0;         ///< all weights, as loaded
  std::int64_t copied_weight_bytes = 0;  ///< as EnginePlan::copied_weight_bytes
  models::ModelMemory memory;
  std::int64_t adapter_bytes = 0;  ///< as models::MemoryRequest::adapter_bytes
};

/// Returns the memory through which a rank of several exchanges rows with the others, for its part.
std::int64_t exchange_bytes(const EngineConfig& config, const EnginePlan& plan) {
  const kernels::RankMemoryShape shape = rank_memory_shape(plan);
  if (!config.has_own_host) return kernels::RankMemory::bytes(shape) / config.num_ranks();
  return config.max_steps_in_flight() * shape.row_floats * std::int64_t{sizeof(float)};  // of device_link::StageLink
}

/// Returns the bytes of all adapters that may be loaded at a time. Any of them may be of the larger kind.
std::int64_t planned_adapter_bytes(const EngineConfig& config, const layers::AdapterModules& modules) {
  const std::int64_t lora = config.enable_lora ? adapters::planned_bytes(config.max_lora_rank, modules) : 0;
  const std::int64_t prompt =
      config.enable_prompt_adapter ? adapters::planned_prompt_bytes(config.max_prompt_adapter_token, modules) : 0;
  return config.num_loaded_adapters() * std::max(lora, prompt);
}

/// Measures the planned model. Reads no weights.
Result<MeasuredModel> measure_model(const EngineConfig& config, const EnginePlan& plan, const kernels::Device& device) {
  const weights::MeasuredWeights weights(*plan.stored, plan.weights);
  const auto model = plan.model.build(weights);
  if (!model) return fail(model.error());
  models::ModelMemory memory = (*model)->memory(plan.limits, device.ops().supports_narrow_rows());
  if (config.num_ranks() > 1) memory.activation_bytes += exchange_bytes(config, plan);
  return MeasuredModel{
      .weight_bytes = weights.loaded_bytes(),
      .copied_weight_bytes = plan.checkpoint->is_mapped() ? weights.copied_bytes() : weights.loaded_bytes(),
      .memory = memory,
      .adapter_bytes = planned_adapter_bytes(config, (*model)->adapter_modules())};
}

/// Adds the memory of the draft model. Rows have no adapters there.
Status add_draft_model(const EngineConfig& config, const kernels::Device& device, EnginePlan& draft,
                       models::MemoryRequest& request) {
  draft.weights.on_gpu = device.kind() != kernels::DeviceKind::cpu;
  const auto measured = measure_model(config, draft, device);
  if (!measured) return refuse_draft_model(measured.error().code, measured.error().message);
  draft.weight_bytes = measured->weight_bytes;
  draft.copied_weight_bytes = measured->copied_weight_bytes;
  request.weight_bytes += measured->weight_bytes;
  request.model.activation_bytes += measured->memory.activation_bytes;
  request.model.position_bytes += measured->memory.position_bytes;
  return {};
}

/// Checks that one message holds the results of a step of a worker process, with all log-probabilities that requests
/// may ask for.
Status check_step_results(const EngineConfig& config, const EnginePlan& plan) {
  if (!config.worker_processes) return {};
  constexpr std::int64_t kLogprobBytes = 8;  // maximum bytes of a token id and its log-probability
  // A row at the end of its prompt lists candidates for a prompt token and for its sample.
  const std::int64_t of_token = num_logprobs(config.limits.max_logprobs, plan.model.vocab_size) * kLogprobBytes;
  const std::int64_t of_row = 2 * of_token;
  const std::int64_t of_prompts = config.enable_chunked_prefill ? scheduling::kMaxPromptLogprobsOfStep * kLogprobBytes
                                                                : plan.limits.max_tokens * of_token;
  const auto most = static_cast<std::int64_t>(config.worker_listen.empty() ? device_link::kMaxFrameBytes
                                                                           : device_link::kMaxFrameBytesOfWorkers);
  if (of_row <= 2 * SamplingLimits{}.max_logprobs * kLogprobBytes ||
      config.samples_per_step() * of_row + of_prompts <= most) {
    return {};
  }
  return fail(ErrorCode::bad_config,
              "max_logprobs " + std::to_string(config.limits.max_logprobs) + " of " +
                  std::to_string(config.num_rows()) +
                  " sequences (max_num_seqs) do not fit in one message of a worker process; lower max_num_seqs or "
                  "max_logprobs",
              "max_logprobs");
}

}  // namespace

Result<std::shared_ptr<kernels::Device>> create_host_device(const EngineConfig& config) {
  // Replicas on GPUs load one after the other, so each may use all threads.
  const bool is_part = config.device == "cpu" && !config.has_own_host;
  const int device = config.replica * config.num_ranks() + config.rank;
  const kernels::CpuPart part = is_part ? kernels::CpuPart{device, config.num_devices()} : kernels::CpuPart();
  auto made = kernels::create_cpu_device({config.threads, config.cpu_isa, config.cpu_affinity}, part);
  if (!made && made.error().param == "threads" && config.num_devices() > 1) {
    Error& error = made.error();
    error.param = config.key_of_devices();
    error.message = config.devices_in_words() + ", but " + error.message;
  }
  return made;
}

bool share_copies_of_weights(const EngineConfig& config) {
  return config.device == "cpu" && !kernels::cpu_parts_have_own_nodes(config.cpu_affinity);
}

Result<std::shared_ptr<kernels::Device>> create_device(const EngineConfig& config) {
  if (config.device == "cpu") return create_host_device(config);
  return kernels::create_cuda_device(config.cuda_index());
}

std::int64_t blocks_for_all_rows(const EngineConfig& config, const EnginePlan& plan) {
  return plan.layout.table_size(plan.limits.max_model_len) * plan.layout.num_groups() * config.num_rows();
}

std::int64_t longest_sequence(const EngineConfig& config, const EnginePlan& plan) {
  // Groups without a window decide how many tokens fit; a pool that has room for windows only has no such limit.
  constexpr std::int64_t kMaxTokens = 1 << 30;
  const std::int64_t num_slots = std::int64_t{plan.num_device_blocks} * plan.layout.block_size();
  const auto limit = static_cast<std::int32_t>(std::min(std::max(plan.limits.max_model_len, num_slots), kMaxTokens));
  return plan.layout.longest_sequence(limit, config.enable_chunked_prefill ? 1 : limit, plan.num_device_blocks);
}

Result<std::int32_t> size_kv_cache(const EngineConfig& config, const EnginePlan& plan, std::int64_t kv_bytes) {
  const auto max_model_len = static_cast<std::int32_t>(plan.limits.max_model_len);
  const auto num_blocks =
      static_cast<std::int32_t>(std::min(num_blocks_in(std::max<std::int64_t>(0, kv_bytes), config, plan), kMaxBlocks));
  const auto step_tokens =
      static_cast<std::int32_t>(config.enable_chunked_prefill ? config.tokens_per_step(max_model_len) : max_model_len);
  const std::int32_t longest = plan.layout.longest_sequence(max_model_len, step_tokens, num_blocks);
  if (longest < max_model_len) {
    const bool was_configured = config.kv_cache_memory > 0;  // if false, the device is too small
    const std::string key = !was_configured && config.device != "cpu" ? "gpu_memory_utilization" : "kv_cache_memory";
    return fail(was_configured ? ErrorCode::bad_config : ErrorCode::out_of_memory,
                "the KV cache would hold " + std::to_string(longest) +
                    " tokens, less than one sequence of max_model_len " + std::to_string(max_model_len) + ": raise " +
                    key + " or lower max_model_len" +
                    (was_configured || config.data_parallel_size == 1 ? "" : " or data_parallel_size") +
                    (config.num_ranks() == 1 ? "" : " (kv_cache_memory is divided between the ranks)") +
                    (was_configured || config.device != "cpu" ? "" : "; " + kernels::describe_available_memory()),
                key);
  }
  return static_cast<std::int32_t>(std::min<std::int64_t>(num_blocks, blocks_for_all_rows(config, plan)));
}

NumDevices all_devices(const EngineConfig& config) {
  if (config.has_own_host) return {};
  return {config.data_parallel_size, config.num_ranks()};
}

kernels::RankMemoryShape rank_memory_shape(const EnginePlan& plan) {
  const models::RankPlace place = plan.model.place;
  const std::int64_t rows = place.num_stages > 1 ? plan.limits.max_tokens * plan.model.decoder.hidden_size : 0;
  return {place.num_ranks, plan.model.largest_exchange(plan.limits), place.num_stages, rows};
}

std::int64_t host_bytes_needed(const EngineConfig& config, const EnginePlan& plan, const NumDevices& devices) {
  const std::int64_t blocks =
      std::int64_t{plan.num_device_blocks} + (config.swap_dir.empty() ? plan.num_host_blocks : 0);
  const bool shares = devices.replicas > 1 && share_copies_of_weights(config);
  const std::int64_t num_copies = shares ? devices.ranks : devices.all();
  const std::int64_t draft_copies = plan.draft ? plan.draft->copied_weight_bytes : 0;
  return devices.all() * (plan.memory.fixed_bytes() - plan.memory.weight_bytes) +
         num_copies * plan.copied_weight_bytes +
         devices.all() * (draft_copies + blocks * plan.memory.kv_bytes_per_block);
}

Result<std::int64_t> host_bytes_of_all(const EngineConfig& config, const kernels::Device& device,
                                       const EnginePlan& planned) {
  const NumDevices of_one_rank{.replicas = config.data_parallel_size};
  std::int64_t needed = host_bytes_needed(config, planned, of_one_rank);
  for (RankId rank = 1; rank < config.num_ranks(); ++rank) {
    const auto other = plan_other_rank(config.of_replica(0).of_rank(rank), device, planned, planned);
    if (!other) return fail(other.error());
    needed += host_bytes_needed(config, *other, of_one_rank);
  }
  return needed;
}

Status check_host_memory(const EngineConfig& config, const EnginePlan& plan, const NumDevices& devices) {
  return check_host_memory(config, plan, devices, host_bytes_needed(config, plan, devices));
}

Status check_host_memory(const EngineConfig& config, const EnginePlan& plan, const NumDevices& devices,
                         std::int64_t needed) {
  if (needed <= static_cast<std::int64_t>(kernels::available_cpu_memory())) return {};
  const auto mib = [](std::int64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; };
  const std::int64_t block_bytes = plan.memory.kv_bytes_per_block;
  std::string parts = "the KV cache takes " + mib(plan.num_device_blocks * block_bytes);
  if (config.swap_dir.empty() && plan.num_host_blocks > 0) {
    parts += ", the swap space " + mib(plan.num_host_blocks * block_bytes);
  }
  if (plan.copied_weight_bytes > 0) parts += ", copies of weights " + mib(plan.copied_weight_bytes);
  if (plan.draft && plan.draft->copied_weight_bytes > 0) {
    parts += ", copies of the draft model's weights " + mib(plan.draft->copied_weight_bytes);
  }
  const std::int64_t adapter_bytes = plan.memory.adapter_bytes;
  if (adapter_bytes > 0) parts += ", adapters " + mib(adapter_bytes);
  parts += ", steps " + mib(plan.memory.fixed_bytes() - plan.memory.weight_bytes - adapter_bytes);
  return fail(
      ErrorCode::out_of_memory,
      "the engine needs " + kernels::describe_allocation(static_cast<std::size_t>(needed)) +
          (devices.all() > 1 ? (config.pipeline_parallel_size > 1 ? "; of the first of " : "; of each of ") +
                                   std::to_string(devices.all()) + (devices.ranks > 1 ? " ranks " : " replicas ")
                             : "; ") +
          parts + "; lower kv_cache_memory, num_device_blocks, swap_space or max_num_seqs" +
          (devices.replicas > 1 ? ", or data_parallel_size" : "") +
          (adapter_bytes > 0
               ? ", or the limits of adapters (max_loras, max_cpu_loras, max_lora_rank, max_prompt_adapters)"
               : ""),
      "kv_cache_memory");
}

Status check_draft_tokens(const EnginePlan& plan) {
  if (!plan.draft || plan.draft->model.draft_head) return {};
  const auto tokens = plan.files->tokenizer();
  if (!tokens) return fail(tokens.error());
  const auto draft = plan.draft->files->tokenizer();
  if (!draft) return refuse_draft_model(draft.error().code, draft.error().message);
  // Some special tokens may have other names: drafts of these are wrong, which costs time only.
  constexpr TokenId kOneOf = 100;
  const auto count = static_cast<TokenId>(std::min((*tokens)->vocab_size(), (*draft)->vocab_size()));
  TokenId num_different = 0;
  for (TokenId id = 0; id < count; ++id) {
    const std::string_view text = (*tokens)->token_text(id);
    const std::string_view its = (*draft)->token_text(id);
    if (text == its || text.empty() || its.empty() || ++num_different * kOneOf <= count) continue;
    return refuse_draft_model(ErrorCode::bad_config, "it has other tokens than the model, for example token " +
                                                         std::to_string(id) + ": \"" + std::string(its) +
                                                         "\", in the model \"" + std::string(text) + "\"");
  }
  return {};
}

execution::RunnerConfig runner_config(const EngineConfig& config, const EnginePlan& plan) {
  return {.max_num_seqs = config.num_rows(),
          .max_num_samples = plan.limits.max_logit_rows,
          .max_num_batched_tokens = plan.limits.max_tokens,
          .max_model_len = plan.limits.max_model_len,
          .vocab_size = plan.model.vocab_size,
          .draft_vocab_size = plan.draft ? plan.draft->model.vocab_size : 0,
          .max_drafts = config.speculation().is_on() ? config.speculation().max_drafts : 0,
          .features = plan.draft && plan.draft->model.draft_head
                          ? std::optional(features_of(plan.draft->model, plan.layout))
                          : std::nullopt,
          .max_logprobs = num_logprobs(config.limits.max_logprobs, plan.model.vocab_size),
          .layout = plan.layout,
          .max_steps_in_flight = config.max_steps_in_flight(),
          .samples = plan.model.place.is_in_last_stage()};
}

Result<EnginePlan> plan_model(const EngineConfig& config) {
  return plan_in_role(config, Role::target);
}

namespace {

Result<EnginePlan> plan_in_role(const EngineConfig& config, Role role) {
  EnginePlan plan;
  const bool is_dummy = config.load_format == "dummy";
  auto files = io::open_model_files(config.model, is_dummy ? io::LoadFormat::dummy : io::LoadFormat::automatic);
  if (!files) return fail(std::move(files.error()));
  plan.path = config.model;
  plan.files = std::move(*files);
  auto model = plan.files->spec();
  if (!model) return fail(model.error());
  if (model->draft_head && role == Role::target) {
    return fail(ErrorCode::bad_config,
                config.model +
                    " is a draft head, which makes drafts for another model: name it in speculative_config, " +
                    R"(as {"method": "eagle3", "model": "PATH"})",
                "model");
  }
  const models::RankPlace place = place_of(config);
  if (Status divides = models::check_ranks(model->decoder, place.num_ranks, place.num_stages); !divides)
    return fail(std::move(divides.error()));
  plan.model = model->of_rank(place);
  const auto dtype = chosen_dtype(config.dtype, plan.model.checkpoint_dtype);
  if (!dtype) return fail(dtype.error());
  const auto kv_dtype = chosen_kv_dtype(config.kv_cache_dtype, *dtype);
  if (!kv_dtype) return fail(kv_dtype.error());
  plan.dtype = *dtype;
  plan.kv_dtype = *kv_dtype;
  plan.layout = plan.model.kv_layout(config.slots_per_block(), plan.kv_dtype);
  plan.weights = weights::weight_policy(config.dtype, config.quantize);
  const auto max_model_len = chosen_model_len(config, plan.model);
  if (!max_model_len) return fail(max_model_len.error());
  const std::int32_t max_tokens = config.tokens_per_step(*max_model_len);
  if (!config.enable_chunked_prefill && max_tokens < *max_model_len) {
    return fail(ErrorCode::bad_config,
                "without chunked prefill max_num_batched_tokens must be at least max_model_len (" +
                    std::to_string(*max_model_len) + "), not " + std::to_string(max_tokens),
                "max_num_batched_tokens");
  }
  plan.limits = {max_tokens, std::min(max_tokens, config.samples_per_step()), *max_model_len};
  if (Status fits = check_step_results(config, plan); !fits) return fail(std::move(fits.error()));

  auto checkpoint = plan.files->weights();
  if (!checkpoint) return fail(checkpoint.error());
  plan.checkpoint = std::move(*checkpoint);
  plan.stored = weights_of_rank(plan);
  if (config.speculation().has_draft_model()) {
    if (Status drafted = plan_draft_model(config, plan); !drafted) return fail(std::move(drafted.error()));
  }
  return plan;
}

}  // namespace

EnginePlan model_of_rank(const EngineConfig& config, const EnginePlan& model) {
  PAGODA_ASSERT(!model.draft, "ranks have no draft model");
  EnginePlan plan = model;
  plan.model = model.model.of_rank(place_of(config));
  plan.layout = plan.model.kv_layout(config.slots_per_block(), plan.kv_dtype);
  plan.stored = weights_of_rank(plan);
  return plan;
}

Result<EnginePlan> plan_other_rank(const EngineConfig& config, const kernels::Device& device, const EnginePlan& model,
                                   const EnginePlan& planned) {
  EnginePlan plan = model_of_rank(config, model);
  EngineConfig as_planned = config;
  as_planned.num_device_blocks = planned.num_device_blocks;
  as_planned.num_host_blocks = planned.num_host_blocks;
  as_planned.weight_memory = planned.weights.copy_linear ? "copied" : "mapped";
  if (Status made = plan_memory(as_planned, device, plan); !made) return fail(std::move(made.error()));
  return plan;
}

Status plan_memory(const EngineConfig& config, const kernels::Device& device, EnginePlan& plan) {
  plan.weights.on_gpu = device.kind() != kernels::DeviceKind::cpu;
  const auto measured = measure_model(config, plan, device);
  if (!measured) return fail(measured.error());
  plan.weight_bytes = measured->weight_bytes;
  models::MemoryRequest request{
      .weight_bytes = measured->weight_bytes,
      .batch_bytes = execution::ModelRunner::batch_bytes(runner_config(config, plan), !device.shares_host_memory()),
      .model = measured->memory,
      .adapter_bytes = measured->adapter_bytes,
      .vocab_size = plan.model.place.is_in_last_stage() ? plan.model.vocab_size : 0,  // of its logits
      .kv = plan.layout,
      .limits = plan.limits};
  if (plan.draft) {
    plan.draft = std::make_shared<EnginePlan>(*plan.draft);  // another replica's plan may share it
    if (Status drafted = add_draft_model(config, device, *plan.draft, request); !drafted) return drafted;
  }
  const std::int64_t fixed_bytes = models::plan_memory(request).fixed_bytes();
  request.budget_bytes = fixed_bytes + kv_budget(config, device, fixed_bytes);
  plan.memory = models::plan_memory(request);
  plan.num_device_blocks = config.num_device_blocks;
  if (config.num_device_blocks == 0) {
    const auto device_blocks = size_kv_cache(config, plan, plan.memory.kv_bytes());
    if (!device_blocks) return fail(device_blocks.error());
    plan.num_device_blocks = *device_blocks;
    plan.measures_kv_cache = config.kv_cache_memory == 0 && !device.shares_host_memory();
  }
  plan.num_host_blocks = host_blocks(config, plan, device);
  plan.copied_weight_bytes = measured->copied_weight_bytes;
  // The ranks of a replica copy their parts. Each replica copies its draft model.
  std::int64_t copied_bytes =
      plan.checkpoint->facts().weight_bytes * (share_copies_of_weights(config) ? 1 : config.data_parallel_size);
  if (plan.draft) copied_bytes += plan.draft->checkpoint->facts().weight_bytes * config.data_parallel_size;
  const bool copies = copies_linear(config, device, plan.checkpoint->is_mapped(), copied_bytes,
                                    host_bytes_needed(config, plan, all_devices(config)));
  for (EnginePlan* its : {&plan, plan.draft.get()}) {
    if (its == nullptr) continue;
    its->weights.copy_linear = copies;
    const auto copied = measure_model(config, *its, device);
    if (!copied) return fail(copied.error());
    its->copied_weight_bytes = copied->copied_weight_bytes;
  }
  return {};
}

Result<EnginePlan> plan_engine(const EngineConfig& config, const kernels::Device& device) {
  auto plan = plan_model(config);
  if (!plan) return plan;
  if (Status planned = plan_memory(config, device, *plan); !planned) return fail(std::move(planned.error()));
  return plan;
}

}  // namespace pagoda
