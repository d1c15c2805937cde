#include "tests/support/split_ops.hpp"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "kernels/sample.hpp"
#include "tests/support/split_stream.hpp"

namespace pagoda::test {

using namespace kernels;

/// Replaces the device addresses in one op's params by the addresses of the bytes; an address outside device memory is
/// an error.
class SplitOps::Translation {
 public:
  Translation(const SplitMemory& memory, const char* op) : memory_(memory), op_(op) {}

  template <class T>
  void device(T*& pointer) {
    if (pointer == nullptr) return;
    if (!memory_.owns(pointer)) {
      status_ = fail(ErrorCode::internal, std::string(op_) + ": a pointer is not of the device's memory");
      return;
    }
    pointer = static_cast<T*>(memory_.bytes_at(pointer));
  }

  template <class T>
  void either(T*& pointer) {
    if (memory_.owns(pointer)) device(pointer);
  }

  void device(std::span<const std::int32_t>& values) {
    const auto* data = values.data();
    device(data);
    if (status_) values = {data, values.size()};
  }

  void device(KvCacheView& cache) { device(cache.base); }

  const Status& status() const { return status_; }

  /// Queues `call` with a copy of the params.
  template <class Params>
  Status enqueue(Stream& stream, const Params& params, Status (Ops::*call)(Stream&, const Params&) const,
                 const Ops& cpu, bool may_record = true, std::shared_ptr<const void> kept = nullptr) const {
    if (!status_) return status_;
    return static_cast<SplitStream&>(stream).enqueue(
        [params, call, &cpu, kept = std::move(kept)](Stream& queue) { return (cpu.*call)(queue, params); }, may_record);
  }

