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

/// A sequence of a batch: all tokens are new.
struct AdaptedPrompt {
  TokenIds tokens;
  const adapters::BoundAdapter* adapter = nullptr;
};

class AdaptedModel {
 public:
  using Logits = std::vector<std::vector<float>>;  ///< one row per token

  AdaptedModel(models::ModelSpec spec, const weights::WeightSource& source, std::shared_ptr<kernels::Device> device)
      : spec_(std::move(spec)), device_(std::move(device)), stream_(device_->create_stream("test").value()) {
    auto model =
        models::create_model(spec_, source, device_, {.max_tokens = 256, .max_logit_rows = 256, .max_model_len = 128});
    EXPECT_TRUE(model) << model.error().message;
    model_ = std::move(*model);
  }

  models::Model& model() { return *model_; }
  const layers::AdapterModules& modules() const { return model_->adapter_modules(); }

  std::unique_ptr<const adapters::BoundAdapter> bind(const adapters::Adapter& adapter) {
    auto bound = adapters::BoundAdapter::create(adapter, modules(), *device_);
    EXPECT_TRUE(bound) << bound.error().message;
    return bound ? std::move(*bound) : nullptr;
  }

  /// Returns the logits of all tokens of each prompt.
  std::vector<Logits> run(const std::vector<AdaptedPrompt>& prompts) {
    constexpr std::int32_t kBlockSize = 16;
    constexpr std::int64_t kMaxBlocks = 4;  // of a sequence and a group
    const auto num_groups = static_cast<std::int64_t>(spec_.kv.size());
    std::vector<std::int32_t> ids;
    std::vector<std::int32_t> positions;
    std::vector<std::int32_t> query_start{0};
    std::vector<std::int32_t> context_len;
    std::vector<std::int32_t> tables;
    std::vector<std::int64_t> slots;
    layers::BatchAdapters adapters;
    for (const AdaptedPrompt& prompt : prompts) {
      const auto length = static_cast<std::int32_t>(prompt.tokens.size());
      if (prompt.adapter != nullptr) add(adapters, query_start.back(), length, prompt.adapter->weights());
      ids.insert(ids.end(), prompt.tokens.begin(), prompt.tokens.end());
      for (std::int32_t i = 0; i < length; ++i) positions.push_back(i);
      query_start.push_back(query_start.back() + length);
      context_len.push_back(length);
    }
    std::int64_t next_block = 0;
    for (std::int64_t group = 0; group < num_groups; ++group) {
      for (const AdaptedPrompt& prompt : prompts) {
        for (std::int64_t i = 0; i < std::ssize(prompt.tokens); ++i) slots.push_back(next_block * kBlockSize + i);
        for (std::int64_t i = 0; i < kMaxBlocks; ++i) tables.push_back(static_cast<std::int32_t>(next_block++));
      }
    }
    const std::int64_t block_bytes = spec_.kv_layout(kBlockSize, DType::f32).block_bytes();
    const auto kv =
        device_->allocate(static_cast<std::size_t>(next_block * block_bytes), kernels::MemoryKind::device).value();
    std::vector<std::int32_t> rows(ids.size());
    std::iota(rows.begin(), rows.end(), 0);
    std::vector<float> logits(ids.size() * static_cast<std::size_t>(spec_.vocab_size));
    const auto num_rows = static_cast<std::int32_t>(rows.size());
    const std::int32_t longest = *std::ranges::max_element(context_len);
    memory_.clear();
    auto* out = const_cast<float*>(upload(logits));
    const auto* row_ids = upload(rows);
    const layers::ForwardBatch batch{.num_tokens = num_rows,
                                     .num_sequences = static_cast<std::int32_t>(prompts.size()),
                                     .token_ids = upload(ids),
                                     .positions = upload(positions),
                                     .slot_mapping = upload(slots),
                                     .query_start = upload(query_start),
                                     .context_len = upload(context_len),
                                     .block_tables = upload(tables),
                                     .max_blocks = kMaxBlocks,
                                     .max_query_len = longest,
                                     .max_context_len = longest,
                                     .adapters = adapters.empty() ? nullptr : &adapters};
    const layers::KvCache cache{.base = kv.as<std::byte>(),
                                .num_blocks = next_block,
                                .block_bytes = block_bytes,
                                .block_size = kBlockSize,
                                .dtype = DType::f32};
    Status status;
    stream_->submit([&] {
      status = model_->run(*stream_, batch, cache);
      if (status) status = model_->logits(*stream_, row_ids, num_rows, out, batch.adapters);
    });
    stream_->synchronize();
    EXPECT_TRUE(status) << status.error().message;
    const auto host = layers::copy_to_host(*device_, out, logits.size() * sizeof(float)).value();
    std::memcpy(logits.data(), host.data(), host.bytes());
    std::vector<Logits> results;
    const float* at = logits.data();
    for (const AdaptedPrompt& prompt : prompts) {
      Logits& of_prompt = results.emplace_back();
      for (std::size_t i = 0; i < prompt.tokens.size(); ++i, at += spec_.vocab_size) {
        of_prompt.emplace_back(at, at + spec_.vocab_size);
      }
    }
    return results;
  }

 private:
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
