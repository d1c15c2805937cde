#include "pagoda/token_logits.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "engine/execution/kv_memory.hpp"
#include "pagoda/engine_plan.hpp"
#include "pagoda/model_loader.hpp"

namespace pagoda {
namespace {

/// Number of positions whose logits are computed at once.
constexpr std::int32_t kLogitRows = 64;

EngineConfig config_of_one_text(EngineConfig config, std::int32_t max_tokens) {
  config = config.with_one_device();
  config.speculative_config = {};
  config.max_model_len = max_tokens;
  config.max_num_batched_tokens = max_tokens;
  config.max_num_seqs = std::min(kLogitRows, max_tokens);
  config.num_device_blocks = (max_tokens + config.slots_per_block() - 1) / config.slots_per_block();
  config.num_host_blocks = 0;
  return config;
}

}  // namespace

struct TokenLogits::State {
  std::shared_ptr<kernels::Device> device;
  EnginePlan plan;
  std::shared_ptr<ModelLoader> loader;
  std::shared_ptr<const text::Tokenizer> tokenizer;
  std::shared_ptr<execution::KvMemory> kv;
  std::unique_ptr<kernels::Stream> stream;
  std::optional<ReplacedWeights> replaced;
  std::unique_ptr<models::Model> model;
  std::int32_t block_size = 0;

  Status run(const std::function<Status()>& issue) {
    Status status;
    stream->submit([&] { status = issue(); });
    stream->synchronize();
    return status ? stream->status() : status;
  }

  /// Returns a copy of `values` in memory that ops read.
  template <class T>
  Result<kernels::Buffer> upload(const std::vector<T>& values) {
    const std::size_t bytes = values.size() * sizeof(T);
    auto to = device->allocate(bytes, kernels::MemoryKind::device);
    if (!to) return to;
    if (const Status copied = copy(values.data(), to->data(), bytes); !copied) return fail(copied.error());
    return to;
  }