 private:
  const SplitMemory& memory_;
  const char* op_;
  Status status_;
};

Status SplitOps::embedding(Stream& stream, const EmbeddingParams& params) const {
  EmbeddingParams p = params;
  Translation t(memory_, "embedding");
  t.device(p.token_ids);
  t.device(p.table.data);
  t.device(p.quantized.data);
  t.device(p.quantized.scales);
  t.device(p.quantized.mins);
  t.device(p.out);
  return t.enqueue(stream, p, &Ops::embedding, cpu_);
}

Status SplitOps::rms_norm(Stream& stream, const RmsNormParams& params) const {
  RmsNormParams p = params;
  Translation t(memory_, "rms_norm");
  t.device(p.x);
  t.device(p.residual);
  t.device(p.weight);
  t.device(p.out);
  return t.enqueue(stream, p, &Ops::rms_norm, cpu_);
}

Status SplitOps::layer_norm(Stream& stream, const LayerNormParams& params) const {
  LayerNormParams p = params;
  Translation t(memory_, "layer_norm");
  t.device(p.x);
  t.device(p.residual);
  t.device(p.weight);
  t.device(p.bias);
  t.device(p.out);
  return t.enqueue(stream, p, &Ops::layer_norm, cpu_);
}

Status SplitOps::linear(Stream& stream, const LinearParams& params) const {
  struct Kept {
    std::vector<WeightMatrix> weights;
    std::vector<const void*> biases;
  };
  LinearParams p = params;
  Translation t(memory_, "linear");
  const auto kept = std::make_shared<Kept>();
  kept->weights.assign(p.weights.begin(), p.weights.end());
  kept->biases.assign(p.biases.begin(), p.biases.end());
  for (auto& weight : kept->weights) {
    t.device(weight.data);
    t.device(weight.scales);
  }
  for (auto& bias : kept->biases) t.device(bias);
  p.weights = kept->weights;
  p.biases = kept->biases;
  t.device(p.x);
  t.device(p.out);
  return t.enqueue(stream, p, &Ops::linear, cpu_, true, kept);
}

Status SplitOps::quantized_linear(Stream& stream, const QuantizedLinearParams& params) const {
  struct Kept {
    std::vector<QuantizedMatrix> weights;
    std::vector<const void*> biases;
  };
  QuantizedLinearParams p = params;
  Translation t(memory_, "quantized_linear");
  const auto kept = std::make_shared<Kept>();
  kept->weights.assign(p.weights.begin(), p.weights.end());
  kept->biases.assign(p.biases.begin(), p.biases.end());
  for (auto& weight : kept->weights) {
    t.device(weight.data);
    t.device(weight.scales);
    t.device(weight.mins);
    t.device(weight.factors);
    t.device(weight.order);
  }
  for (auto& bias : kept->biases) t.device(bias);
  p.weights = kept->weights;
  p.biases = kept->biases;
  t.device(p.x);
  t.device(p.out);
  return t.enqueue(stream, p, &Ops::quantized_linear, cpu_, true, kept);
}

Status SplitOps::lora(Stream& stream, const LoraParams& params) const {
  LoraParams p = params;
  Translation t(memory_, "lora");
  const auto kept = std::make_shared<std::vector<LoraItem>>(p.items.begin(), p.items.end());
  for (LoraItem& item : *kept) {
    t.device(item.a);
    t.device(item.b);
    t.device(item.factors);
    t.device(item.base);
    t.device(item.bias);
  }
  p.items = *kept;
  t.device(p.x);
  t.device(p.token_ids);
  t.device(p.out);
  return t.enqueue(stream, p, &Ops::lora, cpu_, true, kept);
}

Status SplitOps::quantize_weights(Stream&, const QuantizeWeightsParams&) const {
  return fail(ErrorCode::unsupported, "quantize_weights: weights are quantised by the CPU and uploaded");
}

Status SplitOps::convert(Stream& stream, const ConvertParams& params) const {
  ConvertParams p = params;
  Translation t(memory_, "convert");
  t.device(p.from);
  t.device(p.to);
  return t.enqueue(stream, p, &Ops::convert, cpu_);
}

Status SplitOps::rotary(Stream& stream, const RotaryParams& params) const {
  RotaryParams p = params;
  Translation t(memory_, "rotary");
  t.device(p.positions);
  t.device(p.query);
  t.device(p.key);
  t.device(p.cos_sin);
  return t.enqueue(stream, p, &Ops::rotary, cpu_);
}

Status SplitOps::store_kv(Stream& stream, const StoreKvParams& params) const {
  StoreKvParams p = params;
  Translation t(memory_, "store_kv");
  t.device(p.key);
  t.device(p.value);
  t.device(p.slot_mapping);
  t.device(p.cache);
  return t.enqueue(stream, p, &Ops::store_kv, cpu_);
}

Status SplitOps::paged_attention(Stream& stream, const PagedAttentionParams& params) const {
  PagedAttentionParams p = params;
  Translation t(memory_, "paged_attention");
  t.device(p.query);
  t.device(p.query_start);
  t.device(p.context_len);
  t.device(p.block_tables);
  t.device(p.cache);
  t.device(p.alibi_slopes);
  t.device(p.out);
  if (!t.status()) return t.status();
  // The caller's bounds must hold, because a GPU relies on them.
  return static_cast<SplitStream&>(stream).enqueue(
      [p, &cpu = cpu_](Stream& queue) -> Status {
        if (p.num_tokens > 0 && p.query_start[p.num_sequences] > p.num_tokens) {
          return fail(ErrorCode::internal, "paged_attention: there are more query rows than num_tokens says");
        }
        for (std::int64_t s = 0; s < p.num_sequences; ++s) {
          const std::int32_t rows = p.query_start[s + 1] - p.query_start[s];
          if (rows > p.max_query_len || (rows > 0 && p.context_len[s] > p.max_context_len)) {
            return fail(ErrorCode::internal, "paged_attention: sequence " + std::to_string(s) +
                                                 " is longer than max_query_len or max_context_len says");
          }
        }
        return cpu.paged_attention(queue, p);
      },
      true);
}

Status SplitOps::activation(Stream& stream, const ActivationParams& params) const {
  ActivationParams p = params;
  Translation t(memory_, "activation");
  t.device(p.x);
  t.device(p.out);
  return t.enqueue(stream, p, &Ops::activation, cpu_);
}

Status SplitOps::scale(Stream& stream, const ScaleParams& params) const {
  ScaleParams p = params;
  Translation t(memory_, "scale");
  t.device(p.x);
  return t.enqueue(stream, p, &Ops::scale, cpu_);
}

Status SplitOps::gather_rows(Stream& stream, const GatherRowsParams& params) const {
  GatherRowsParams p = params;
  Translation t(memory_, "gather_rows");
  t.device(p.x);
  t.device(p.rows);
  t.device(p.out);
  return t.enqueue(stream, p, &Ops::gather_rows, cpu_);
}

Status SplitOps::gather_tokens(Stream& stream, const GatherTokensParams& params) const {
  GatherTokensParams p = params;
  Translation t(memory_, "gather_tokens");
  t.device(p.table);
  t.device(p.slots);
  t.device(p.out);
  return t.enqueue(stream, p, &Ops::gather_tokens, cpu_);
}

Status SplitOps::scatter_tokens(Stream& stream, const ScatterTokensParams& params) const {
  ScatterTokensParams p = params;
  Translation t(memory_, "scatter_tokens");
  t.device(p.tokens);
  t.device(p.slots);
  t.device(p.table);
  return t.enqueue(stream, p, &Ops::scatter_tokens, cpu_);
}

Status SplitOps::copy(Stream& stream, const CopyParams& params) const {
  CopyParams p = params;
  Translation t(memory_, "copy");
  t.either(p.from);
  t.either(p.to);
  return t.enqueue(stream, p, &Ops::copy, cpu_, false);
}

Status SplitOps::move_blocks(Stream& stream, const MoveBlocksParams& params) const {
  struct Kept {
    std::vector<std::int32_t> from, to;
  };
  MoveBlocksParams p = params;
  Translation t(memory_, "move_blocks");
  const auto kept = std::make_shared<Kept>();
  kept->from.assign(p.from.begin(), p.from.end());
  kept->to.assign(p.to.begin(), p.to.end());
  p.from = kept->from;
  p.to = kept->to;
  t.either(p.from_base);
  t.either(p.to_base);
  return t.enqueue(stream, p, &Ops::move_blocks, cpu_, false, kept);
}

Status SplitOps::sample(Stream& stream, const SampleParams& params) const {
  struct HostLists {
    std::vector<std::int32_t> banned, bias_tokens, bad_word_tokens, bad_word_ends, logprob_tokens;
    std::vector<float> bias_values;
    std::vector<std::uint32_t> allowed;
  };
  struct Kept {
    std::vector<SampleRow> rows;
    std::vector<HostLists> lists;
  };
  SampleParams p = params;
  Translation t(memory_, "sample");
  const auto kept = std::make_shared<Kept>();
  kept->rows.assign(p.rows.begin(), p.rows.end());
  kept->lists.resize(kept->rows.size());
  for (std::size_t i = 0; i < kept->rows.size(); ++i) {
    SampleRow& row = kept->rows[i];
    HostLists& lists = kept->lists[i];
    t.device(row.prompt_tokens);
    t.device(row.output_tokens);
    t.device(row.last_tokens);
    lists.banned.assign(row.banned_tokens.begin(), row.banned_tokens.end());
    lists.bias_tokens.assign(row.bias_tokens.begin(), row.bias_tokens.end());
    lists.bias_values.assign(row.bias_values.begin(), row.bias_values.end());
    lists.allowed.assign(row.allowed_tokens.begin(), row.allowed_tokens.end());
    lists.bad_word_tokens.assign(row.bad_word_tokens.begin(), row.bad_word_tokens.end());
    lists.bad_word_ends.assign(row.bad_word_ends.begin(), row.bad_word_ends.end());
    lists.logprob_tokens.assign(row.logprob_tokens.begin(), row.logprob_tokens.end());
    row.banned_tokens = lists.banned;
    row.bad_word_tokens = lists.bad_word_tokens;
    row.bad_word_ends = lists.bad_word_ends;
    row.logprob_tokens = lists.logprob_tokens;
    row.allowed_tokens = lists.allowed;
    row.bias_tokens = lists.bias_tokens;
    row.bias_values = lists.bias_values;
  }
  p.rows = kept->rows;
  t.device(p.logits);
  t.device(p.outputs);
  t.device(p.top_tokens);
  t.device(p.top_logprobs);
  return t.enqueue(stream, p, &Ops::sample, cpu_, false, kept);
}

}  // namespace pagoda::test
