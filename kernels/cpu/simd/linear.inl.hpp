// The matrix products of linear (see kernel_table.hpp for the order of its sums). Included once per instruction set;
// PAGODA_SIMD names the namespace.

#include <cstdint>
#include <cstring>

#include "kernels/cpu/kernel_table.hpp"
#include "kernels/cpu/simd/dots.inl.hpp"
#include "kernels/cpu/simd/prefetch.hpp"

namespace pagoda::kernels::PAGODA_SIMD {

namespace {

constexpr int kQuad = 4;
constexpr int kRowsPerVector = kLanes / kQuad;
constexpr int kLinearPanel = kLinearVectors * kRowsPerVector;
constexpr int kStreamPanel = kStreamVectors * kRowsPerVector;
constexpr int kStepFloats = kLinearVectors * kLanes;
constexpr int kBf16Quad = kDotsBf16 ? 8 : kQuad;

/// Returns the number of floats that k packed elements of a row take.
constexpr std::int64_t floats_of(DType dtype, std::int64_t k) {
  return is_dotted(dtype) ? k / 2 : k;
}

/// Returns the number of elements of a row that load_quads takes at once.
constexpr int chunk_of(DType dtype) {
  return dtype == DType::bf16 ? 2 * kLanes : kLanes;
}

constexpr std::int64_t padded(std::int64_t k) {
  return (k + kLinearPadding - 1) / kLinearPadding * kLinearPadding;
}

using FourFloats = float __attribute__((vector_size(16)));

/// Packs eight floats as two quads: dst[0..4) and dst[step_floats .. + 4).
template <bool paired>
inline void pack_eight(const float* x, float* dst, std::int64_t step_floats) {
  FourFloats low;
  FourFloats high;
  std::memcpy(&low, x, sizeof(low));
  std::memcpy(&high, x + kQuad, sizeof(high));
  if constexpr (paired) {
    const FourFloats even = __builtin_shufflevector(low, high, 0, 2, 4, 6);
    high = __builtin_shufflevector(low, high, 1, 3, 5, 7);
    low = even;
  }
  std::memcpy(dst, &low, sizeof(low));
  std::memcpy(dst + step_floats, &high, sizeof(high));
}

template <bool paired>
void pack_rows_of(const PackRowsArgs& args) {
  constexpr std::int64_t kEight = 8;
  const std::int64_t step_floats = args.rows * kQuad;
  for (std::int64_t m = 0; m < args.rows; ++m) {
    const float* x = args.x + m * args.x_pitch;
    float* dst = args.dst + m * kQuad;
    std::int64_t k = 0;
    for (; k + kEight <= args.k; k += kEight, dst += 2 * step_floats) pack_eight<paired>(x + k, dst, step_floats);
    for (; k < padded(args.k); k += kEight, dst += 2 * step_floats) {
      float rest[kEight] = {};
      for (std::int64_t i = k; i < args.k; ++i) rest[i - k] = x[i];
      pack_eight<paired>(rest, dst, step_floats);
    }
  }
}

/// Does the work of pack_rows_of; if `dotted`, with quads of eight bfloat16.
template <bool dotted>
void pack_pairs_of_rows(const PackRowsArgs& args) {
  if constexpr (dotted) {
    for (std::int64_t m = 0; m < args.rows; ++m) {
      const float* x = args.x + m * args.x_pitch;
      float* dst = args.dst + m * kQuad;
      std::int64_t k = 0;
      for (; k + kBf16Quad <= args.k; k += kBf16Quad, dst += args.rows * kQuad) store_eight_bf16(dst, x + k);
      for (; k < padded(args.k); k += kBf16Quad, dst += args.rows * kQuad) {
        float rest[kBf16Quad] = {};
        for (std::int64_t i = k; i < args.k; ++i) rest[i - k] = x[i];
        store_eight_bf16(dst, rest);
      }
    }
  } else {
    pack_rows_of<true>(args);
  }
}

void pack_rows(const PackRowsArgs& args) {
  if (!args.paired) return pack_rows_of<false>(args);
  pack_pairs_of_rows<kDotsBf16>(args);
}

/// Loads one chunk of kRowsPerVector rows: quads[i] holds the i-th 16 bytes (f16, fp8 and int8: the i-th four elements,
/// widened) of each row.
template <DType dtype>
inline void load_quads(const char* const* rows, std::int64_t at_bytes, Vec (&quads)[kRowsPerVector]) {
  if constexpr (dtype == DType::fp8_e4m3) return load_quads_fp8(rows, at_bytes, quads);
  if constexpr (dtype == DType::int8) return load_quads_int8(rows, at_bytes, quads);
#pragma GCC unroll 4
  for (int r = 0; r < kRowsPerVector; ++r) {
    const char* p = rows[r] + at_bytes;
    if constexpr (dtype == DType::f16) {
      quads[r] = load_f16(p);
    } else {
      quads[r] = load(reinterpret_cast<const float*>(p));
    }
  }
  transpose_quads(quads);
}

constexpr int steps_per_quad(DType dtype) {
  return dtype == DType::bf16 && !kDotsBf16 ? 2 : 1;
}

/// Returns the weights of a step from a quad of load_quads.
template <DType dtype>
inline Vec weights_of(Vec quads, int step) {
  if constexpr (steps_per_quad(dtype) == 1) return quads;
  return step == 0 ? even_bf16(quads) : odd_bf16(quads);
}

/// Pointers to the first column of `panel` rows; missing rows repeat the last row.
template <int panel>
struct PanelRows {
  PanelRows(const WeightPiece& piece, std::int64_t size) {
    for (std::int64_t r = 0; r < panel; ++r) {
      const std::int64_t row = r < piece.rows ? r : piece.rows - 1;
      const void* begin = piece.row_pointers != nullptr ? piece.row_pointers[r]
                                                        : static_cast<const char*>(piece.w) + row * piece.row_bytes;
      at[r] = static_cast<const char*>(begin) + piece.first * size;
    }
  }
  const char* at[panel];
};

/// The last, shorter part of the rows of a panel, padded with zeros, so that nothing is read past the end of a row.
template <int panel>
struct PanelTail {
  PanelTail(const char* const* from, std::int64_t at_bytes, std::int64_t bytes) {
    for (int r = 0; r < panel; ++r) {
      std::memcpy(copies[r], from[r] + at_bytes, static_cast<std::size_t>(bytes));
      rows[r] = copies[r];
    }
  }
  alignas(64) char copies[panel][kLinearPadding * sizeof(float)] = {};
  const char* rows[panel];
};

/// Packs `chunks` chunks of all rows of a panel into dst[steps, kStepFloats]; returns the end of the packed weights.
template <DType dtype>
inline float* pack_chunks(const char* const* rows, std::int64_t chunks, float* dst) {
  constexpr std::int64_t kChunkBytes = chunk_of(dtype) * static_cast<std::int64_t>(size_of(dtype));
  constexpr int kSteps = steps_per_quad(dtype);
  for (std::int64_t chunk = 0; chunk < chunks; ++chunk) {
#pragma GCC unroll 4
    for (int v = 0; v < kLinearVectors; ++v) {
      Vec quads[kRowsPerVector];
      load_quads<dtype>(rows + v * kRowsPerVector, chunk * kChunkBytes, quads);
#pragma GCC unroll 8
      for (int i = 0; i < kSteps * kRowsPerVector; ++i) {
        store(dst + i * kStepFloats + v * kLanes, weights_of<dtype>(quads[i / kSteps], i % kSteps));
      }
    }
    dst += kSteps * kRowsPerVector * kStepFloats;
  }
  return dst;
}

template <DType dtype>
void pack_weights_of(const WeightPiece& piece, float* dst) {
  constexpr auto kSize = static_cast<std::int64_t>(size_of(dtype));
  const PanelRows<kLinearPanel> rows(piece, kSize);
  const std::int64_t whole = piece.count / kLinearPadding * kLinearPadding;
  dst = pack_chunks<dtype>(rows.at, whole / chunk_of(dtype), dst);
  if (whole == piece.count) return;
  const PanelTail<kLinearPanel> tail(rows.at, whole * kSize, (piece.count - whole) * kSize);
  pack_chunks<dtype>(tail.rows, kLinearPadding / chunk_of(dtype), dst);
}

void pack_weights(const WeightPiece& piece, float* dst) {
  switch (piece.dtype) {
    case DType::f32:
      return pack_weights_of<DType::f32>(piece, dst);
    case DType::f16:
      return pack_weights_of<DType::f16>(piece, dst);
    case DType::bf16:
      return pack_weights_of<DType::bf16>(piece, dst);
    case DType::fp8_e4m3:
      return pack_weights_of<DType::fp8_e4m3>(piece, dst);
    case DType::int8:
      return pack_weights_of<DType::int8>(piece, dst);
  }
}

template <int panel>
[[gnu::always_inline]] inline void write_row(const float* sums, const LinearOut& to, std::int64_t row) {
  float* out = to.out + row * to.stride;
  float results[panel];
  std::memcpy(results, sums, sizeof(results));
  if (to.bias != nullptr) {
    for (std::int64_t n = 0; n < to.columns; ++n) results[n] += to.bias[n];
  }
  if (to.accumulate) {
    for (std::int64_t n = 0; n < to.columns; ++n) results[n] += out[n];
  }
  if (to.columns == panel) {
    std::memcpy(out, results, sizeof(results));
  } else {
    std::memcpy(out, results, static_cast<std::size_t>(to.columns) * sizeof(float));
  }
}

/// Adds the sums of a block's chains, times `scales` if not null, to the sums of the previous blocks.
template <int panel, int vectors>
inline void add_block_sums(const Vec (&chains)[vectors], bool starts_at_zero, const float* scales, float* sums) {
  if (scales == nullptr) return add_quad_sums(chains, starts_at_zero, sums);
  float block[panel];
  add_quad_sums(chains, true, block);
  for (int r = 0; r < panel; ++r) {
    sums[r] = starts_at_zero ? scales[r] * block[r] : __builtin_fmaf(scales[r], block[r], sums[r]);
  }
}

/// Prefetches the lines of a block of rows into the second-level cache, one column of lines after another.
struct Prefetcher {
  explicit Prefetcher(const PrefetchBlock& block)
      : at(static_cast<const char*>(block.first)),
        column_end(static_cast<const char*>(block.column_end)),
        row_bytes(block.row_bytes),
        column_bytes(block.column_bytes) {}

