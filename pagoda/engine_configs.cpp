#include "pagoda/engine_configs.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>
#include <utility>

#include "io/model_files/model_files.hpp"

namespace pagoda {
namespace {

/// Returns the format in which the matrices are computed.
std::string quantization_of(const EngineConfig& config, const EnginePlan& plan) {
  if (config.quantize == "none") return {};
  return config.quantize == "auto" ? plan.checkpoint->quantization() : config.quantize;
}

}  // namespace

scheduling::SchedulerConfig scheduler_config(const EngineConfig& config, const EnginePlan& plan,
                                             const ThinkingMarks& thinking) {
  const std::int32_t num_stages = config.pipeline_parallel_size;  // a token takes a step of each
  return {.max_num_seqs = config.num_rows(),
          .max_num_batched_tokens = plan.limits.max_tokens,
          .layout = plan.layout,
          .pipeline_depth = config.pipeline_depth,
          .enable_chunked_prefill = config.enable_chunked_prefill,
          .can_swap = plan.num_host_blocks > 0,
          .block_bytes = plan.layout.block_bytes(),
          .num_device_blocks = plan.num_device_blocks,
          .num_host_blocks = plan.num_host_blocks,
          .policy = config.scheduling_policy,
          .priority_aging_s = config.priority_aging_s,
          .max_chunk_us = TimeUs{1000} * config.chunk_ms() / num_stages,
          .max_stretch = config.chunk_stretch(),
          .target_step_us = TimeUs{1000} * config.target_itl_ms / num_stages,
          .long_prefill_tokens = config.long_prefill_token_threshold,
          .max_partial_long_prompts = config.max_num_partial_prefills,
          .preempts_for_priority = config.priority_preemption,
          .delay_factor = config.scheduler_delay_factor,
          .max_adapters = config.max_adapters_in_step(),
          .preemption = config.preemption_mode,
          .eos_token_ids = plan.model.eos_token_ids,
          .vocab_size = plan.model.vocab_size,
          .thinking = thinking,
          .num_stages = num_stages,
          .speculation = config.speculation(),
          .max_num_samples = plan.limits.max_logit_rows};
}

memory::BlockSpaceConfig block_space_config(const EngineConfig& config, const EnginePlan& plan,
                                            const std::array<std::uint64_t, 2>& prefix_hash_key) {
  return {.layout = plan.layout,
          .num_device_blocks = plan.num_device_blocks,
          .num_host_blocks = plan.num_host_blocks,
          .watermark = config.watermark,
          .enable_prefix_caching = config.enable_prefix_caching,
          .prefix_hash_key = prefix_hash_key};
}

std::int64_t default_timeout_ms(const EngineConfig& config) {
  return std::llround(std::ceil(config.request_timeout * 1000));
}

routing::AdmissionLimits admission_limits(const EngineConfig& config, const EnginePlan& plan,
                                          const text::Tokenizer& tokenizer, const SamplingDefaults& defaults,
                                          const ThinkingMarks& thinking) {
  return {.vocab_size = plan.model.vocab_size,
          .eos_token_ids = plan.model.eos_token_ids,
          .max_model_len = plan.limits.max_model_len,
          .max_kv_tokens = longest_sequence(config, plan),
          .max_num_seqs = config.num_rows(),
          .max_queued_requests = config.max_queued_requests,
          .max_queued_prompt_tokens = config.max_queued_prompt_tokens,
          .max_queued_prompt_bytes = config.max_queued_prompt_bytes,
          .max_bytes_per_token = tokenizer.max_bytes_per_token(),
          .sampling = config.limits,
          .defaults = defaults,
          .seed = config.seed,
          .knows_thinking = thinking.are_known(),
          .default_timeout_ms = default_timeout_ms(config),
          .target_ttft_ms = config.target_ttft_ms,
          .stream_interval = config.stream_interval};
}

Result<chat::AnswerDialect> answer_dialect(const EngineConfig& config, const EnginePlan& plan) {
  const auto chat = io::load_chat_prompts(config, *plan.files);
  const bool is_named = !config.chat_template.empty() || !config.answer_dialect.empty();
  if (!chat && is_named) return fail(chat.error());
  // the model's own template cannot be read; the parts that need it report why
  if (!chat || *chat == nullptr) return chat::AnswerDialect{};
  return *(*chat)->dialect();
}

grammar::Compiler::Config grammar_config(const EnginePlan& plan, const text::Tokenizer& tokenizer,
                                         const chat::AnswerDialect& dialect) {
  grammar::Compiler::Config grammars{
      .vocab_size = plan.model.vocab_size, .eos_token_ids = plan.model.eos_token_ids, .marks = {}};
  const auto texts = chat::marks_of(dialect);
  for (TokenId id = 0; id < static_cast<TokenId>(tokenizer.vocab_size()); ++id) {
    const auto special = tokenizer.special_text(id);
    const bool is_mark = special && !special->empty() && std::ranges::any_of(texts, [&](const std::string& text) {
                           return text.find(*special) != std::string::npos;
                         });
    const bool is_end = std::ranges::find(grammars.eos_token_ids, id) != grammars.eos_token_ids.end();
    if (is_mark && !is_end) grammars.marks.push_back(id);
  }
  return grammars;
}

ThinkingMarks thinking_marks(const text::Tokenizer& tokenizer, const chat::AnswerDialect& dialect) {
  if (!dialect.thinking) return {};
  constexpr std::string_view kSpaces = " \t\r\n";
  const auto trimmed = [&](std::string_view text) {
    text.remove_prefix(std::min(text.find_first_not_of(kSpaces), text.size()));
    return text.substr(0, text.find_last_not_of(kSpaces) + 1);
  };
  const auto tokens_of = [&](std::string_view text) {
    return text.empty() ? TokenIds() : tokenizer.encode(text, /*add_special_tokens=*/false).value_or(TokenIds());
  };
  const auto stands_alone = [&](const TokenIds& tokens) {
    return tokens.size() == 1 ||
           (!tokens.empty() && tokenizer.is_special(tokens.front()) && tokenizer.is_special(tokens.back()));
  };
  const std::string_view end = dialect.thinking->end;
  ThinkingMarks marks{tokens_of(trimmed(dialect.thinking->begin)), tokens_of(trimmed(end)), {}};
  if (!stands_alone(marks.begin) || !stands_alone(marks.end)) return {};
  marks.close = tokens_of(end.substr(0, end.find_first_not_of(kSpaces)));
  marks.close.insert(marks.close.end(), marks.end.begin(), marks.end.end());
  return marks;
}

namespace {

std::vector<std::pair<std::string, std::int64_t>> sizes_of(const models::ModelSpec& model) {
  std::vector<std::pair<std::string, std::int64_t>> sizes;
  for (const auto& [name, value] : model.facts) {
    if (const auto* size = std::get_if<std::int64_t>(&value)) sizes.emplace_back(name, *size);
  }
  return sizes;
}

/// Returns the names in the model's files. If these name no bos or eos token, takes the one of the model's config.
io::TokenizerNames tokenizer_names(const EnginePlan& plan, const text::Tokenizer& tokenizer) {
  auto names = plan.files->tokenizer_names().value_or(io::TokenizerNames());
  const auto add = [&](const char* name, TokenId id) {
    if (const auto text = tokenizer.token_text(id); !text.empty()) names.special_tokens.emplace(name, text);
  };
  if (plan.model.bos_token_id) add("bos_token", *plan.model.bos_token_id);
  if (!plan.model.eos_token_ids.empty()) add("eos_token", plan.model.eos_token_ids.front());
  return names;
}

}  // namespace

ModelInfo model_info(const EngineConfig& config, const EnginePlan& plan, const text::Tokenizer& tokenizer,
                     const SamplingDefaults& defaults, std::string device) {
  const auto facts = plan.checkpoint->facts();
  const auto names = config.served_model_names();
  auto tokens = tokenizer_names(plan, tokenizer);
  return {.name = names.empty() ? plan.files->name() : names.front(),
          .architecture = plan.model.architecture,
          .dtype = std::string(to_string(plan.dtype)),
          .kv_cache_dtype = std::string(to_string(plan.kv_dtype)),
          .device = std::move(device),
          .vocab_size = plan.model.vocab_size,
          .max_model_len = plan.limits.max_model_len,
          .max_kv_tokens = longest_sequence(config, plan),
          .block_size = config.slots_per_block(),
          .num_replicas = config.data_parallel_size,
          .num_device_blocks = plan.num_device_blocks,
          .num_host_blocks = plan.num_host_blocks,
          .max_num_seqs = config.num_rows(),
          .max_num_batched_tokens = plan.limits.max_tokens,
          .pipeline_depth = config.pipeline_depth,
          .format = facts.format,
          .quantization = quantization_of(config, plan),
          .num_parameters = facts.num_parameters,
          .weight_bytes = facts.weight_bytes,
          .enable_prefix_caching = config.enable_prefix_caching,
          .sampling_defaults = defaults,
          .sizes = sizes_of(plan.model),
          .tokenizer_class = std::move(tokens.tokenizer_class),
          .special_tokens = std::move(tokens.special_tokens)};
}

}  // namespace pagoda
