// Scores of a tile of attention, with keys read as they are stored. Included once per instruction set, after
// linear_register_tiled.inl.hpp; PAGODA_SIMD names the namespace.

#include <cstdint>

#include "kernels/cpu/kernel_table.hpp"
#include "kernels/cpu/simd/prefetch.hpp"

namespace pagoda::kernels::PAGODA_SIMD {
namespace {

constexpr int kScoreVectors = 4;
constexpr int kScoreTile = kScoreVectors * kLanes;

/// Computes the scores panel by panel, with linear_stream.
void scores_panels(const ScoresStreamArgs& args) {
  const std::int64_t keys = args.rows <= kWideStreamRows ? kLinearPanel : kStreamPanel;
  float sums[kStreamRows * kLinearPanel];
  const std::int64_t first = args.first / keys * keys;
  const std::int64_t panels = (args.end - first + keys - 1) / keys;
  for (std::int64_t panel = 0; panel < panels; ++panel) {
    const std::int64_t at = first + panel * keys;
    linear_stream({.x = args.queries,
                   .rows = args.rows,
                   .piece = {.dtype = args.dtype, .rows = keys, .count = args.head_dim, .row_pointers = args.keys + at},
                   .sums = {.sums = sums,
                            .starts_at_zero = true,
                            .last = true,
                            .out = {.out = args.scores + at, .stride = kScoreTile, .columns = keys}},
                   .next = share_of(args.next, panel, panel + 1, panels)});
  }
}

/// Computes the scores with vectors that hold quads of four queries, each multiplied by a broadcast quad of a key, as
/// it is stored.
template <int rows>
void scores_dots(const ScoresStreamArgs& args) {
  constexpr std::int64_t kSize = 2;
  constexpr int kVectors = (rows + kQuad - 1) / kQuad;
  constexpr int kKeys = kLanes / kVectors;
  static_assert(kScoreTile % kLanes == 0 && kVectors <= 2);
  const std::int64_t first = args.first / kLanes * kLanes;
  RowPrefetcher prefetcher(args.next, (args.end - first + kLanes - 1) / kLanes * kVectors * args.head_dim);
  for (std::int64_t at = first; at < args.end; at += kLanes) {
    Vec squares[kVectors][kRowsPerVector];  // four queries, one in each 128-bit lane, by four keys
#pragma GCC unroll 2
    for (int part = 0; part < kVectors; ++part) {
      const char* keys[kKeys];
#pragma GCC unroll 16
      for (int n = 0; n < kKeys; ++n) keys[n] = static_cast<const char*>(args.keys[at + part * kKeys + n]);
      for (std::int64_t block = 0; block < args.head_dim; block += kLinearBlock) {
        const std::int64_t end = block + kLinearBlock < args.head_dim ? block + kLinearBlock : args.head_dim;
        const std::int64_t whole_end = end / kLinearPadding * kLinearPadding;
        DotChains<kVectors, kKeys> chains;
        for (std::int64_t k = block; k < whole_end; k += kLinearPadding) {
          prefetcher.advance(kLinearPadding);
          chains.add(keys, k * kSize, args.queries + floats_of(DType::bf16, k) * rows, rows);
        }
        if (whole_end < end) {
          prefetcher.advance(end - whole_end);
          const PanelTail<kKeys> tail(keys, whole_end * kSize, (end - whole_end) * kSize);
          chains.add(tail.rows, 0, args.queries + floats_of(DType::bf16, whole_end) * rows, rows);
        }
#pragma GCC unroll 2
        for (int v = 0; v < kVectors; ++v) {
#pragma GCC unroll 4
          for (int i = 0; i < kKeys / kSumsAtOnce; ++i) {
            const Vec sums = quad_sums(chains.chains[v][i]);
            Vec& square = squares[v][part * (kKeys / kSumsAtOnce) + i];
            square = block == 0 ? sums : square + sums;
          }
        }
      }
    }
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      transpose_quads(squares[v]);
#pragma GCC unroll 4
      for (int i = 0; i < kQuad; ++i) {
        if (v * kQuad + i < rows) store(args.scores + (v * kQuad + i) * kScoreTile + at, squares[v][i]);
      }
    }
  }
}

template <int rows>
void scores_dots_up_to(const ScoresStreamArgs& args) {
  if (args.rows == rows) return scores_dots<rows>(args);
  if constexpr (rows > 1) scores_dots_up_to<rows - 1>(args);
}

template <int max_rows>
void scores_stream_of(const ScoresStreamArgs& args) {
  if constexpr (max_rows > 0) {
    if (args.dtype == DType::bf16) return scores_dots_up_to<max_rows>(args);
  }
  scores_panels(args);
}

void scores_stream(const ScoresStreamArgs& args) {
  scores_stream_of<kDotsBf16 ? kStreamRows : 0>(args);
}

}  // namespace
}  // namespace pagoda::kernels::PAGODA_SIMD