  /// Copies between host memory and device memory, in either direction.
  Status copy(const void* from, void* to, std::size_t bytes) {
    if (device->shares_host_memory()) {
      std::memcpy(to, from, bytes);
      return {};
    }
    return run([&] {
      return device->ops().copy(
          *stream, {.from = static_cast<const std::byte*>(from), .to = static_cast<std::byte*>(to), .bytes = bytes});
    });
  }
};

TokenLogits::TokenLogits(std::unique_ptr<State> state) : state_(std::move(state)) {}
TokenLogits::~TokenLogits() = default;

Result<std::unique_ptr<TokenLogits>> TokenLogits::create(const EngineConfig& config, std::int32_t max_tokens,
                                                         const StartProgress& progress) {
  const EngineConfig one_text = config_of_one_text(config, max_tokens);
  auto state = std::make_unique<State>();
  auto device = create_device(one_text);
  if (!device) return fail(std::move(device.error()));
  state->device = std::move(*device);
  auto plan = plan_engine(one_text, *state->device);
  if (!plan) return fail(std::move(plan.error()));
  state->plan = std::move(*plan);
  state->block_size = one_text.slots_per_block();
  auto tokenizer = state->plan.files->tokenizer();
  if (!tokenizer) return fail(std::move(tokenizer.error()));
  state->tokenizer = std::move(*tokenizer);
  auto loader = ModelLoader::create(one_text, state->plan, state->device, progress);
  if (!loader) return fail(std::move(loader.error()));
  state->loader = std::move(*loader);
  state->plan.num_device_blocks *= state->plan.layout.num_groups();
  auto kv = execution::KvMemory::create(state->device, state->plan.memory.kv_bytes_per_block,
                                        state->plan.num_device_blocks, 0);
  if (!kv) return fail(std::move(kv.error()));
  state->kv = std::move(*kv);
  auto stream = state->device->create_stream("pagoda-logits");
  if (!stream) return fail(std::move(stream.error()));
  state->stream = std::move(*stream);
  auto model = state->loader->make_model();
  if (!model) return fail(std::move(model.error()));
  state->model = std::move(*model);
  return std::unique_ptr<TokenLogits>(new TokenLogits(std::move(state)));
}

Status TokenLogits::run(const TokenIds& tokens, std::int32_t first, const Take& take, layers::LinearInputs* inputs) {
  State& s = *state_;
  const auto n = static_cast<std::int32_t>(tokens.size());
  PAGODA_ASSERT(n > 0 && n <= s.plan.limits.max_tokens && first >= 0, "a text within the limits");
  std::vector<std::int32_t> positions(tokens.size());
  std::iota(positions.begin(), positions.end(), 0);
  const std::int32_t num_blocks = s.plan.layout.table_size(n);
  std::vector<std::int64_t> slots;
  std::vector<std::int32_t> table;
  for (KvGroupId group = 0; group < s.plan.layout.num_groups(); ++group) {
    for (std::int32_t i = 0; i < num_blocks; ++i) table.push_back(group * num_blocks + i);
    for (std::int32_t p = 0; p < n; ++p) slots.push_back(std::int64_t{group} * num_blocks * s.block_size + p);
  }
  const auto token_ids = s.upload(std::vector<std::int32_t>(tokens.begin(), tokens.end()));
  const auto position_ids = s.upload(positions);
  const auto slot_mapping = s.upload(slots);
  const auto query_start = s.upload(std::vector<std::int32_t>{0, n});
  const auto context_len = s.upload(std::vector<std::int32_t>{n});
  const auto block_table = s.upload(table);
  const std::size_t row_bytes = static_cast<std::size_t>(vocab_size()) * sizeof(float);
  const std::int32_t rows_at_once = s.plan.limits.max_logit_rows;
  const auto logits =
      s.device->allocate(static_cast<std::size_t>(rows_at_once) * row_bytes, kernels::MemoryKind::device);
  for (const auto* buffer :
       {&token_ids, &position_ids, &slot_mapping, &query_start, &context_len, &block_table, &logits}) {
    if (!*buffer) return fail(buffer->error());
  }
  const layers::ForwardBatch batch{.num_tokens = n,
                                   .num_sequences = 1,
                                   .token_ids = token_ids->as<std::int32_t>(),
                                   .positions = position_ids->as<std::int32_t>(),
                                   .slot_mapping = slot_mapping->as<std::int64_t>(),
                                   .query_start = query_start->as<std::int32_t>(),
                                   .context_len = context_len->as<std::int32_t>(),
                                   .block_tables = block_table->as<std::int32_t>(),
                                   .max_blocks = num_blocks,
                                   .max_query_len = n,
                                   .max_context_len = n,
                                   .linear_inputs = inputs};
  const layers::KvCache cache{.base = s.kv->device_base(),
                              .num_blocks = s.plan.num_device_blocks,
                              .block_bytes = s.plan.layout.block_bytes(),
                              .block_size = s.block_size,
                              .dtype = s.plan.kv_dtype};
  if (Status status = s.run([&] { return s.model->run(*s.stream, batch, cache); }); !status) return status;
  std::vector<float> row(static_cast<std::size_t>(vocab_size()));
  for (std::int32_t begin = first; begin < n; begin += rows_at_once) {
    const std::int32_t count = std::min(rows_at_once, n - begin);
    Status status = s.run([&] {
      return s.model->logits(*s.stream, position_ids->as<std::int32_t>() + begin, count, logits->as<float>(), nullptr);
    });
    for (std::int32_t i = 0; i < count && status; ++i) {
      status = s.copy(logits->as<std::byte>() + static_cast<std::size_t>(i) * row_bytes, row.data(), row_bytes);
      if (status) take(begin + i, row);
    }
    if (!status) return status;
  }
  return {};
}

Status TokenLogits::replace(LinearWeights linears) {
  State& s = *state_;
  s.model.reset();
  const std::size_t count = linears.size();
  s.replaced.emplace(s.loader->weights(), std::move(linears));
  auto model = models::create_model(s.plan.model, *s.replaced, s.device, s.plan.limits);
  if (!model) return fail(std::move(model.error()));
  s.model = std::move(*model);
  if (s.replaced->num_taken() == count) return {};
  return fail(ErrorCode::internal, "the model has no linear layer of a name whose weights are to be replaced");
}

const text::Tokenizer& TokenLogits::tokenizer() const {
  return *state_->tokenizer;
}
const std::shared_ptr<kernels::Device>& TokenLogits::device() const {
  return state_->device;
}
std::int64_t TokenLogits::vocab_size() const {
  return state_->plan.model.vocab_size;
}
std::int64_t TokenLogits::weight_bytes() const {
  return state_->plan.memory.weight_bytes;
}

}  // namespace pagoda
