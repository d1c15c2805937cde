#include "engine/config.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "engine/request/generate_request.hpp"
namespace pagoda {
namespace {

/// Collects all problems. Each check takes the key that it checks.
class Checker {
 public:
  void refuse(const char* key, const std::string& what) {
    problems_.push_back({ErrorCode::bad_config, std::string(key) + " " + what, key});
  }

  void add(Error problem) { problems_.push_back(std::move(problem)); }

  template <class T>
  void in_range(const char* key, T value, T min, T max) {
    if (value < min || value > max) {
      refuse(key,
             "must be from " + std::to_string(min) + " to " + std::to_string(max) + ", not " + std::to_string(value));
    }
  }

  /// Requires a value in (`lower`, `max`], or in [`lower`, `max`] when `closed`.
  void number(const char* key, double value, double lower, bool closed, double max) {
    if (!std::isfinite(value) || value < lower || (!closed && value == lower) || value > max) {
      refuse(key, std::string("must be ") + (closed ? "at least " : "above ") + shown(lower) + " and at most " +
                      shown(max) + ", not " + shown(value));
    }
  }

  void one_of(const char* key, const std::string& value, std::initializer_list<std::string_view> choices) {
    std::string list;
    for (const auto choice : choices) {
      if (value == choice) return;
      if (!choice.empty()) list += (list.empty() ? "" : ", ") + std::string(choice);
    }
    refuse(key, "must be one of " + list + ", not \"" + value + "\"");
  }

  std::vector<Error> problems() && { return std::move(problems_); }

 private:
  static std::string shown(double value) {
    auto text = std::to_string(value);
    while (text.find('.') != std::string::npos && (text.back() == '0' || text.back() == '.')) {
      const bool point = text.back() == '.';
      text.pop_back();
      if (point) break;
    }
    return text;
  }