  void advance(std::int64_t lines) {
    for (; lines > 0; --lines) {
      __builtin_prefetch(at, 0, 2);
      at += row_bytes;
      if (at >= column_end) {
        at -= column_bytes - kLine;
        column_end += kLine;
      }
    }
  }

  static constexpr std::int64_t kLine = 64;
  const char* at;
  const char* column_end;
  std::int64_t row_bytes;
  std::int64_t column_bytes;
};

template <bool dotted, int rows>
void linear_tile_of(const LinearTileArgs& args) {
  Vec chains[rows][kLinearVectors];
#pragma GCC unroll 8
  for (int m = 0; m < rows; ++m) {
#pragma GCC unroll 4
    for (int v = 0; v < kLinearVectors; ++v) chains[m][v] = zero();
  }
  const float* x = args.x;
  const float* w = args.w;
  Prefetcher prefetcher(args.prefetch);
  for (std::int64_t step = 0; step < args.steps;) {
    prefetcher.advance(args.prefetch.lines_per_stride);
    const std::int64_t end = step + kPrefetchStride < args.steps ? step + kPrefetchStride : args.steps;
    for (; step < end; ++step) {
      Vec weights[kLinearVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kLinearVectors; ++v) weights[v] = load(w + v * kLanes);
#pragma GCC unroll 8
      for (int m = 0; m < rows; ++m) {
        const Vec quad = broadcast_quad(x + m * kQuad);
#pragma GCC unroll 4
        for (int v = 0; v < kLinearVectors; ++v) chains[m][v] = multiply_add<dotted>(quad, weights[v], chains[m][v]);
      }
      x += rows * kQuad;
      w += kStepFloats;
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < rows; ++m) {
    float* sums = args.sums.sums + m * kLinearPanel;
    add_block_sums<kLinearPanel>(chains[m], args.sums.starts_at_zero, args.sums.scales, sums);
    if (args.sums.last) write_row<kLinearPanel>(sums, args.sums.out, m);
  }
}

template <bool dotted, int rows>
void linear_tile_up_to(const LinearTileArgs& args) {
  if (args.rows == rows) return linear_tile_of<dotted, rows>(args);
  if constexpr (rows > 1) linear_tile_up_to<dotted, rows - 1>(args);
}

void linear_tile(const LinearTileArgs& args) {
  if (is_dotted(args.dtype)) return linear_tile_up_to<kDotsBf16, kLinearRows>(args);
  linear_tile_up_to<false, kLinearRows>(args);
}

/// chains += one chunk of the rows of a panel times the same chunk of x, two vectors of weights at a time. Stores the
/// widened weights in `packed` if it is not null; the compiler knows whether it is null where it inlines the function.
template <DType dtype, int rows, int vectors>
inline void stream_chunk(const char* const* w, std::int64_t at_bytes, const float* x, Vec (&chains)[rows][vectors],
                         float* packed) {
  constexpr int kSteps = steps_per_quad(dtype);
#pragma GCC unroll 2
  for (int v = 0; v < vectors; v += 2) {
    // Without this, the compiler keeps (and spills) the quads of x for the second pair.
    if (v > 0) asm volatile("" ::: "memory");
    Vec low[kRowsPerVector];
    Vec high[kRowsPerVector];
    load_quads<dtype>(w + v * kRowsPerVector, at_bytes, low);
    load_quads<dtype>(w + (v + 1) * kRowsPerVector, at_bytes, high);
#pragma GCC unroll 8
    for (int i = 0; i < kSteps * kRowsPerVector; ++i) {
      const Vec low_weights = weights_of<dtype>(low[i / kSteps], i % kSteps);
      const Vec high_weights = weights_of<dtype>(high[i / kSteps], i % kSteps);
      if (packed != nullptr) {
        store(packed + i * kStepFloats + v * kLanes, low_weights);
        store(packed + i * kStepFloats + (v + 1) * kLanes, high_weights);
      }
#pragma GCC unroll 8
      for (int m = 0; m < rows; ++m) {
        const Vec quad = broadcast_quad(x + (i * rows + m) * kQuad);
        chains[m][v] = multiply_add<is_dotted(dtype)>(quad, low_weights, chains[m][v]);
        chains[m][v + 1] = multiply_add<is_dotted(dtype)>(quad, high_weights, chains[m][v + 1]);
      }
    }
  }
}

template <DType dtype, int rows>
void linear_stream_of(const LinearStreamArgs& args) {
  constexpr int kVectors = rows <= kWideStreamRows ? kLinearVectors : kStreamVectors;
  constexpr int kRows = kVectors * kRowsPerVector;
  constexpr auto kSize = static_cast<std::int64_t>(size_of(dtype));
  constexpr std::int64_t kChunk = chunk_of(dtype);
  constexpr std::int64_t kLine = 64;
  const WeightPiece& piece = args.piece;
  const PanelRows<kRows> w(piece, kSize);
  RowPrefetcher prefetcher(args.next, piece.count);
  const std::int64_t bytes_to_row_end = piece.row_bytes - piece.first * kSize;
  const float* scales = args.sums.scales;
  for (std::int64_t block = 0; block < piece.count; block += args.block) {
    Vec chains[rows][kVectors];
#pragma GCC unroll 8
    for (int m = 0; m < rows; ++m) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) chains[m][v] = zero();
    }
    const std::int64_t end = block + args.block < piece.count ? block + args.block : piece.count;
    const std::int64_t whole_end = block + (end - block) / kLinearPadding * kLinearPadding;
    for (std::int64_t k = block; k < whole_end; k += kChunk) {
      if (args.next.count > 0) {
        prefetcher.advance(kChunk);
      } else if (k * kSize % kLine == 0 && args.ahead_bytes != 0) {
        std::int64_t ahead = k * kSize + args.ahead_bytes;
        if (ahead >= bytes_to_row_end) ahead += (kRows - 1) * piece.row_bytes;
        for (int r = 0; r < kRows; ++r) __builtin_prefetch(w.at[r] + ahead, 0, 2);
      }
      stream_chunk<dtype, rows, kVectors>(w.at, k * kSize, args.x + floats_of(dtype, k) * rows, chains, nullptr);
    }
    if (whole_end < end) {
      const PanelTail<kRows> tail(w.at, whole_end * kSize, (end - whole_end) * kSize);
      for (std::int64_t k = 0; k < kLinearPadding; k += kChunk) {
        const float* x = args.x + floats_of(dtype, whole_end + k) * rows;
        stream_chunk<dtype, rows, kVectors>(tail.rows, k * kSize, x, chains, nullptr);
      }
    }
#pragma GCC unroll 8
    for (int m = 0; m < rows; ++m) {
      add_block_sums<kRows>(chains[m], args.sums.starts_at_zero && block == 0, scales, args.sums.sums + m * kRows);
    }
    if (scales != nullptr) scales += kLinearPanel;
  }
  if (!args.sums.last) return;
  for (int m = 0; m < rows; ++m) write_row<kRows>(args.sums.sums + m * kRows, args.sums.out, m);
}

/// Does the work of linear_tile_of with weights that are not packed, and packs them at the same time.
template <DType dtype, int rows>
void linear_packing_tile_of(const LinearStreamArgs& args) {
  constexpr auto kSize = static_cast<std::int64_t>(size_of(dtype));
  constexpr std::int64_t kChunk = chunk_of(dtype);
  const WeightPiece& piece = args.piece;
  const PanelRows<kLinearPanel> w(piece, kSize);
  Vec chains[rows][kLinearVectors];
#pragma GCC unroll 8
  for (int m = 0; m < rows; ++m) {
#pragma GCC unroll 4
    for (int v = 0; v < kLinearVectors; ++v) chains[m][v] = zero();
  }
  Prefetcher prefetcher(args.prefetch);
  const std::int64_t whole_end = piece.count / kLinearPadding * kLinearPadding;
  for (std::int64_t k = 0; k < whole_end; k += kChunk) {
    const std::int64_t floats = floats_of(dtype, k);
    if (floats % (kQuad * kPrefetchStride) == 0) prefetcher.advance(args.prefetch.lines_per_stride);
    stream_chunk<dtype>(w.at, k * kSize, args.x + floats * rows, chains, args.packed + floats * kLinearPanel);
  }
  if (whole_end < piece.count) {
    const PanelTail<kLinearPanel> tail(w.at, whole_end * kSize, (piece.count - whole_end) * kSize);
    for (std::int64_t k = 0; k < kLinearPadding; k += kChunk) {
      const std::int64_t floats = floats_of(dtype, whole_end + k);
      stream_chunk<dtype>(tail.rows, k * kSize, args.x + floats * rows, chains, args.packed + floats * kLinearPanel);
    }
  }
#pragma GCC unroll 8
  for (int m = 0; m < rows; ++m) {
    float* sums = args.sums.sums + m * kLinearPanel;
    add_block_sums<kLinearPanel>(chains[m], args.sums.starts_at_zero, args.sums.scales, sums);
    if (args.sums.last) write_row<kLinearPanel>(sums, args.sums.out, m);
  }
}

template <DType dtype, int rows>
void linear_stream_up_to(const LinearStreamArgs& args) {
  if (args.rows == rows) {
    if constexpr (rows <= kPackingRows) {
      if (args.packed != nullptr) return linear_packing_tile_of<dtype, rows>(args);
    }
    return linear_stream_of<dtype, rows>(args);
  }
  if constexpr (rows > 1) linear_stream_up_to<dtype, rows - 1>(args);
}

void linear_stream(const LinearStreamArgs& args) {
  switch (args.piece.dtype) {
    case DType::f32:
      return linear_stream_up_to<DType::f32, kStreamRows>(args);
    case DType::f16:
      return linear_stream_up_to<DType::f16, kStreamRows>(args);
    case DType::bf16:
      return linear_stream_up_to<DType::bf16, kStreamRows>(args);
    case DType::fp8_e4m3:
      return linear_stream_up_to<DType::fp8_e4m3, kStreamRows>(args);
    case DType::int8:
      return linear_stream_up_to<DType::int8, kStreamRows>(args);
  }
}

}  // namespace
}  // namespace pagoda::kernels::PAGODA_SIMD
