#include "kernels/cuda/launch.hpp"
#include "kernels/cuda/quads.cuh"
#include "kernels/cuda/quantized_words.cuh"
#include "kernels/cuda/row_ops.hpp"

namespace pagoda::kernels::cuda {
namespace {

constexpr int kThreads = 128;

template <class T>
struct PlainTable {
  const T* data = nullptr;  ///< [vocab, hidden]
  std::int64_t vocab = 0;
  std::int64_t hidden = 0;

  /// Returns elements 4 * quad .. 4 * quad + 3 of a row.
  template <bool packed>
  __device__ float4 load(std::int64_t row, std::int64_t quad) const {
    return load_quad<packed>(data + row * hidden, quad, hidden);
  }
};

template <Coding coding, bool kTwoLevel>
struct QuantizedTable {
  const std::uint32_t* data = nullptr;
  GridMemory grids;
  std::int64_t vocab = 0;
  std::int64_t hidden = 0;
  std::int64_t panel_words = 0;
  std::int64_t panel_scales = 0;
  std::int64_t panel_factors = 0;
  int zero_point = 0;
  CodebookWords codebook = {};

  /// Returns elements 4 * quad .. 4 * quad + 3 of a row. Each element is a byte of a word, or a part of a byte. Padding
  /// columns after the last column fill up the group.
  template <bool packed>
  __device__ float4 load(std::int64_t row, std::int64_t quad) const {
    constexpr int kQuads = kBlockColumns<coding> / kQuad;
    const std::int64_t panel = row / kPanelRows;
    const int place = static_cast<int>(row % kPanelRows);
    const std::int64_t first = panel * panel_words + quad / kQuads * (kBlockWords<coding> * kPanelRows) + place;
    const auto in_block = static_cast<int>(static_cast<unsigned>(quad) % kQuads);
    const std::uint32_t low = data[first + in_block / 2 * kPanelRows];
    const std::uint32_t high = kHighBits<coding> == 0 ? 0U : data[first + (kBlockWords<coding> - 1) * kPanelRows];
    const std::uint32_t bytes = one_quad<coding>(low, high, in_block, codebook);
    const float2 grid =
        grids.grid<kTwoLevel>(panel * panel_scales, panel * panel_factors, static_cast<int>(quad) * kQuad, place);
    const auto weight = [&](int i) { return fmaf(byte_of<coding>(bytes, i, zero_point), grid.x, grid.y); };
    return make_float4(weight(0), weight(1), weight(2), weight(3));
  }
};

/// Block (i, piece) writes a piece of the hidden size of token i.
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

/// Launches the kernel. `packed`: whether quads may be moved as packs.
template <class Table>
Status embed(cudaStream_t stream, const EmbeddingParams& p, const Table& table, bool packed) {
  return with_packed(packed, [&](auto constant) {
    return launch(Start::early, "embedding", embedding_kernel<constant.value, Table>,
                  row_grid(p.num_tokens, table.hidden, kThreads), dim3(kThreads), 0, stream, p.token_ids, table,
                  p.accumulate, p.out);
  });
}

template <Coding coding, bool kTwoLevel>
Status embed_quantized(cudaStream_t stream, const EmbeddingParams& p) {
  const QuantizedMatrix& w = p.quantized;
  QuantizedTable<coding, kTwoLevel> table;
  table.data = reinterpret_cast<const std::uint32_t*>(w.data);
  table.grids = grids_of(w, 0);
  table.vocab = w.rows;
  table.hidden = w.columns;
  table.panel_words = w.panel_bytes() / static_cast<std::int64_t>(sizeof(std::uint32_t));
  table.panel_scales = w.panel_scales();
  table.panel_factors = w.panel_factors();
  table.zero_point = w.format.zero_point();
  table.codebook = words_of(w.format.codebook);
  return embed(stream, p, table, may_pack(w.columns, p.out));
}

}  // namespace

Status cuda_embedding(cudaStream_t stream, const EmbeddingParams& p) {
  if (p.quantized.data != nullptr) {
    return with_coding(p.quantized.format, [&](auto coding) {
      if constexpr (kMayBeTwoLevel<coding.value>) {
        if (p.quantized.format.two_level_scales) return embed_quantized<coding.value, true>(stream, p);
      }
      return embed_quantized<coding.value, false>(stream, p);
    });
  }
  return with_element(p.table.dtype, [&](auto element) {
    using T = decltype(element);
    const PlainTable<T> table{static_cast<const T*>(p.table.data), p.table.rows, p.table.columns};
    return embed(stream, p, table, may_pack(p.table.columns, p.table.data, p.out));
  });
}

}  // namespace pagoda::kernels::cuda