  std::vector<Error> problems_;
};

constexpr std::int32_t kMaxBlockSize = 1024;
constexpr std::int32_t kMaxBlocks = 1 << 30;
constexpr double kMaxGib = 1 << 20;
constexpr std::int64_t kMaxModelLen = std::int64_t{1} << 30;
constexpr std::int32_t kMaxTokensPerStep = 1 << 24;
constexpr std::int32_t kMaxReplicas = 64;
constexpr std::int32_t kMaxRanks = 64;

/// Returns the parts between commas, without the spaces around them. At least one, which may be empty.
std::vector<std::string> split_at_commas(const std::string& text) {
  std::vector<std::string> parts;
  for (std::size_t begin = 0; begin <= text.size();) {
    const auto end = std::min(text.find(',', begin), text.size());
    auto part = text.substr(begin, end - begin);
    part.erase(0, part.find_first_not_of(' '));
    part.erase(part.find_last_not_of(' ') + 1);
    parts.push_back(std::move(part));
    begin = end + 1;
  }
  return parts;
}

/// Returns N of "cuda:N", 0 of "cuda", and nothing for another text.
std::optional<int> cuda_index_of(std::string_view device) {
  constexpr std::string_view kCuda = "cuda";
  if (device == kCuda) return 0;
  if (!device.starts_with(kCuda) || device[kCuda.size()] != ':') return std::nullopt;
  const std::string_view digits = device.substr(kCuda.size() + 1);
  int index = 0;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  const bool is_number = read.ec == std::errc() && read.ptr == digits.data() + digits.size() && index >= 0;
  return is_number ? std::optional(index) : std::nullopt;
}

void check_devices(const EngineConfig& config, Checker& check) {
  if (config.device == "cpu" || config.device == "cuda") return;
  const auto names = split_at_commas(config.device);
  std::vector<int> indices;
  for (const std::string& name : names) {
    const auto index = cuda_index_of(name);
    if (!index || (names.size() > 1 && name == "cuda")) {
      return check.refuse("device", "must be cpu, cuda, cuda:N, or cuda:N,cuda:M,... for several replicas, not \"" +
                                        config.device + "\"");
    }
    indices.push_back(*index);
  }
  if (std::cmp_not_equal(names.size(), config.data_parallel_size)) {
    return check.refuse("device", "must name one GPU for each replica: " + std::to_string(names.size()) + " in \"" +
                                      config.device + "\", but data_parallel_size is " +
                                      std::to_string(config.data_parallel_size));
  }
  std::ranges::sort(indices);
  if (const auto twice = std::ranges::adjacent_find(indices); twice != indices.end()) {
    check.refuse("device", "names the GPU cuda:" + std::to_string(*twice) + " twice; each replica has one of its own");
  }
}

void check_speculation(const EngineConfig& config, Checker& check) {
  const char* const key = "speculative_config";
  const auto speculation = parse_speculation_config(config.speculative_config.text);
  if (!speculation) return check.add(speculation.error());
  if (!speculation->is_on()) return;
  if (config.pipeline_parallel_size > 1) {
    check.refuse(key, "needs pipeline_parallel_size 1: with more stages the first one has no samples");
  } else if (!config.journal.empty() && !config.journal_tokens) {
    check.refuse(key, "needs journal_tokens: drafts follow from the tokens, which a replay must have");
  } else if (speculation->has_draft_model() && config.tensor_parallel_size > 1) {
    check.refuse(key, "with a draft model needs tensor_parallel_size 1; the methods ngram and suffix do not");
  } else if (speculation->has_draft_model() && !config.worker_listen.empty()) {
    check.refuse(key, "with a draft model is not for workers that join; the methods ngram and suffix are");
  }
}

/// Checks the number of ranks, and that each device has a thread.
void check_ranks(const EngineConfig& config, Checker& check) {
  bool are_counts = config.data_parallel_size >= 1 && config.data_parallel_size <= kMaxReplicas;
  const auto check_count = [&](const char* key, std::int32_t count) {
    check.in_range(key, count, 1, kMaxRanks);
    are_counts &= count >= 1 && count <= kMaxRanks;
    if (count <= 1) return;
    const auto refuse = [&](const std::string& reason) {
      check.refuse(key, "must be 1 " + reason + ", not " + std::to_string(count));
    };
    if (config.device != "cpu") refuse("with a GPU: only CPU ranks share a model");
    const bool is_stages = std::string_view(key) == "pipeline_parallel_size";
    if (!config.worker_listen.empty() && !is_stages) {
      refuse("with worker_listen: ranks that share each layer are on one host");
    }
  };
  check_count("tensor_parallel_size", config.tensor_parallel_size);
  check_count("pipeline_parallel_size", config.pipeline_parallel_size);
  if (are_counts && config.num_ranks() > kMaxRanks) {
    are_counts = false;
    check.refuse("pipeline_parallel_size", "times tensor_parallel_size must be at most " + std::to_string(kMaxRanks) +
                                               ", not " + std::to_string(config.num_ranks()));
  }
  if (config.device != "cpu" || config.threads <= 0 || !are_counts) return;
  const bool have_own_hosts = !config.worker_listen.empty();
  if (have_own_hosts || config.threads >= config.num_devices()) return;
  const std::string threads = "the number of threads (" + std::to_string(config.threads) + ")";
  const char* const key = config.key_of_devices();
  std::string others;
  for (const auto& [other, count] : {std::pair("tensor_parallel_size", config.tensor_parallel_size),
                                     std::pair("data_parallel_size", config.data_parallel_size)}) {
    if (std::string_view(other) != key && count > 1) others += std::string("times ") + other + " ";
  }
  check.refuse(key, others + "must be at most " + threads + ", because each " +
                        (config.num_ranks() == 1 ? "replica" : "rank") + " needs one, not " +
                        std::to_string(config.num_devices()));
}

}  // namespace

std::vector<std::string> EngineConfig::served_model_names() const {
  return served_model_name.empty() ? std::vector<std::string>() : split_at_commas(served_model_name);
}

std::vector<std::string> EngineConfig::devices() const {
  const auto count = static_cast<std::size_t>(data_parallel_size);
  std::vector<std::string> names = split_at_commas(device);
  if (names.size() > 1 || count == 1) return names;
  names.assign(count, device);
  if (device == "cpu") return names;
  for (std::size_t i = 0; i < count; ++i) names[i] = "cuda:" + std::to_string(i);
  return names;
}

EngineConfig EngineConfig::of_replica(ReplicaId id) const {
  EngineConfig own = *this;
  own.device = devices().at(static_cast<std::size_t>(id));
  own.replica = id;
  return own;
}

EngineConfig EngineConfig::of_rank(RankId id) const {
  EngineConfig own = *this;
  own.rank = id;
  own.kv_cache_memory /= num_ranks();
  if (swap_space > 0) own.swap_space /= num_ranks();
  return own;
}

const char* EngineConfig::key_of_devices() const {
  if (pipeline_parallel_size > 1) return "pipeline_parallel_size";
  return tensor_parallel_size > 1 ? "tensor_parallel_size" : "data_parallel_size";
}

std::string EngineConfig::devices_in_words() const {
  std::string words;
  for (const auto& [key, count] :
       {std::pair("pipeline_parallel_size", pipeline_parallel_size),
        std::pair("tensor_parallel_size", tensor_parallel_size), std::pair("data_parallel_size", data_parallel_size)}) {
    if (count > 1)
      words += (words.empty() ? std::string(key) + " is " : std::string(", ") + key + " ") + std::to_string(count);
  }
  return words;
}

std::string EngineConfig::device_name() const {
  const std::string its_replica = data_parallel_size > 1 ? "replica " + std::to_string(replica) : "";
  const std::string its_rank = num_ranks() > 1 ? "rank " + std::to_string(rank) : "";
  return its_replica + (its_replica.empty() || its_rank.empty() ? "" : ", ") + its_rank;
}

EngineConfig EngineConfig::with_one_device() const {
  EngineConfig own = of_replica(0);
  own.data_parallel_size = 1;
  own.tensor_parallel_size = 1;
  own.pipeline_parallel_size = 1;
  return own;
}

int EngineConfig::cuda_index() const {
  const auto index = cuda_index_of(device);
  PAGODA_ASSERT(index.has_value(), "the device is a GPU");
  return *index;
}

std::int32_t EngineConfig::num_rows() const {
  constexpr std::int32_t kRows = 256;
  if (max_num_seqs > 0) return max_num_seqs;
  if (max_num_batched_tokens == 0 || max_num_batched_tokens >= kRows) return kRows;
  return std::max(1, max_num_batched_tokens * 3 / 4);
}

std::int32_t EngineConfig::samples_per_step() const {
  constexpr std::int32_t kSequencesWithAllDrafts = 4;
  const SpeculationConfig drafts = speculation();
  if (!drafts.is_on()) return num_rows();
  const std::int32_t most = num_rows() + std::min(num_rows(), kSequencesWithAllDrafts) * drafts.max_drafts;
  return max_num_batched_tokens > 0 ? std::min(most, std::max(max_num_batched_tokens, num_rows())) : most;
}

std::int32_t EngineConfig::tokens_per_step(std::int64_t longest_prompt) const {
  if (max_num_batched_tokens > 0) return max_num_batched_tokens;
  constexpr std::int64_t kCpuPromptTokens = 128;
  constexpr std::int64_t kGpuPromptTokens = 512;
  constexpr std::int64_t kGpuTokens = 2048;
  const std::int64_t rows = num_rows();
  std::int64_t tokens = device == "cpu" ? rows + kCpuPromptTokens : std::max(kGpuTokens, rows + kGpuPromptTokens);
  if (!enable_chunked_prefill) tokens = std::max(tokens, longest_prompt);
  return static_cast<std::int32_t>(std::min<std::int64_t>(tokens, kMaxTokensPerStep));
}

std::int32_t EngineConfig::chunk_ms() const {
  constexpr std::int32_t kCpuMs = 100;
  if (max_chunk_ms >= 0) return max_chunk_ms;
  if (target_itl_ms > 0) return 0;
  return device == "cpu" ? kCpuMs : 0;
}

double EngineConfig::chunk_stretch() const {
  constexpr double kCpuStretch = 2;
  return max_chunk_ms < 0 && chunk_ms() > 0 ? kCpuStretch : 0;
}

std::int32_t EngineConfig::slots_per_block() const {
  constexpr std::int32_t kCpuSlots = 32;
  constexpr std::int32_t kGpuSlots = 16;
  if (block_size > 0) return block_size;
  return device == "cpu" ? kCpuSlots : kGpuSlots;
}

std::int64_t EngineConfig::swap_bytes(std::int64_t free_host_bytes) const {
  constexpr double kBytesPerGib = 1 << 30;
  constexpr std::int64_t kMaxOfGpu = std::int64_t{4} << 30;
  if (swap_space >= 0) return static_cast<std::int64_t>(swap_space * kBytesPerGib);
  return device == "cpu" ? 0 : std::clamp<std::int64_t>(free_host_bytes / 4 / num_devices_on_host(), 0, kMaxOfGpu);
}

std::int32_t EngineConfig::max_adapters_in_step() const {
  return (enable_lora ? max_loras : 0) + (enable_prompt_adapter ? max_prompt_adapters : 0);
}

std::int32_t EngineConfig::num_loaded_adapters() const {
  return max_adapters_in_step() + (enable_lora && max_cpu_loras > 0 ? max_cpu_loras - max_loras : 0);
}

std::vector<Error> EngineConfig::validate() const {
  const EngineConfig defaults;
  Checker check;
  if (model.empty()) check.refuse("model", "is required: the folder or GGUF file of the model to load");
  auto names = served_model_names();
  std::ranges::sort(names);
  if (!names.empty() && names.front().empty()) check.refuse("served_model_name", "has an empty name");
  if (const auto twice = std::ranges::adjacent_find(names); twice != names.end() && !twice->empty()) {
    check.refuse("served_model_name", "has the name \"" + *twice + "\" twice");
  }
  check.one_of("load_format", load_format, {"auto", "dummy"});
  check.one_of("dtype", dtype, {"auto", "float32", "float16", "bfloat16"});
  if (generation_config.empty()) check.refuse("generation_config", "must be auto, vllm or a folder");
  check.one_of("quantize", quantize, {"auto", "none", "int8", "int4"});
  check.one_of("weight_memory", weight_memory, {"auto", "mapped", "copied"});
  if (device != "cpu" && weight_memory != defaults.weight_memory) {
    check.refuse("weight_memory", "is for --device cpu; a GPU keeps the weights in its own memory");
  }
  if (packed_cache.empty() || packed_cache == "auto") check.refuse("packed_cache", "must be off or a folder");
  check.in_range("packed_cache_min_mib", packed_cache_min_mib, std::int64_t{0}, std::int64_t{1} << 30);
  if (device != "cpu" && packed_cache != "off") {
    check.refuse("packed_cache", "is for --device cpu");
  }
  check.number("packed_cache_size", packed_cache_size, 0, false, kMaxGib);
  check.one_of("kv_cache_dtype", kv_cache_dtype, {"auto", "float32", "float16", "bfloat16", "fp8", "fp8_e4m3", "int8"});
  check_devices(*this, check);
  check.one_of("cpu_affinity", cpu_affinity, {"auto", "none", "cores", "numa"});
  check.one_of(
      "cpu_isa", cpu_isa,
      {"", "scalar", "avx2", "avx_vnni", "avx512", "avx512_vnni", "avx512_bf16", "avx512_amx", "neon", "neon_dotprod"});
  check.in_range("max_model_len", max_model_len, std::int64_t{0}, kMaxModelLen);
  check.in_range("block_size", block_size, 0, kMaxBlockSize);
  check.in_range("num_device_blocks", num_device_blocks, 0, kMaxBlocks);
  check.in_range("num_host_blocks", num_host_blocks, -1, kMaxBlocks);
  if (swap_space != defaults.swap_space) check.number("swap_space", swap_space, 0, true, kMaxGib);
  if (!swap_dir.empty() && num_host_blocks <= 0 && (num_host_blocks == 0 || swap_space <= 0)) {
    check.refuse("swap_dir", "needs swap_space or num_host_blocks, which set its size");
  }
  check.number("kv_cache_memory", kv_cache_memory, 0, true, kMaxGib);
  check.number("gpu_memory_utilization", gpu_memory_utilization, 0, false, 1);
  const bool is_a_share = gpu_memory_utilization > 0 && gpu_memory_utilization <= 1;
  if (device == "cpu" && is_a_share && gpu_memory_utilization != defaults.gpu_memory_utilization) {
    check.refuse("gpu_memory_utilization", "is for --device cuda; on a CPU use kv_cache_memory");
  }
  if (device == "cpu" && enforce_eager)
    check.refuse("enforce_eager", "is for --device cuda; a CPU runs every step eagerly");
  if (device != "cpu" && !swap_dir.empty())
    check.refuse("swap_dir", "is for --device cpu; a GPU always swaps to host memory");
  if (device != "cpu" && touch_memory != defaults.touch_memory) {
    check.refuse("touch_memory", "is for --device cpu; memory of a GPU is reserved when it is allocated");
  }
  check.in_range("max_num_seqs", max_num_seqs, 0, 1 << 16);
  check.in_range("max_num_batched_tokens", max_num_batched_tokens, 0, kMaxTokensPerStep);
  if (max_num_batched_tokens > 0 && max_num_batched_tokens < max_num_seqs) {
    check.refuse("max_num_batched_tokens", "must be at least max_num_seqs (" + std::to_string(max_num_seqs) +
                                               "), not " + std::to_string(max_num_batched_tokens));
  }
  if (!enable_chunked_prefill && max_num_batched_tokens > 0 && max_num_batched_tokens < max_model_len) {
    check.refuse("max_num_batched_tokens", "must be at least max_model_len (" + std::to_string(max_model_len) +
                                               ") without chunked prefill, not " +
                                               std::to_string(max_num_batched_tokens));
  }
  check.in_range("max_chunk_ms", max_chunk_ms, -1, 3'600'000);
  check.in_range("target_itl_ms", target_itl_ms, 0, 3'600'000);
  check.in_range("target_ttft_ms", target_ttft_ms, 0, 3'600'000);
  if (target_itl_ms > 0 && !enable_chunked_prefill) check.refuse("target_itl_ms", "needs enable_chunked_prefill");
  check.in_range("long_prefill_token_threshold", long_prefill_token_threshold, 0, 1 << 30);
  check.in_range("max_num_partial_prefills", max_num_partial_prefills, 1, 65536);
  check.number("priority_aging_s", priority_aging_s, 0, true, kMaxAgingSeconds);
  check.number("scheduler_delay_factor", scheduler_delay_factor, 0, true, 1000);
  check.number("watermark", watermark, 0, true, 0.5);
  check_speculation(*this, check);
  check.in_range("pipeline_depth", pipeline_depth, 1, 2);
  check.in_range("threads", threads, 0, 1024);
  check_ranks(*this, check);
  check.in_range("data_parallel_size", data_parallel_size, 1, kMaxReplicas);
  if (data_parallel_size > 1 && !worker_listen.empty()) {
    check.refuse("data_parallel_size", "must be 1 with worker_listen: workers that join make one replica");
  }
  check.number("step_deadline", step_deadline, 0, true, 86400);
  if (step_deadline > 0 && step_deadline < 1e-3) check.refuse("step_deadline", "must be 0 or at least 0.001");
  if (standby_worker && !worker_processes) check.refuse("standby_worker", "needs worker_processes");
  if (standby_worker && device != "cpu" && worker_listen.empty()) {
    check.refuse("standby_worker",
                 "is for --device cpu, or for workers that join; a GPU has memory for only one copy of the model");
  }
  if (step_deadline > 0 && !worker_processes) check.refuse("step_deadline", "needs worker_processes");
  if (!worker_listen.empty() && !worker_processes) check.refuse("worker_listen", "needs worker_processes");
  const std::pair<const char*, const std::string*> tls_files[] = {
      {"worker_tls_cert", &worker_tls_cert}, {"worker_tls_key", &worker_tls_key}, {"worker_tls_ca", &worker_tls_ca}};
  for (const auto& [key, file] : tls_files) {
    if (worker_listen.empty() && !file->empty()) check.refuse(key, "needs worker_listen");
    if (!worker_listen.empty() && file->empty()) check.refuse(key, "is needed by worker_listen");
  }
  check.in_range("max_queued_requests", max_queued_requests, std::int64_t{1}, std::int64_t{1} << 24);
  check.in_range("max_queued_prompt_tokens", max_queued_prompt_tokens, std::int64_t{1}, std::int64_t{1} << 40);
  check.in_range("stream_interval", stream_interval, std::int64_t{1}, std::int64_t{1} << 20);
  check.in_range("request_timeout", request_timeout, 0.0, static_cast<double>(kMaxTimeoutMs) / 1000);
  check.in_range("max_queued_prompt_bytes", max_queued_prompt_bytes, std::int64_t{1}, std::int64_t{1} << 40);
  check.in_range("journal_mib", journal_mib, std::int64_t{1}, std::int64_t{1} << 20);
  check.in_range("trace_max_events", trace_max_events, std::int64_t{1}, std::int64_t{1} << 32);
  check.in_range("max_loras", max_loras, 1, 1024);
  check.in_range("max_cpu_loras", max_cpu_loras, 0, 1 << 16);
  if (max_cpu_loras > 0 && max_cpu_loras < max_loras) {
    check.refuse("max_cpu_loras", "must be at least max_loras (" + std::to_string(max_loras) + "), not " +
                                      std::to_string(max_cpu_loras));
  }
  check.one_of("lora_dtype", lora_dtype, {"auto", "float32", "float16", "bfloat16"});
  check.in_range("max_lora_rank", max_lora_rank, 1, 512);
  if (!lora_modules.empty() && !enable_lora) check.refuse("lora_modules", "needs enable_lora");
  check.in_range("max_prompt_adapters", max_prompt_adapters, 1, 1024);
  check.in_range("max_prompt_adapter_token", max_prompt_adapter_token, 1, 100'000);
  if (!prompt_adapters.empty() && !enable_prompt_adapter) {
    check.refuse("prompt_adapters", "needs enable_prompt_adapter");
  }
  if (enable_lora_updates && !has_adapters()) {
    check.refuse("enable_lora_updates", "needs enable_lora or enable_prompt_adapter");
  }
  if (enable_lora_updates && lora_root.empty()) check.refuse("lora_root", "is needed by enable_lora_updates");
  if (!lora_root.empty() && !enable_lora_updates) check.refuse("lora_root", "needs enable_lora_updates");
  // Limits can only be lowered, except max_logprobs.
  const auto& most = defaults.limits;
  check.in_range("max_sequences", limits.max_sequences, std::int64_t{1}, most.max_sequences);
  check.in_range("max_logprobs", limits.max_logprobs, std::int64_t{-1}, std::int64_t{1} << 31);
  check.in_range("max_stop_strings", limits.max_stop_strings, std::size_t{0}, most.max_stop_strings);
  check.in_range("max_stop_string_bytes", limits.max_stop_string_bytes, std::size_t{1}, most.max_stop_string_bytes);
  check.in_range("max_stop_token_ids", limits.max_stop_token_ids, std::size_t{0}, most.max_stop_token_ids);
  check.in_range("max_logit_bias", limits.max_logit_bias, std::size_t{0}, most.max_logit_bias);
  check.in_range("max_logprob_token_ids", limits.max_logprob_token_ids, std::size_t{0}, most.max_logprob_token_ids);
  check.in_range("max_bad_words", limits.max_bad_words, std::size_t{0}, most.max_bad_words);
  check.in_range("max_bad_word_bytes", limits.max_bad_word_bytes, std::size_t{1}, most.max_bad_word_bytes);
  return std::move(check).problems();
}

}  // namespace pagoda
