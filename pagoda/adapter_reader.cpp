#include "pagoda/adapter_reader.hpp"

#include <utility>

#include "engine/adapters/bound_adapter.hpp"
#include "engine/adapters/module_names.hpp"
#include "engine/models/model_spec.hpp"
#include "engine/weights/measured_weights.hpp"
#include "io/adapters/base_weights.hpp"
#include "io/adapters/lora_modules.hpp"
#include "io/adapters/read_adapter.hpp"

namespace pagoda {
namespace {

/// Returns the type that low-rank matrices of float32 are rounded to: by default that of the model, if it has 16 bits.
std::optional<DType> rounded_dtype(const EngineConfig& config, const EnginePlan& plan) {
  for (const DType dtype : {DType::f16, DType::bf16}) {
    if (config.lora_dtype == to_string(dtype) || (config.lora_dtype == "auto" && plan.dtype == dtype)) return dtype;
  }
  return std::nullopt;
}

/// Returns a model that knows the shapes of its modules, and has no weights. It keeps `weights`.
std::shared_ptr<const models::Model> measured(const models::ModelSpec& spec,
                                              const std::shared_ptr<weights::MeasuredWeights>& weights) {
  auto model = spec.build(*weights);
  PAGODA_ASSERT(model.has_value(), "the model has been planned");
  return {model->release(), [weights](const models::Model* built) { delete built; }};
}

tl::unexpected<Error> not_enabled(std::string what, const std::string& key) {
  return fail(ErrorCode::unsupported, std::move(what) + ", and the engine was started without " + key, key);
}

tl::unexpected<Error> too_large(const std::string& what, const std::string& key, std::int64_t limit) {
  return fail(ErrorCode::unsupported, what + ", more than " + key + " (" + std::to_string(limit) + ")", key);
}

}  // namespace

AdapterReader::AdapterReader(const EngineConfig& config, const EnginePlan& plan)
    : max_rank_(config.enable_lora ? config.max_lora_rank : 0),
      max_virtual_tokens_(config.enable_prompt_adapter ? config.max_prompt_adapter_token : 0),
      dtype_(rounded_dtype(config, plan)),
      head_dim_(plan.model.decoder.attention_of(0).head_dim),
      checkpoint_(plan.checkpoint) {
  const models::RankPlace place = plan.model.place;
  if (place.is_alone() || !is_enabled()) return;
  whole_ = measured(plan.model.of_rank({}), std::make_shared<weights::MeasuredWeights>(*plan.checkpoint, plan.weights));
  part_ = measured(plan.model, std::make_shared<weights::MeasuredWeights>(*plan.stored, plan.weights));
  const models::DecoderConfig& decoder = plan.model.decoder;
  parts_ = {.is_first_rank = place.rank == 0,
            .has =
                [part = part_](std::string_view module) {
                  return adapters::find_module(part->adapter_modules(), module) != layers::kNoModule;
                },
            .slice_of = [decoder, place](std::string_view module) { return models::slice_of(decoder, place, module); },
            .is_table = models::is_token_embedding,
            .num_kv_heads = decoder.attention.num_kv_heads,
            .head_dim = decoder.attention.head_dim,
            .kv_heads = models::kv_heads_of_rank(decoder.attention.num_kv_heads, place)};
}

Status AdapterReader::take_part_of_rank(adapters::Adapter& adapter) const {
  if (whole_ == nullptr) return {};
  if (Status fits = adapters::check(adapter, whole_->adapter_modules()); !fits) return fits;
  return adapters::take_part_of_rank(adapter, parts_);
}

Status AdapterReader::check_limits(const adapters::Adapter& adapter) const {
  if (adapter.prompt) {
    if (max_virtual_tokens_ == 0) return not_enabled("it is a prompt adapter", "enable_prompt_adapter");
    const std::int64_t count = adapter.num_virtual_tokens();
    if (count <= max_virtual_tokens_) return {};
    return too_large("it has " + std::to_string(count) + " virtual tokens", "max_prompt_adapter_token",
                     max_virtual_tokens_);
  }
  if (max_rank_ == 0) return not_enabled("it is no prompt adapter", "enable_lora");
  const std::int64_t rank = adapters::largest_rank(adapter);
  if (rank <= max_rank_) return {};
  return too_large("its rank is " + std::to_string(rank), "max_lora_rank", max_rank_);
}

Result<adapters::Adapter> AdapterReader::read(const std::string& path) const {
  auto adapter = io::read_adapter(path, head_dim_);
  if (!adapter) return adapter;
  if (Status allowed = check_limits(*adapter); !allowed) return fail(std::move(allowed.error()));
  if (dtype_ && !adapter->prompt) {
    if (Status fits = adapters::round_matrices(*adapter, *dtype_); !fits) return fail(std::move(fits.error()));
  }
  if (!adapter->prompt) {
    if (Status same = io::drop_base_weights(*adapter, *checkpoint_); !same) return fail(std::move(same.error()));
  }
  if (Status taken = take_part_of_rank(*adapter); !taken) return fail(std::move(taken.error()));
  return adapter;
}

Status check_adapters(const EngineConfig& config, const EnginePlan& plan) {
  const auto modules = io::parse_lora_modules(config);
  if (!modules) return fail(modules.error());
  if (modules->empty()) return {};
  const weights::MeasuredWeights weights(*plan.stored, plan.weights);
  const auto model = plan.model.build(weights);
  if (!model) return fail(model.error());
  const AdapterReader reader(config, plan);
  for (const io::AdapterAtStart& module : *modules) {
    const auto adapter = reader.read(module.path);
    const Status fits = adapter ? adapters::check(*adapter, (*model)->adapter_modules()) : fail(adapter.error());
    if (fits) continue;
    return fail(fits.error().code,
                std::string(module.key) + ": adapter \"" + module.name + "\" cannot be loaded: " + fits.error().message,
                module.key);
  }
  return {};
}

}  // namespace pagoda
