#include <algorithm>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>

#include "apps/command.hpp"
#include "apps/flags.hpp"
#include "engine/models/memory_plan.hpp"
#include "io/host_memory.hpp"
#include "io/model_files/checkpoint.hpp"
#include "io/model_files/hf_config.hpp"

namespace pagoda::apps {
namespace {

using nlohmann::ordered_json;

constexpr double kBytesPerGib = 1 << 30;

struct InspectOptions {
  explicit InspectOptions(CLI::App& app) : engine(app, "warn") {
    app.add_option("DIR", engine.config.model, "Folder of the model");
    app.add_flag("--json", json, "Print one JSON object");
    app.add_flag("--architectures", architectures, "List the architectures that can be run, and nothing else");
  }

  EngineFlags engine;
  bool json = false;
  bool architectures = false;
};

Result<DType> named_dtype(const std::string& name, DType automatic) {
  if (name == "auto") return automatic;
  for (const auto dtype : {DType::f32, DType::f16, DType::bf16}) {
    if (name == to_string(dtype)) return dtype;
  }
  return fail(ErrorCode::bad_config, "unknown dtype \"" + name + "\"", "dtype");
}

ordered_json model_facts(const models::ModelConfig& model) {
  return {{"architecture", model.architecture},
          {"vocab_size", model.vocab_size},
          {"hidden_size", model.hidden_size},
          {"intermediate_size", model.intermediate_size},
          {"num_layers", model.num_layers},
          {"num_heads", model.num_heads},
          {"num_kv_heads", model.num_kv_heads},
          {"head_dim", model.head_dim},
          {"max_position_embeddings", model.max_position_embeddings},
          {"tie_word_embeddings", model.tie_word_embeddings},
          {"checkpoint_dtype", to_string(model.checkpoint_dtype)}};
}

ordered_json plan_facts(const models::MemoryPlan& plan, const EngineConfig& config, std::int64_t num_blocks) {
  return {{"weight_bytes", plan.weight_bytes},
          {"activation_bytes", plan.activation_bytes},
          {"logit_bytes", plan.logit_bytes},
          {"position_bytes", plan.position_bytes},
          {"kv_bytes_per_token", plan.kv_bytes_per_token},
          {"kv_bytes_per_block", plan.kv_bytes_per_block},
          {"block_size", config.block_size},
          {"num_device_blocks", num_blocks},
          {"kv_bytes", num_blocks * plan.kv_bytes_per_block},
          {"kv_tokens", num_blocks * config.block_size}};
}

void print_section(const char* title, const ordered_json& facts) {
  std::printf("%s\n", title);
  for (const auto& [key, value] : facts.items()) {
    std::printf("  %-26s %s", key.c_str(), value.is_string() ? value.get<std::string>().c_str() : value.dump().c_str());
    if (key.ends_with("_bytes") && value.get<double>() >= kBytesPerGib / 1024) {
      std::printf("  (%.3f GiB)", value.get<double>() / kBytesPerGib);
    }
    std::printf("\n");
  }
}

int list_architectures() {
  for (const auto& name : models::known_architectures()) std::printf("%s\n", name.c_str());
  return kExitOk;
}

/// KV blocks that a run with this configuration would have.
std::int64_t planned_blocks(const EngineConfig& config, const models::MemoryPlan& plan) {
  return config.num_device_blocks > 0 ? config.num_device_blocks : plan.num_blocks;
}

int run_inspect(InspectOptions& options) {
  if (options.architectures) return list_architectures();
  if (const auto problems = options.engine.finish(); !problems.empty()) return exit_with(problems);
  const auto& config = options.engine.config;
  const auto model = io::load_hf_config(config.model);
  if (!model) return exit_with(model.error());
  const auto checkpoint = io::Checkpoint::open(config.model);
  if (!checkpoint) return exit_with(checkpoint.error());
  const auto dtype = named_dtype(config.dtype, model->checkpoint_dtype);
  if (!dtype) return exit_with(dtype.error());
  const auto kv_dtype = named_dtype(config.kv_cache_dtype, *dtype);
  if (!kv_dtype) return exit_with(kv_dtype.error());

  const auto facts = (*checkpoint)->facts();
  models::MemoryRequest request;
  request.weight_bytes = facts.weight_bytes;
  request.kv_dtype = *kv_dtype;
  request.block_size = config.block_size;
  request.limits = {config.max_num_batched_tokens, config.max_num_seqs,
                    config.max_model_len > 0 ? config.max_model_len : model->max_position_embeddings};
  auto plan = models::plan_memory(*model, request);
  request.budget_bytes = plan.fixed_bytes() + io::kv_cache_budget_bytes(config);
  plan = models::plan_memory(*model, request);
  const auto num_blocks = planned_blocks(config, plan);

  auto about_model = model_facts(*model);
  about_model["num_parameters"] = facts.num_parameters;
  about_model["num_tensors"] = facts.num_tensors;
  about_model["num_files"] = facts.num_files;
  auto about_memory = plan_facts(plan, config, num_blocks);
  about_memory["kv_cache_dtype"] = to_string(*kv_dtype);
  about_memory["longest_context"] = std::min(request.limits.max_model_len, num_blocks * config.block_size);
  if (options.json) {
    std::printf("%s\n", ordered_json{{"model", about_model}, {"memory", about_memory}}.dump().c_str());
  } else {
    print_section("model", about_model);
    print_section("memory", about_memory);
  }
  return kExitOk;
}

}  // namespace

Command add_inspect(CLI::App& pagoda) {
  auto* app = pagoda.add_subcommand("inspect", "Facts about a model and a plan of its memory, without loading weights");
  const auto options = std::make_shared<InspectOptions>(*app);
  return {app, [options] { return run_inspect(*options); }};
}

}  // namespace pagoda::apps
