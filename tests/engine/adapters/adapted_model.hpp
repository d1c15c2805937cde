#pragma once

/// Runs batches of prompts, each with an adapter or none, on any device.

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "engine/adapters/bound_adapter.hpp"
#include "engine/layers/device_array.hpp"
#include "engine/models/model_spec.hpp"

namespace pagoda::test {

/// A sequence: its own tokens. The virtual tokens of its adapter come in front of them.
struct AdaptedPrompt {
  TokenIds tokens;
  const adapters::BoundAdapter* adapter = nullptr;

  const layers::PromptWeights* prompt() const { return adapter == nullptr ? nullptr : adapter->prompt(); }
  std::int64_t num_virtual_tokens() const { return prompt() == nullptr ? 0 : prompt()->num_tokens; }
  std::int64_t length() const { return num_virtual_tokens() + std::ssize(tokens); }
};

class AdaptedModel {
 public:
  using Logits = std::vector<std::vector<float>>;  ///< one row per token

  AdaptedModel(models::ModelSpec spec, const weights::WeightSource& source, std::shared_ptr<kernels::Device> device)
      : spec_(std::move(spec)), device_(std::move(device)), stream_(device_->create_stream("test").value()) {
    auto model =
        models::create_model(spec_, source, device_, {.max_tokens = 512, .max_logit_rows = 512, .max_model_len = 128});
    EXPECT_TRUE(model) << model.error().message;
    model_ = std::move(*model);
  }

  /// Options of all later runs.
  DType kv_dtype = DType::f32;
  TokenId placeholder = 0;  ///< id of virtual tokens

  models::Model& model() { return *model_; }
  const models::ModelSpec& spec() const { return spec_; }
  const layers::AdapterModules& modules() const { return model_->adapter_modules(); }

  std::unique_ptr<const adapters::BoundAdapter> bind(const adapters::Adapter& adapter) {
    auto bound = adapters::BoundAdapter::create(adapter, modules(), *device_);
    EXPECT_TRUE(bound) << bound.error().message;
    return bound ? std::move(*bound) : nullptr;
  }

  /// Returns the logits of all tokens of each prompt, without those of virtual tokens. Each step runs up to `chunk`
  /// tokens of each prompt.
  std::vector<Logits> run(const std::vector<AdaptedPrompt>& prompts, std::int64_t chunk = kMaxLength) {
    num_blocks_ = std::ssize(spec_.kv) * std::ssize(prompts) * kMaxBlocks;
    const std::int64_t block_bytes = spec_.kv_layout(kBlockSize, kv_dtype).block_bytes();
    kv_ = device_->allocate(static_cast<std::size_t>(num_blocks_ * block_bytes), kernels::MemoryKind::device).value();
    std::vector<Logits> results(prompts.size());
    std::int64_t longest = 0;
    for (const AdaptedPrompt& prompt : prompts) longest = std::max(longest, prompt.length());
    EXPECT_LE(longest, kMaxLength);
    for (std::int64_t first = 0; first < longest; first += chunk) run_step(prompts, first, chunk, results);
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      results[i].erase(results[i].begin(), results[i].begin() + prompts[i].num_virtual_tokens());
    }
    return results;
  }

  /// Returns the keys and values that the cache has for the first tokens of the first prompt of the last run: [tokens,
  /// layers, 2, kv width]. The device reads the host's memory, and the cache has floats.
  std::vector<float> kv_of_first(std::int64_t num_tokens, std::size_t num_prompts) const {
    EXPECT_LE(num_tokens, kBlockSize);
    std::vector<float> kv;
    for (std::int64_t token = 0; token < num_tokens; ++token) {
      for (std::int64_t layer = 0; layer < spec_.decoder.num_layers(); ++layer) {
        const auto shape = spec_.decoder.attention_of(layer);
        const auto place = spec_.decoder.kv_place(layer);
        const kernels::KvCacheView view{
            .base = kv_.as<std::byte>() + place.layer * shape.kv_bytes(kBlockSize, kv_dtype),
            .block_bytes = spec_.kv_layout(kBlockSize, kv_dtype).block_bytes(),
            .num_blocks = num_blocks_,
            .block_size = kBlockSize,
            .num_kv_heads = shape.num_kv_heads,
            .head_dim = shape.head_dim,
            .dtype = kv_dtype};
        const std::int64_t block = place.group * static_cast<std::int64_t>(num_prompts) * kMaxBlocks;
        for (const std::byte* part : {view.key_block(block), view.value_block(block)}) {
          for (std::int64_t head = 0; head < shape.num_kv_heads; ++head) {
            const auto* row = reinterpret_cast<const float*>(part) + (head * kBlockSize + token) * shape.head_dim;
            kv.insert(kv.end(), row, row + shape.head_dim);
          }
        }
      }
    }
    return kv;
  }

 private:
  static constexpr std::int32_t kBlockSize = 16;
  static constexpr std::int64_t kMaxBlocks = 6;  // of a sequence and a group
  static constexpr std::int64_t kMaxLength = kMaxBlocks * kBlockSize;

