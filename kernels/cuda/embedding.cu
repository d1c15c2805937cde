#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/quads.cuh"
#include "kernels/cuda/row_ops.hpp"

namespace pagoda::kernels::cuda {
namespace {

constexpr int kThreads = 128;

template <class T>
struct PlainTable {
  const T* data = nullptr;  ///< [vocab, hidden]
  std::int64_t vocab = 0;
  std::int64_t hidden = 0;

  /// Elements 4 * quad .. of a row.
  template <bool packed>
  __device__ float4 load(std::int64_t row, std::int64_t quad) const {
    return load_quad<packed>(data + row * hidden, quad, hidden);
  }
};

template <int kBits>
struct QuantizedTable {
  const std::uint32_t* data = nullptr;
  const __half* scales = nullptr;
  const __half* mins = nullptr;  ///< null = symmetric
  std::int64_t vocab = 0;
  std::int64_t hidden = 0;
  std::int64_t panel_words = 0;
  std::int64_t panel_scales = 0;
  int group_size = 0;
  int zero_point = 0;

  /// A quad is the four bytes of a row that lie together, or the low or high halves of these. Behind the last column
  /// there are some to fill up the group.
  template <bool packed>
  __device__ float4 load(std::int64_t row, std::int64_t quad) const {
    constexpr int kRows = static_cast<int>(kQuantizedPanel);
    constexpr int kWordQuads = 8 / kBits;
    const std::int64_t panel = row / kRows;
    const int place = static_cast<int>(row % kRows);
    const std::uint32_t word = data[panel * panel_words + quad / kWordQuads * kRows + place];
    const std::uint32_t bytes = kBits == 8 ? word : word >> (quad % 2 * 4) & 0x0F0F0F0FU;
    const int group = static_cast<int>(quad) * kQuad / group_size;
    const std::int64_t at = panel * panel_scales + group * kRows + place;
    const float scale = to_float(scales[at]);
    const float min = mins == nullptr ? 0.0F : to_float(mins[at]);
    const auto weight = [&](int byte) {
      return fmaf(static_cast<float>(static_cast<int>(bytes >> 8 * byte & 0xFFU) - zero_point), scale, min);
    };
    return make_float4(weight(0), weight(1), weight(2), weight(3));
  }
};

/// One block row per token and piece of the hidden size.
template <bool packed, class Table>
__global__ void embedding_kernel(const std::int32_t* token_ids, const __grid_constant__ Table table, bool accumulate,
                                 float* out) {
  wait_for_stream();
  const std::int64_t token = token_ids[blockIdx.x];
  const bool known = token >= 0 && token < table.vocab;
  const std::int64_t hidden = table.hidden;
  float* to = out + static_cast<std::int64_t>(blockIdx.x) * hidden;
  const std::int64_t quads = ceil_divide<std::int64_t>(hidden, kQuad);
  for (std::int64_t q = blockIdx.y * kThreads + threadIdx.x; q < quads; q += gridDim.y * kThreads) {
    float4 value = table.template load<packed>(known ? token : 0, q);
    if (!known) value = map_quad(value, [](float) { return __int_as_float(0x7FFFFFFF); });
    if (accumulate) value = load_quad<packed>(to, q, hidden) + value;
    store_quad<packed>(to, q, hidden, value);
  }
}

/// `packed`: whether quads may move as packs.
template <class Table>
Status embed(cudaStream_t stream, const EmbeddingParams& p, const Table& table, bool packed) {
  return with_packed(packed, [&](auto constant) {
    return launch(Start::early, "embedding", embedding_kernel<constant.value, Table>,
                  row_grid(p.num_tokens, table.hidden, kThreads), dim3(kThreads), 0, stream, p.token_ids, table,
                  p.accumulate, p.out);
  });
}

template <int kBits>
Status embed_quantized(cudaStream_t stream, const EmbeddingParams& p) {
  const QuantizedMatrix& w = p.quantized;
  QuantizedTable<kBits> table;
  table.data = reinterpret_cast<const std::uint32_t*>(w.data);
  table.scales = reinterpret_cast<const __half*>(w.scales);
  table.mins = reinterpret_cast<const __half*>(w.mins);
  table.vocab = w.rows;
  table.hidden = w.columns;
  table.panel_words = w.panel_bytes() / static_cast<std::int64_t>(sizeof(std::uint32_t));
  table.panel_scales = w.panel_scales();
  table.group_size = static_cast<int>(w.format.group_size);
  table.zero_point = w.format.zero_point();
  return embed(stream, p, table, may_pack(w.columns, p.out));
}

}  // namespace

Status cuda_embedding(cudaStream_t stream, const EmbeddingParams& p) {
  if (p.quantized.data != nullptr) {
    if (p.quantized.format != widened(p.quantized.format)) {
      return fail(ErrorCode::unsupported, "embedding: on a GPU tables have 4 or 8 bits and no codebook");
    }
    return p.quantized.format.bits == 8 ? embed_quantized<8>(stream, p) : embed_quantized<4>(stream, p);
  }
  return with_element(p.table.dtype, [&](auto element) {
    using T = decltype(element);
    const PlainTable<T> table{static_cast<const T*>(p.table.data), p.table.rows, p.table.columns};
    return embed(stream, p, table, may_pack(p.table.columns, p.table.data, p.out));
  });
}

}  // namespace pagoda::kernels::cuda
