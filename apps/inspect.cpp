#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>
#include <variant>

#include <nlohmann/json.hpp>

#include "apps/command.hpp"
#include "apps/flags.hpp"
#include "engine/models/families.hpp"
#include "io/dialect_file.hpp"
#include "io/model_files/model_files.hpp"
#include "kernels/cpu/memory_limits.hpp"
#include "pagoda/engine_plan.hpp"

namespace pagoda::apps {
namespace {

using nlohmann::ordered_json;

constexpr double kBytesPerGib = 1 << 30;

struct InspectOptions {
  explicit InspectOptions(CLI::App& app) : engine(app, "warn") {
    engine.flags.also_positional("model", "MODEL", engine.config.model, "Folder of the model, or GGUF file");
    add_flag(app, "--json", json, "Print one JSON object");
    add_flag(app, "--dialect", dialect,
             "Print how the model writes thinking and tool calls, as a file for --answer-dialect, and nothing else");
    add_flag(app, "--architectures", architectures, "List the architectures that can be run, and nothing else");
  }

  EngineFlags engine;
  bool json = false;
  bool dialect = false;
  bool architectures = false;
};

ordered_json model_facts(const models::ModelSpec& model) {
  ordered_json facts{{"architecture", model.architecture}, {"vocab_size", model.vocab_size}};
  for (const auto& [name, value] : model.facts) std::visit([&](const auto& v) { facts[name] = v; }, value);
  facts["max_position_embeddings"] = model.max_position_embeddings;
  facts["tie_word_embeddings"] = model.tie_word_embeddings;
  facts["checkpoint_dtype"] = to_string(model.checkpoint_dtype);
  return facts;
}

/// Returns an empty object if there is no draft model.
ordered_json draft_facts(const EnginePlan& engine) {
  if (!engine.draft) return ordered_json::object();
  ordered_json facts = model_facts(engine.draft->model);
  facts["weight_bytes"] = engine.draft->weight_bytes;
  facts["copied_weight_bytes"] = engine.draft->copied_weight_bytes;
  facts["kv_bytes_per_block"] = engine.layout.draft_bytes;
  return facts;
}

/// Returns where swapped KV blocks are stored.
std::string swap_of(const EnginePlan& engine, const EngineConfig& config) {
  if (engine.num_host_blocks == 0) return "none";
  return config.swap_dir.empty() ? "host memory" : "file in " + config.swap_dir;
}

ordered_json kv_groups_of(const KvLayout& layout) {
  auto groups = ordered_json::array();
  for (const KvGroup& group : layout.groups) {
    groups.push_back(ordered_json{{"num_layers", group.num_layers}, {"window", group.window}});
  }
  return groups;
}

ordered_json memory_facts(const EnginePlan& engine, const EngineConfig& config, const kernels::Device& device) {
  const auto& plan = engine.memory;
  const std::int64_t num_blocks = engine.num_device_blocks;
  const std::int64_t longest = std::min(engine.limits.max_model_len, longest_sequence(config, engine));
  const std::int64_t blocks_of_longest =
      engine.layout.peak_blocks(static_cast<std::int32_t>(longest), engine.limits.max_tokens);
  const std::int64_t kv_tokens = num_blocks / engine.layout.num_groups() * config.slots_per_block();
  ordered_json facts{{"device", device.description()},
                     {"device_free_bytes", device.available_bytes(kernels::MemoryKind::device)}};
  if (config.data_parallel_size > 1) facts["num_replicas"] = config.data_parallel_size;
  if (config.num_ranks() > 1) {
    facts["rank"] = config.rank;
    facts["num_ranks"] = config.num_ranks();
  }
  if (const models::RankPlace place = engine.model.place; place.num_stages > 1) {
    const weights::Range layers = models::layers_of_stage(engine.model.decoder, place);
    facts["stage"] = place.stage;
    facts["num_stages"] = place.num_stages;
    facts["first_layer"] = layers.begin;
    facts["num_layers"] = layers.size();
  }
  if (!device.shares_host_memory()) facts["gpu_memory_utilization"] = config.gpu_memory_utilization;
  if (!device.shares_host_memory()) facts["host_free_bytes"] = device.available_bytes(kernels::MemoryKind::host);
  if (device.shares_host_memory()) {
    facts["device_free_limit"] = kernels::available_memory().limit;
    facts["needed_bytes"] = host_bytes_needed(config, engine, all_devices(config));
    facts["weight_memory"] = engine.copied_weight_bytes == 0                  ? "mapped"
                             : engine.copied_weight_bytes < plan.weight_bytes ? "copied in part"
                                                                              : "copied";
    facts["copied_weight_bytes"] = engine.copied_weight_bytes;
  }
  facts.update(ordered_json{{"dtype", to_string(engine.dtype)},
                            {"quantize", config.quantize},
                            {"weight_bytes", plan.weight_bytes},
                            {"activation_bytes", plan.activation_bytes},
                            {"logit_bytes", plan.logit_bytes},
                            {"adapter_bytes", plan.adapter_bytes},
                            {"position_bytes", plan.position_bytes},
                            {"batch_bytes", plan.batch_bytes},
                            {"kv_bytes_per_token", plan.kv_bytes_per_token},
                            {"kv_bytes_per_block", plan.kv_bytes_per_block},
                            {"block_size", config.slots_per_block()},
                            {"kv_groups", kv_groups_of(engine.layout)},
                            {"num_device_blocks", num_blocks},
                            {"kv_bytes", num_blocks * plan.kv_bytes_per_block},
                            {"kv_tokens", kv_tokens},
                            {"kv_cache_dtype", to_string(engine.kv_dtype)},
                            {"swap", swap_of(engine, config)},
                            {"num_host_blocks", engine.num_host_blocks},
                            {"max_num_seqs", config.num_rows()},
                            {"max_num_batched_tokens", engine.limits.max_tokens},
                            {"longest_context", longest},
                            {"longest_context_bytes", blocks_of_longest * plan.kv_bytes_per_block},
                            {"host_pool_bytes", std::int64_t{engine.num_host_blocks} * plan.kv_bytes_per_block}});
  return facts;
}

/// Returns the memory of each rank of a replica; an empty list if there is one. `planned`, `first`: of the first rank.
Result<ordered_json> ranks_of(const EngineConfig& config, const EnginePlan& planned, const ordered_json& first,
                              const kernels::Device& device) {
  auto ranks = ordered_json::array();
  if (config.num_ranks() == 1) return ranks;
  ranks.push_back(first);
  const auto model = plan_model(config.of_replica(0).of_rank(0));
  if (!model) return fail(model.error());
  const auto needed = host_bytes_of_all(config, device, planned);
  if (!needed) return fail(needed.error());
  for (RankId rank = 1; rank < config.num_ranks(); ++rank) {
    const EngineConfig its = config.of_replica(0).of_rank(rank);
    const auto part = plan_other_rank(its, device, *model, planned);
    if (!part) return fail(part.error());
    ranks.push_back(memory_facts(*part, its, device));
  }
  for (ordered_json& rank : ranks) rank["needed_bytes"] = *needed;
  return ranks;
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

int print_dialect(const EngineConfig& config) {
  const auto prompts = io::load_chat_prompts(config);
  if (!prompts) return exit_with(prompts.error());
  if (*prompts == nullptr) {
    return exit_with(
        Error{ErrorCode::bad_config, "the model has no chat template: give one with --chat-template", "chat_template"});
  }
  std::printf("%s", io::to_text(*(*prompts)->dialect()).c_str());
  return kExitOk;
}

int run_inspect(InspectOptions& options) {
  if (options.architectures) return list_architectures();
  if (const auto problems = options.engine.finish(); !problems.empty()) return exit_with(problems);
  const auto& config = options.engine.config;
  if (options.dialect) return print_dialect(config);
  const EngineConfig replica = config.of_replica(0).of_rank(0);
  const auto device = create_device(replica);
  if (!device) return exit_with(device.error());
  const auto plan = plan_engine(replica, **device);
  if (!plan) return exit_with(plan.error());
  if (const Status same = check_draft_tokens(*plan); !same) return exit_with(same.error());

  const auto facts = plan->checkpoint->facts();
  auto about_model = model_facts(plan->model);
  about_model["format"] = facts.format;
  about_model["num_parameters"] = facts.num_parameters;
  about_model["num_tensors"] = facts.num_tensors;
  about_model["num_files"] = facts.num_files;
  if (const auto types = plan->checkpoint->quantization(); !types.empty()) about_model["quantization"] = types;
  auto about_memory = memory_facts(*plan, replica, **device);
  auto ranks = ranks_of(config, *plan, about_memory, **device);
  if (!ranks) return exit_with(ranks.error());
  if (!ranks->empty()) about_memory = ranks->front();
  const ordered_json about_draft = draft_facts(*plan);
  if (options.json) {
    ordered_json all{{"model", about_model}, {"memory", about_memory}};
    if (!about_draft.empty()) all["draft_model"] = about_draft;
    if (!ranks->empty()) all["ranks"] = *ranks;
    std::printf("%s\n", all.dump().c_str());
    return kExitOk;
  }
  print_section("model", about_model);
  if (!about_draft.empty()) print_section("draft model (its memory is in that below)", about_draft);
  if (ranks->empty()) {
    print_section(config.data_parallel_size > 1 ? "memory of one replica (needed_bytes: of all)" : "memory",
                  about_memory);
  }
  for (const ordered_json& rank : *ranks) {
    print_section(("memory of rank " + rank["rank"].dump() + " (needed_bytes: of all)").c_str(), rank);
  }
  return kExitOk;
}

}  // namespace

Command add_inspect(CLI::App& pagoda) {
  auto* app =
      add_subcommand(pagoda, "inspect", "Facts about a model and a plan of its memory, without loading weights");
  const auto options = std::make_shared<InspectOptions>(*app);
  return {app, [options] { return run_inspect(*options); }};
}

}  // namespace pagoda::apps