  /// Runs the tokens [first, first + chunk) of all prompts that have them, and appends their logits.
  void run_step(const std::vector<AdaptedPrompt>& prompts, std::int64_t first, std::int64_t chunk,
                std::vector<Logits>& results) {
    std::vector<std::size_t> running;
    std::vector<std::int32_t> ids;
    std::vector<std::int32_t> positions;
    std::vector<std::int32_t> query_start{0};
    std::vector<std::int32_t> context_len;
    layers::BatchAdapters adapters;
    layers::BatchPrompts virtual_tokens;
    for (std::size_t i = 0; i < prompts.size(); ++i) {
      const AdaptedPrompt& prompt = prompts[i];
      const std::int64_t end = std::min(first + chunk, prompt.length());
      if (first >= end) continue;
      running.push_back(i);
      const std::int64_t row = query_start.back();
      const std::int64_t num_virtual = std::min(prompt.num_virtual_tokens(), end) - first;
      if (num_virtual > 0) virtual_tokens.push_back({row, num_virtual, first, prompt.prompt()});
      if (prompt.adapter != nullptr && prompt.prompt() == nullptr) {
        add(adapters, row, end - first, prompt.adapter->weights());
      }
      for (std::int64_t p = first; p < end; ++p) {
        const std::int64_t own = p - prompt.num_virtual_tokens();
        ids.push_back(own < 0 ? placeholder : prompt.tokens[static_cast<std::size_t>(own)]);
        positions.push_back(static_cast<std::int32_t>(p));
      }
      query_start.push_back(static_cast<std::int32_t>(row + end - first));
      context_len.push_back(static_cast<std::int32_t>(end));
    }
    std::vector<std::int32_t> tables;
    std::vector<std::int64_t> slots;
    for (std::int64_t group = 0; group < std::ssize(spec_.kv); ++group) {
      for (std::size_t i = 0; i < running.size(); ++i) {
        const std::int64_t block = (group * std::ssize(prompts) + static_cast<std::int64_t>(running[i])) * kMaxBlocks;
        for (std::int64_t p = first; p < context_len[i]; ++p) slots.push_back(block * kBlockSize + p);
        for (std::int64_t k = 0; k < kMaxBlocks; ++k) tables.push_back(static_cast<std::int32_t>(block + k));
      }
    }
    std::vector<std::int32_t> rows(ids.size());
    std::iota(rows.begin(), rows.end(), 0);
    std::vector<float> logits(ids.size() * static_cast<std::size_t>(spec_.vocab_size));
    const auto num_rows = static_cast<std::int32_t>(rows.size());
    const std::int32_t longest = *std::ranges::max_element(context_len);
    memory_.clear();
    auto* out = const_cast<float*>(upload(logits));
    const auto* row_ids = upload(rows);
    const layers::ForwardBatch batch{.num_tokens = num_rows,
                                     .num_sequences = static_cast<std::int32_t>(running.size()),
                                     .token_ids = upload(ids),
                                     .positions = upload(positions),
                                     .slot_mapping = upload(slots),
                                     .query_start = upload(query_start),
                                     .context_len = upload(context_len),
                                     .block_tables = upload(tables),
                                     .max_blocks = kMaxBlocks,
                                     .max_query_len = longest,
                                     .max_context_len = longest,
                                     .adapters = adapters.empty() ? nullptr : &adapters,
                                     .prompts = virtual_tokens.empty() ? nullptr : &virtual_tokens};
    const layers::KvCache cache{.base = kv_.as<std::byte>(),
                                .num_blocks = num_blocks_,
                                .block_bytes = spec_.kv_layout(kBlockSize, kv_dtype).block_bytes(),
                                .block_size = kBlockSize,
                                .dtype = kv_dtype};
    Status status;
    stream_->submit([&] {
      status = model_->run(*stream_, batch, cache);
      if (status) status = model_->logits(*stream_, row_ids, num_rows, out, batch.adapters);
    });
    stream_->synchronize();
    EXPECT_TRUE(status) << status.error().message;
    const auto host = layers::copy_to_host(*device_, out, logits.size() * sizeof(float)).value();
    std::memcpy(logits.data(), host.data(), host.bytes());
    const float* at = logits.data();
    for (std::size_t i = 0; i < running.size(); ++i) {
      for (std::int32_t row = query_start[i]; row < query_start[i + 1]; ++row, at += spec_.vocab_size) {
        results[running[i]].emplace_back(at, at + spec_.vocab_size);
      }
    }
  }

  /// Appends rows, to the last entry if they follow it and have its adapter.
  static void add(layers::BatchAdapters& adapters, std::int64_t first_row, std::int64_t num_rows,
                  const layers::AdapterWeights& adapter) {
    const bool follows = !adapters.empty() && adapters.back().adapter == &adapter &&
                         adapters.back().first_row + adapters.back().num_rows == first_row;
    if (follows) {
      adapters.back().num_rows += num_rows;
    } else {
      adapters.push_back({.first_row = first_row, .num_rows = num_rows, .adapter = &adapter});
    }
  }

  template <class T>
  const T* upload(const std::vector<T>& values) {
    memory_.push_back(layers::copy_to_device(*device_, std::as_bytes(std::span(values))).value());
    return memory_.back().template as<T>();
  }

  models::ModelSpec spec_;
  std::shared_ptr<kernels::Device> device_;
  std::unique_ptr<kernels::Stream> stream_;
  std::unique_ptr<models::Model> model_;
  kernels::Buffer kv_;  // of the last run
  std::int64_t num_blocks_ = 0;
  std::vector<kernels::Buffer> memory_;
};

/// Expects logits that differ by at most 1e-4, or by 1e-4 of their size.
inline void expect_near(const AdaptedModel::Logits& actual, const AdaptedModel::Logits& expected) {
  constexpr float kTolerance = 1e-4F;
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t row = 0; row < actual.size(); ++row) {
    for (std::size_t i = 0; i < actual[row].size(); ++i) {
      const float allowed = kTolerance * std::max(1.0F, std::abs(expected[row][i]));
      ASSERT_NEAR(actual[row][i], expected[row][i], allowed) << "row " << row << ", token " << i;
    }
  }
}

}  // namespace pagoda::test
