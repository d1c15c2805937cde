#include "kernels/cuda/sample_rows.hpp"

#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/random.hpp"

namespace pagoda::kernels::cuda {
namespace {

std::size_t list_bytes(const SampleRow& row) {
  return row.allowed_tokens.size_bytes() + row.banned_tokens.size_bytes() + row.bad_word_tokens.size_bytes() +
         row.bad_word_ends.size_bytes() + row.logprob_tokens.size_bytes() + row.bias_tokens.size_bytes() +
         row.bias_values.size_bytes();
}

/// Appends lists to the staging memory.
class ListWriter {
 public:
  ListWriter(std::byte* host, std::byte* device) : host_(host), device_(device) {}

  /// Copies the values; returns the address of the copy on the device.
  template <class T>
  const T* write(std::span<const T> values) {
    if (values.empty()) return nullptr;
    std::memcpy(host_ + used_, values.data(), values.size_bytes());
    const auto* at = reinterpret_cast<const T*>(device_ + used_);
    used_ += values.size_bytes();
    return at;
  }

 private:
  std::byte* host_;
  std::byte* device_;
  std::size_t used_ = 0;
};

DeviceSampleRow device_row(const SampleParams& params, std::size_t index, ListWriter& lists) {
  const SampleRow& row = params.rows[index];
  const std::int64_t top = static_cast<std::int64_t>(index) * params.max_top;
  DeviceSampleRow on_device;
  on_device.logits = params.logits + row.logits_row * params.vocab;
  on_device.output = params.outputs + index;
  on_device.top_tokens = params.top_tokens == nullptr ? nullptr : params.top_tokens + top;
  on_device.top_logprobs = params.top_logprobs == nullptr ? nullptr : params.top_logprobs + top;
  on_device.uniform = sampling_uniform(row.seed, row.sequence_index, row.position);
  on_device.temperature = row.temperature;
  // A subnormal temperature has an infinite inverse, which would turn the maximum's 0 into NaN.
  on_device.inverse_temperature = std::min(1.0F / row.temperature, std::numeric_limits<float>::max());
  on_device.top_p = row.top_p;
  on_device.min_p = row.min_p;
  on_device.top_k = row.top_k;
  on_device.num_logprobs = row.num_logprobs;
  on_device.forced_token = row.forced_token;
  on_device.processed_logprobs = row.processed_logprobs;
  if (has_penalty(row)) {
    on_device.presence_penalty = row.presence_penalty;
    on_device.frequency_penalty = row.frequency_penalty;
    on_device.repetition_penalty = row.repetition_penalty;
    on_device.output_tokens = row.output_tokens.data();
    on_device.num_output = static_cast<std::int32_t>(row.output_tokens.size());
    if (row.repetition_penalty != 1.0F) {
      on_device.prompt_tokens = row.prompt_tokens.data();
      on_device.num_prompt = static_cast<std::int32_t>(row.prompt_tokens.size());
    }
  }
  on_device.allowed_tokens = lists.write(row.allowed_tokens);
  on_device.banned_tokens = lists.write(row.banned_tokens);
  on_device.num_banned = static_cast<std::int32_t>(row.banned_tokens.size());
  on_device.bad_word_tokens = lists.write(row.bad_word_tokens);
  on_device.bad_word_ends = lists.write(row.bad_word_ends);
  on_device.num_bad_words = static_cast<std::int32_t>(row.bad_word_ends.size());
  if (on_device.num_bad_words > 0) {
    on_device.last_tokens = row.last_tokens.data();
    on_device.num_last = static_cast<std::int32_t>(row.last_tokens.size());
  }
  on_device.logprob_tokens = lists.write(row.logprob_tokens);
  on_device.bias_tokens = lists.write(row.bias_tokens);
  on_device.bias_values = lists.write(row.bias_values);
  on_device.num_bias = static_cast<std::int32_t>(row.bias_tokens.size());
  return on_device;
}

}  // namespace

std::size_t changed_row_bytes(std::int64_t vocab) {
  constexpr std::size_t kAlignment = 256;
  const std::size_t bytes = static_cast<std::size_t>(vocab) * (sizeof(float) + sizeof(std::uint32_t));
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

SampleUpload::SampleUpload(const SampleParams& params) : params_(params) {
  std::size_t lists = 0;
  for (std::size_t i = 0; i < params.rows.size(); ++i) {
    if (changes_logits(params.rows[i])) changed_.push_back(static_cast<std::int32_t>(i));
    lists += list_bytes(params.rows[i]);
  }
  static_assert(sizeof(DeviceSampleRow) % alignof(double) == 0);
  log_totals_offset_ = params.rows.size() * sizeof(DeviceSampleRow);
  changed_offset_ = log_totals_offset_ + params.rows.size() * sizeof(double);
  lists_offset_ = changed_offset_ + changed_.size() * sizeof(std::int32_t);
  bytes_ = lists_offset_ + lists;
}

std::vector<SampleUpload::Pass> SampleUpload::passes(std::size_t max_changed) const {
  std::vector<Pass> passes;
  std::size_t next = 0;  // index into the changed rows
  for (std::size_t row = 0; row < params_.rows.size();) {
    Pass pass{row, 0, next, std::min(max_changed, changed_.size() - next)};
    next += pass.num_changed;
    const std::size_t end = next < changed_.size() ? static_cast<std::size_t>(changed_[next]) : params_.rows.size();
    pass.num_rows = end - row;
    passes.push_back(pass);
    row = end;
  }
  return passes;
}

void SampleUpload::write(std::byte* host, std::byte* device, std::span<const Pass> passes, std::byte* changed) const {
  ListWriter lists(host + lists_offset_, device + lists_offset_);
  auto* rows = reinterpret_cast<DeviceSampleRow*>(host);
  auto* log_totals = reinterpret_cast<double*>(device + log_totals_offset_);
  for (std::size_t i = 0; i < params_.rows.size(); ++i) {
    rows[i] = device_row(params_, i, lists);
    rows[i].log_total = log_totals + i;
  }
  std::memset(host + log_totals_offset_, 0, changed_offset_ - log_totals_offset_);
  for (const Pass& pass : passes) {
    for (std::size_t i = 0; i < pass.num_changed; ++i) {
      DeviceSampleRow& row = rows[changed_[pass.first_changed + i]];
      row.changed = reinterpret_cast<float*>(changed + i * changed_row_bytes(params_.vocab));
      row.counts = reinterpret_cast<std::uint32_t*>(row.changed + params_.vocab);
    }
  }
  if (!changed_.empty()) std::memcpy(host + changed_offset_, changed_.data(), changed_.size() * sizeof(std::int32_t));
}

}  // namespace pagoda::kernels::cuda
