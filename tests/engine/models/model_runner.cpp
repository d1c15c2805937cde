#include "tests/engine/models/model_runner.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>
#include <stdexcept>

#include <gtest/gtest.h>

#include "engine/weights/loaded_weights.hpp"
#include "io/model_files/model_files.hpp"

namespace pagoda::test {
namespace {

constexpr std::int32_t kMaxTokens = 512;
constexpr std::int64_t kNumSlots = 8192;

template <class T>
T must(Result<T> result) {
  if (!result) throw std::runtime_error(result.error().message);
  return std::move(*result);
}

}  // namespace

struct ModelRunner::State {
  Options options;
  models::ModelSpec spec;
  std::shared_ptr<const io::ModelWeights> checkpoint;
  std::shared_ptr<kernels::Device> device;
  std::unique_ptr<weights::LoadedWeights> weights;
  std::unique_ptr<kernels::Stream> stream;
  std::unique_ptr<models::Model> model;
  std::int64_t block_bytes = 0;
  kernels::Buffer kv;
  std::vector<std::int32_t> free_blocks;
  struct Sequence {
    std::int32_t length = 0;
    std::vector<std::vector<std::int32_t>> blocks;  // by KV group
  };
  std::vector<Sequence> sequences;
  std::vector<kernels::Buffer> inputs;  // inputs of the run in progress

  template <class T>
  const T* upload(const std::vector<T>& values) {
    auto buffer =
        must(device->allocate(std::max<std::size_t>(1, values.size() * sizeof(T)), kernels::MemoryKind::device));
    if (!values.empty()) std::memcpy(buffer.data(), values.data(), values.size() * sizeof(T));
    inputs.push_back(std::move(buffer));
    return inputs.back().as<T>();
  }

