#include "pagoda/model_loader.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include "actors/clock.hpp"
#include "engine/models/model_spec.hpp"
#include "io/model_files/model_fingerprint.hpp"
#include "io/packed_cache/cached_copies.hpp"
#include "io/version.hpp"
#include "kernels/quantized.hpp"

namespace pagoda {
namespace {

/// Returns what identifies the copies of weights that a plan makes. The instruction set makes no difference to them.
Result<std::string> identity_of(const EngineConfig& config, const EnginePlan& plan) {
  const auto version = io::model_version(plan.path);
  if (!version) return version;
  const models::RankPlace& place = plan.model.place;
  return io::packed_identity(
      fmt::format("pagoda {}, layout {}\ndtype {}, quantize {}, rank {} of {}, stage {} of {}\n{}", pagoda::version(),
                  kernels::kQuantizedLayoutVersion, config.dtype, config.quantize, place.rank, place.num_ranks,
                  place.stage, place.num_stages, *version));
}

/// Returns `kept` over the cache of packed weights, or `kept` if there is no cache.
Result<std::shared_ptr<weights::KeptCopies>> over_packed_cache(const EngineConfig& config, const EnginePlan& plan,
                                                               const std::shared_ptr<kernels::Device>& device,
                                                               std::shared_ptr<weights::KeptCopies> kept) {
  if (config.packed_cache == "off" || config.load_format == "dummy" || !device->shares_host_memory()) return kept;
  const std::int64_t min_bytes = std::max<std::int64_t>(1, config.packed_cache_min_mib << 20);
  if (plan.copied_weight_bytes < min_bytes) return kept;
  if (Status usable = io::PackedCache::check(config.packed_cache); !usable) return fail(std::move(usable.error()));
  auto cache =
      io::PackedCache::open(config.packed_cache, static_cast<std::int64_t>(config.packed_cache_size * kBytesPerGib));
  if (!cache) {  // for example the disk is full
    spdlog::warn("packed weights are not kept: {}", cache.error().message);
    return kept;
  }
  auto identity = identity_of(config, plan);
  if (!identity) {  // a file beside the model cannot be read
    spdlog::warn("packed weights are not kept: {}", identity.error().message);
    return kept;
  }
  return io::cached_copies(std::move(*cache), {plan.path, std::move(*identity)}, min_bytes, device, std::move(kept));
}

}  // namespace

ModelLoader::ModelLoader(const EngineConfig& config, const EnginePlan& plan, std::shared_ptr<kernels::Device> device,
                         StartProgress progress)
    : plan_(plan),
      block_size_(config.slots_per_block()),
      runner_(runner_config(config, plan)),
      adapter_reader_(config, plan),
      device_(std::move(device)),
      progress_(std::move(progress)) {
  runner_.replay_decode = !device_->shares_host_memory() && !config.enforce_eager;
}

Result<std::shared_ptr<ModelLoader>> ModelLoader::create(const EngineConfig& config, const EnginePlan& plan,
                                                         std::shared_ptr<kernels::Device> device,
                                                         StartProgress progress,
                                                         std::shared_ptr<weights::KeptCopies> kept,
                                                         ConnectRank connect) {
  std::shared_ptr<ModelLoader> loader(new ModelLoader(config, plan, std::move(device), std::move(progress)));
  loader->connect_ = std::move(connect);
  std::shared_ptr<kernels::Device> host = loader->device_;
  if (!host->shares_host_memory()) {
    auto cpu = create_host_device(config);
    if (!cpu) return fail(std::move(cpu.error()));
    host = std::move(*cpu);
  }
  const auto loaded = [self = loader.get()](double done) { self->report("loading weights", done); };
  if (plan.draft) {
    const auto progress_of_draft = [self = loader.get()](std::string_view what, double done) {
      self->report(std::string(what) + " of the draft model", done);
    };
    auto draft = create(config, *plan.draft, loader->device_, progress_of_draft);
    if (!draft) return draft;
    loader->draft_ = std::move(*draft);
  }
  auto copies = over_packed_cache(config, loader->plan_, loader->device_, std::move(kept));
  if (!copies) return fail(std::move(copies.error()));
  loader->kept_ = std::move(*copies);
  if (loader->device_->shares_host_memory()) {
    loader->host_weights_ = std::make_unique<weights::LoadedWeights>(
        *loader->plan_.stored, plan.weights, host, loader->kept_,
        weights::CopyProgress{.report = loaded, .expected_bytes = plan.copied_weight_bytes});
  } else {
    loader->host_weights_ =
        std::make_unique<weights::LoadedWeights>(*loader->plan_.stored, plan.weights, host, loader->kept_);
    loader->device_weights_ =
        std::make_unique<weights::DeviceWeights>(*loader->host_weights_, loader->device_, plan.weight_bytes, loaded);
  }
  return loader;
}

const weights::WeightSource& ModelLoader::weights() const {
  if (device_weights_ != nullptr) return *device_weights_;
  return *host_weights_;
}

void ModelLoader::report(std::string_view what, double done) const {
  if (progress_) progress_(what, done);
}

Result<std::unique_ptr<models::Model>> ModelLoader::make_model() const {
  auto model = models::create_model(plan_.model, weights(), device_, plan_.limits);
  if (!model) return model;
  if (device_weights_ != nullptr) {
    device_weights_->finish();
  } else if (host_weights_->copied_bytes() > 0) {
    report("loading weights", 1);  // weights that are used in place are expected, but not copied
  }
  const models::RankPlace place = plan_.model.place;
  if (place.num_stages > 1) {
    if (place.stage > 0 || place.rank > 0) return model;
    // Tensors that no stage uses are found by building the whole model over the file, without the memory of its runs.
    if (auto whole = plan_.model.of_rank({}).build(*plan_.checkpoint); !whole) return whole;
  }
  if (auto all = plan_.checkpoint->check_all_used(plan_.model); !all) return fail(std::move(all.error()));
  return model;
}

Result<execution::ModelOnDevice> ModelLoader::make_on_device(const layers::KvCache& cache) const {
  auto model = make_model();
  if (!model) return fail(std::move(model.error()));
  return execution::ModelOnDevice{std::move(*model), cache};
}

Result<std::unique_ptr<execution::ModelRunner>> ModelLoader::make_runner(const execution::KvMemory& memory,
                                                                         std::int32_t num_device_blocks) const {
  layers::KvCache cache{.base = memory.device_base(),
                        .num_blocks = num_device_blocks,
                        .block_bytes = plan_.layout.block_bytes(),
                        .block_size = block_size_,
                        .dtype = plan_.kv_dtype};
  auto target = make_on_device(cache);
  if (!target) return fail(std::move(target.error()));
  execution::ModelOnDevice draft;
  if (draft_ != nullptr) {
    cache.base += plan_.layout.draft_offset() + (runner_.features ? runner_.features->bytes() : 0);
    cache.group_bytes = plan_.draft->layout.block_bytes();
    auto made = draft_->make_on_device(cache);
    if (!made) return fail(std::move(made.error()));
    draft = std::move(*made);
    if (runner_.features) {
      auto& head = dynamic_cast<models::DraftHead&>(*draft.model);
      const Status attached = head.attach(*target->model, draft.cache, *plan_.draft->model.draft_head);
      if (!attached) return fail(attached.error());
    }
  }
  adapters::AdapterTable::Reader read;
  if (adapter_reader_.is_enabled()) {
    read = [loader = shared_from_this()](const std::string& path) { return loader->adapter_reader_.read(path); };
  }
  return execution::ModelRunner::create(runner_, std::move(*target), std::move(draft), device_, actors::now_us,
                                        std::move(read), connect_ ? connect_() : nullptr);
}

Result<std::int64_t> ModelLoader::measure_free_bytes() const {
  constexpr std::int32_t kOneBlock = 1;  // the largest steps use no sequence's blocks
  const auto memory = execution::KvMemory::create(device_, plan_.memory.kv_bytes_per_block, kOneBlock, 0);
  if (!memory) return fail(memory.error());
  const auto runner = make_runner(**memory, kOneBlock);
  if (!runner) return fail(runner.error());
  const auto stream = device_->create_stream("pagoda-measure");
  if (!stream) return fail(stream.error());
  if (Status status = (*runner)->run_largest_steps(**stream); !status) return fail(std::move(status.error()));
  return static_cast<std::int64_t>(device_->available_bytes(kernels::MemoryKind::device));
}

Result<actors::WorkerParts> ModelLoader::make_worker(const std::shared_ptr<execution::KvMemory>& memory,
                                                     std::int32_t num_device_blocks) {
  auto runner = make_runner(*memory, num_device_blocks);
  if (!runner) return fail(std::move(runner.error()));
  auto stream = device_->create_stream("pagoda-step");
  if (!stream) return fail(std::move(stream.error()));
  if (runner_.replay_decode) {
    Status status = (*runner)->run_largest_steps(**stream);
    const auto recorded = [this](double done) { report("recording decode steps", done); };
    if (status) status = (*runner)->record_decode_batches(**stream, recorded);
    if (!status) return fail(std::move(status.error()));
  }
  for (const ModelLoader* loader :
       {static_cast<const ModelLoader*>(this), static_cast<const ModelLoader*>(draft_.get())}) {
    if (loader != nullptr && loader->kept_ != nullptr) loader->kept_->mark_complete();
  }
  progress_ = nullptr;
  // The runner points into the weights and the KV memory, so it owns them too: its last step may outlive the actors.
  const auto end = [loader = shared_from_this(), memory](execution::ModelRunner* p) { delete p; };
  const std::shared_ptr<execution::ModelRunner> shared(runner->release(), end);
  return actors::WorkerParts{shared, std::move(*stream), {shared, shared->adapters()}};
}

}  // namespace pagoda