  /// Returns what `issue` writes for token rows of the last run: [count, width].
  template <class Issue>
  Rows rows_of(const std::vector<std::int32_t>& token_rows, std::int64_t width, const Issue& issue) {
    const auto count = static_cast<std::int32_t>(token_rows.size());
    const auto* rows = upload(token_rows);
    const auto* out = upload(std::vector<float>(static_cast<std::size_t>(count * width)));
    Status status;
    stream->submit([&] { status = issue(rows, count, const_cast<float*>(out)); });
    stream->synchronize();
    EXPECT_TRUE(status) << (status ? "" : status.error().message);
    Rows result;
    for (std::int32_t i = 0; i < count; ++i) result.emplace_back(out + i * width, out + (i + 1) * width);
    return result;
  }
};

ModelRunner::ModelRunner(const std::filesystem::path& model, const Options& options)
    : state_(std::make_unique<State>()) {
  auto& s = *state_;
  s.options = options;
  const auto files = must(io::open_model_files(model));
  s.spec = must(files->spec());
  s.checkpoint = must(files->weights());
  s.device = must(kernels::create_cpu_device({.num_threads = options.num_threads, .isa = options.isa}));
  s.weights = std::make_unique<weights::LoadedWeights>(
      *s.checkpoint, weights::weight_policy(options.dtype, options.quantize), s.device);
  s.stream = must(s.device->create_stream("test"));
  s.model = must(models::create_model(
      s.spec, *s.weights, s.device,
      {.max_tokens = kMaxTokens, .max_logit_rows = kMaxTokens, .max_model_len = s.spec.max_position_embeddings}));
  s.block_bytes = s.spec.kv_layout(options.block_size, options.kv_dtype).block_bytes();
  const std::int64_t bytes = kNumSlots / options.block_size * s.block_bytes;
  s.kv = must(s.device->allocate(static_cast<std::size_t>(bytes), kernels::MemoryKind::device));
  s.free_blocks.resize(static_cast<std::size_t>(kNumSlots / options.block_size));
  std::iota(s.free_blocks.begin(), s.free_blocks.end(), 0);
  std::shuffle(s.free_blocks.begin(), s.free_blocks.end(), std::mt19937(1));
}

ModelRunner::~ModelRunner() = default;

const models::ModelSpec& ModelRunner::spec() const {
  return state_->spec;
}
models::Model& ModelRunner::model() {
  return *state_->model;
}
kernels::Device& ModelRunner::device() {
  return *state_->device;
}

int ModelRunner::add_sequence() {
  state_->sequences.emplace_back().blocks.resize(state_->spec.kv.size());
  return static_cast<int>(state_->sequences.size()) - 1;
}

std::vector<ModelRunner::Rows> ModelRunner::run(const std::vector<Chunk>& chunks) {
  auto& s = *state_;
  std::vector<std::int32_t> token_ids;
  std::vector<std::int32_t> positions;
  std::vector<std::vector<std::int64_t>> slots_of_groups(s.spec.kv.size());
  std::vector<std::int32_t> query_start{0};
  std::vector<std::int32_t> context_len;
  std::size_t max_blocks = 1;
  for (const auto& chunk : chunks) {
    auto& sequence = s.sequences[static_cast<std::size_t>(chunk.sequence)];
    for (const auto token : chunk.tokens) {
      const std::int32_t offset = sequence.length % s.options.block_size;
      for (std::size_t group = 0; group < s.spec.kv.size(); ++group) {
        auto& blocks = sequence.blocks[group];
        if (offset == 0) {
          blocks.push_back(s.free_blocks.back());
          s.free_blocks.pop_back();
        }
        slots_of_groups[group].push_back(std::int64_t{blocks.back()} * s.options.block_size + offset);
      }
      token_ids.push_back(token);
      positions.push_back(sequence.length++);
    }
    query_start.push_back(static_cast<std::int32_t>(token_ids.size()));
    context_len.push_back(sequence.length);
    max_blocks = std::max(max_blocks, sequence.blocks.front().size());
  }
  std::vector<std::int32_t> tables;
  std::vector<std::int64_t> slots;
  for (std::size_t group = 0; group < s.spec.kv.size(); ++group) {
    slots.insert(slots.end(), slots_of_groups[group].begin(), slots_of_groups[group].end());
    for (const auto& chunk : chunks) {
      const auto& blocks = s.sequences[static_cast<std::size_t>(chunk.sequence)].blocks[group];
      tables.insert(tables.end(), blocks.begin(), blocks.end());
      tables.insert(tables.end(), max_blocks - blocks.size(), 0);
    }
  }
  s.inputs.clear();
  const layers::ForwardBatch batch{.num_tokens = static_cast<std::int32_t>(token_ids.size()),
                                   .num_sequences = static_cast<std::int32_t>(chunks.size()),
                                   .token_ids = s.upload(token_ids),
                                   .positions = s.upload(positions),
                                   .slot_mapping = s.upload(slots),
                                   .query_start = s.upload(query_start),
                                   .context_len = s.upload(context_len),
                                   .block_tables = s.upload(tables),
                                   .max_blocks = static_cast<std::int64_t>(max_blocks)};
  const layers::KvCache cache{.base = s.kv.as<std::byte>(),
                              .num_blocks = kNumSlots / s.options.block_size,
                              .block_bytes = s.block_bytes,
                              .block_size = s.options.block_size,
                              .dtype = s.options.kv_dtype};
  Status status;
  s.stream->submit([&] { status = s.model->run(*s.stream, batch, cache); });
  s.stream->synchronize();
  EXPECT_TRUE(status) << (status ? "" : status.error().message);

  std::vector<std::int32_t> all(token_ids.size());
  std::iota(all.begin(), all.end(), 0);
  const Rows rows = logits(all);
  std::vector<Rows> results;
  auto row = rows.begin();
  for (const auto& chunk : chunks) {
    const auto end = row + std::ssize(chunk.tokens);
    results.emplace_back(row, end);
    row = end;
  }
  return results;
}

ModelRunner::Rows ModelRunner::logits(const std::vector<std::int32_t>& token_rows) {
  auto& s = *state_;
  return s.rows_of(token_rows, s.spec.vocab_size, [&](const std::int32_t* rows, std::int32_t count, float* out) {
    return s.model->logits(*s.stream, rows, count, out, nullptr);
  });
}

ModelRunner::Rows ModelRunner::hidden(const std::vector<std::int32_t>& token_rows) {
  auto& s = *state_;
  return s.rows_of(token_rows, s.model->hidden_width(), [&](const std::int32_t* rows, std::int32_t count, float* out) {
    return s.model->hidden(*s.stream, rows, count, out);
  });
}

TokenId argmax(const std::vector<float>& logits) {
  return static_cast<TokenId>(std::ranges::max_element(logits) - logits.begin());
}

double logprob(const std::vector<float>& logits, TokenId token) {
  const double top = *std::ranges::max_element(logits);
  double sum = 0.0;
  for (const float logit : logits) sum += std::exp(logit - top);
  return logits[static_cast<std::size_t>(token)] - top - std::log(sum);
}

}  // namespace pagoda::test
