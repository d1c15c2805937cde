#include "kernels/cpu/linear.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/cpu/row_tiles.hpp"

namespace pagoda::kernels {
namespace {

/// A panel is `linear_panel` consecutive rows of one weight matrix; panels and rows of x are shared out as tasks. With
/// few rows of x a panel is multiplied straight from memory. With more, it is packed block by block (kLinearBlock
/// columns) into scratch that stays in the first-level cache, and each packed block meets all rows of x of the task
/// before it is overwritten.
struct Tasks {
  std::int64_t tiles = 0;   ///< register tiles of x in a task: their part of a block stays in the second-level cache
  std::int64_t panels = 0;  ///< in a task
  std::int64_t panels_at_once = 0;  ///< panels whose sums are kept at once, so that x is read once per block for all
};

/// Up to this many register tiles of x, weights straight from memory are faster than packed ones.
constexpr std::int64_t kMostStreamTiles = 1;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

class Linear {
 public:
  Linear(const CpuKernels& kernels, ThreadPool& threads, const LinearParams& p)
      : kernels_(kernels),
        threads_(threads),
        p_(p),
        streams_(p.num_tokens <= kMostStreamTiles * kernels.stream_rows),
        tiles_(p.num_tokens, streams_ ? kernels.stream_rows : kernels.linear_rows),
        padded_in_(ceil_div(p.in, kLinearPadding) * kLinearPadding) {
    for (const WeightMatrix& weight : p.weights) {
      num_panels_ += ceil_div(weight.rows, kernels.linear_panel);
      out_features_ += weight.rows;
      (weight.dtype == DType::bf16 ? any_paired_ : any_plain_) = true;
    }
    choose_tasks();
  }

  Status run(ScratchPool& pool) {
    const std::int64_t x_floats = p_.num_tokens * padded_in_;
    const std::int64_t packed_floats = kLinearBlock * kernels_.linear_panel;
    const std::int64_t sums_floats = tasks_.panels_at_once * tasks_.tiles * tiles_.most_rows() * kernels_.linear_panel;
    const int num_threads = threads_.num_threads();
    auto scratch =
        pool.borrow(2 * x_floats + out_features_ + num_threads * (packed_floats + sums_floats), 3 + 2 * num_threads);
    if (!scratch) return fail(std::move(scratch.error()));

    if (any_plain_) plain_x_ = pack_x(scratch->floats(x_floats), false);
    if (any_paired_) paired_x_ = pack_x(scratch->floats(x_floats), true);
    if (!p_.biases.empty()) widen_biases_into(scratch->floats(out_features_));
    std::vector<Workspace> workspaces;
    for (int thread = 0; thread < num_threads; ++thread) {
      workspaces.push_back({scratch->floats(packed_floats), scratch->floats(sums_floats)});
    }

    const std::int64_t row_blocks = ceil_div(tiles_.count(), tasks_.tiles);
    const std::int64_t panel_chunks = ceil_div(num_panels_, tasks_.panels);
    threads_.parallel_for(row_blocks * panel_chunks, [&](std::int64_t task, int thread) {
      const std::int64_t chunk = task % panel_chunks;
      const std::int64_t block = task / panel_chunks;
      const Tiles tiles{block * tasks_.tiles, std::min(tiles_.count(), (block + 1) * tasks_.tiles)};
      multiply_panels(tiles, chunk * tasks_.panels, std::min(num_panels_, (chunk + 1) * tasks_.panels),
                      workspaces[static_cast<std::size_t>(thread)]);
    });
    return {};
  }

 private:
  struct Workspace {
    float* packed = nullptr;  ///< [kLinearBlock / 4, 4 * linear_panel]
    float* sums = nullptr;    ///< [panels_at_once, rows of the task's tiles, linear_panel]
  };

  struct Tiles {
    std::int64_t first = 0;
    std::int64_t end = 0;
  };

  /// One block of columns of a panel, from k on.
  struct Piece {
    std::int64_t panel = 0;
    std::int64_t k = 0;
  };

  /// Some rows of one weight matrix, at most a panel.
  struct Panel {
    const std::byte* data = nullptr;  ///< of the first row
    DType dtype = DType::f32;
    std::int64_t rows = 0;
    std::int64_t out_column = 0;
    std::int64_t row_bytes = 0;
  };

  void choose_tasks() {
    constexpr std::int64_t kMostRows = 256;
    constexpr std::int64_t kMostColumns = 256;
    constexpr std::int64_t kColumnsAtOnce = 64;
    constexpr std::int64_t kTasksPerThread = 4;
    const std::int64_t row_blocks = ceil_div(p_.num_tokens, kMostRows);
    const std::int64_t wanted_chunks = ceil_div(threads_.num_threads() * kTasksPerThread, row_blocks);
    tasks_.tiles = ceil_div(tiles_.count(), row_blocks);
    tasks_.panels = std::clamp<std::int64_t>(num_panels_ / wanted_chunks, 1, kMostColumns / kernels_.linear_panel);
    // While all of x stays in the cache, one panel after the other keeps reads of the weights together.
    constexpr std::int64_t kFewRows = 56;
    tasks_.panels_at_once =
        p_.num_tokens <= kFewRows ? 1 : std::min<std::int64_t>(tasks_.panels, kColumnsAtOnce / kernels_.linear_panel);
  }

  /// Tile t of x is at first_row(t) * padded_in_, as [padded_in / 4, rows of the tile, 4].
  const float* pack_x(float* packed, bool paired) {
    const auto pack_tile = [&](std::int64_t tile) {
      const std::int64_t first = tiles_.first_row(tile);
      kernels_.pack_rows({.x = p_.x + first * p_.in,
                          .rows = tiles_.rows(tile),
                          .k = p_.in,
                          .paired = paired,
                          .dst = packed + first * padded_in_});
    };
    constexpr std::int64_t kFewFloats = 16384;  // less is not worth the hand-over to another thread
    if (p_.num_tokens * padded_in_ <= kFewFloats) {
      for (std::int64_t tile = 0; tile < tiles_.count(); ++tile) pack_tile(tile);
    } else {
      threads_.parallel_for(tiles_.count(), pack_tile);
    }
    return packed;
  }

  const float* packed_x(DType dtype, std::int64_t tile, std::int64_t k) const {
    const float* x = dtype == DType::bf16 ? paired_x_ : plain_x_;
    return x + tiles_.first_row(tile) * padded_in_ + k * tiles_.rows(tile);
  }

  void widen_biases_into(float* biases) {
    biases_ = biases;
    for (std::size_t part = 0; part < p_.weights.size(); ++part) {
      const std::int64_t rows = p_.weights[part].rows;
      if (p_.biases[part] != nullptr) {
        kernels_.widen(p_.biases[part], p_.bias_dtype, rows, biases);
      } else {
        std::fill_n(biases, rows, 0.0F);
      }
      biases += rows;
    }
  }

  Panel panel_at(std::int64_t index) const {
    std::int64_t column = 0;
    for (const WeightMatrix& weight : p_.weights) {
      const std::int64_t panels = ceil_div(weight.rows, kernels_.linear_panel);
      if (index < panels) {
        const std::int64_t row = index * kernels_.linear_panel;
        const std::int64_t row_bytes = p_.in * static_cast<std::int64_t>(size_of(weight.dtype));
        return {static_cast<const std::byte*>(weight.data) + row * row_bytes, weight.dtype,
                std::min<std::int64_t>(kernels_.linear_panel, weight.rows - row), column + row, row_bytes};
      }
      index -= panels;
      column += weight.rows;
    }
    PAGODA_ASSERT(false, "panel index out of range");
    return {};
  }

  void multiply_panels(const Tiles& tiles, std::int64_t first_panel, std::int64_t end_panel,
                       const Workspace& work) const {
    if (streams_) {
      for (std::int64_t index = first_panel; index < end_panel; ++index) stream_panel(panel_at(index), work);
      return;
    }
    for (std::int64_t panel = first_panel; panel < end_panel; panel += tasks_.panels_at_once) {
      multiply_packed(tiles, panel, std::min(end_panel, panel + tasks_.panels_at_once), work);
    }
  }

  /// All rows of x against a panel that is read straight from memory. A single register tile goes through whole rows;
  /// several take turns on a block, of which the first finds it in memory and the others in the cache.
  void stream_panel(const Panel& panel, const Workspace& work) const {
    constexpr std::int64_t kAheadBytes = 768;
    const std::int64_t depth = tiles_.count() == 1 ? p_.in : kLinearBlock;
    const auto size = static_cast<std::int64_t>(size_of(panel.dtype));
    const bool wide = p_.num_tokens <= kernels_.wide_stream_rows;
    const std::int64_t part_rows = wide ? kernels_.linear_panel : kernels_.stream_panel;
    for (std::int64_t row = 0; row < panel.rows; row += part_rows) {
      const Panel part = part_of(panel, row, std::min(part_rows, panel.rows - row));
      for (std::int64_t k = 0; k < p_.in; k += depth) {
        const std::int64_t count = std::min(depth, p_.in - k);
        for (std::int64_t tile = 0; tile < tiles_.count(); ++tile) {
          float* sums = work.sums + tiles_.first_row(tile) * part_rows;
          kernels_.linear_stream({.x = packed_x(part.dtype, tile, k),
                                  .rows = tiles_.rows(tile),
                                  .piece = piece_of(part, k, count),
                                  .sums = sums_of(sums, k, count, part, tile),
                                  .ahead_bytes = tiles_.count() == 1 ? kAheadBytes : depth * size,
                                  .first_ahead = tile,
                                  .step_ahead = tiles_.count()});
        }
      }
    }
  }

  void multiply_packed(const Tiles& tiles, std::int64_t first_panel, std::int64_t end_panel,
                       const Workspace& work) const {
    const std::int64_t rows = tiles_.first_row(tiles.end) - tiles_.first_row(tiles.first);
    for (std::int64_t k = 0; k < p_.in; k += kLinearBlock) {
      const std::int64_t count = std::min(kLinearBlock, p_.in - k);
      for (std::int64_t index = first_panel; index < end_panel; ++index) {
        const Piece next = index + 1 < end_panel      ? Piece{index + 1, k}
                           : k + kLinearBlock < p_.in ? Piece{first_panel, k + kLinearBlock}
                                                      : Piece{end_panel, 0};
        kernels_.pack_weights(piece_of(panel_at(index), k, count), work.packed);
        float* sums = work.sums + (index - first_panel) * rows * kernels_.linear_panel;
        multiply_block(tiles, {index, k}, next, work.packed, sums);
      }
    }
  }

  /// While a block is multiplied, the next one is fetched from memory.
  void multiply_block(const Tiles& tiles, const Piece& piece, const Piece& next, const float* packed,
                      float* sums) const {
    const Panel panel = panel_at(piece.panel);
    const std::int64_t count = std::min(kLinearBlock, p_.in - piece.k);
    for (std::int64_t tile = tiles.first; tile < tiles.end; ++tile) {
      kernels_.linear_tile({.x = packed_x(panel.dtype, tile, piece.k),
                            .w = packed,
                            .rows = tiles_.rows(tile),
                            .steps = ceil_div(count, kLinearPadding) * kLinearPadding / 4,
                            .sums = sums_of(sums, piece.k, count, panel, tile),
                            .prefetch = share_of_prefetch(next, tile - tiles.first, tiles.end - tiles.first)});
      sums += tiles_.rows(tile) * kernels_.linear_panel;
    }
  }

  static Panel part_of(const Panel& panel, std::int64_t row, std::int64_t rows) {
    Panel part = panel;
    part.data += row * panel.row_bytes;
    part.rows = rows;
    part.out_column += row;
    return part;
  }

  static WeightPiece piece_of(const Panel& panel, std::int64_t k, std::int64_t count) {
    return {.w = panel.data,
            .dtype = panel.dtype,
            .rows = panel.rows,
            .row_bytes = panel.row_bytes,
            .first = k,
            .count = count};
  }

  LinearSums sums_of(float* sums, std::int64_t k, std::int64_t count, const Panel& panel, std::int64_t tile) const {
    return {.sums = sums,
            .first = k == 0,
            .last = k + count == p_.in,
            .out = {.out = p_.out + tiles_.first_row(tile) * p_.out_stride + panel.out_column,
                    .stride = p_.out_stride,
                    .bias = biases_ == nullptr ? nullptr : biases_ + panel.out_column,
                    .columns = panel.rows,
                    .accumulate = p_.accumulate}};
  }

  /// The lines of `next` that the given one of `num_tiles` register tiles prefetches.
  PrefetchBlock share_of_prefetch(const Piece& next, std::int64_t tile, std::int64_t num_tiles) const {
    constexpr std::int64_t kLine = 64;
    if (next.panel >= num_panels_) return {};
    const Panel panel = panel_at(next.panel);
    const auto size = static_cast<std::int64_t>(size_of(panel.dtype));
    const std::int64_t lines = panel.rows * ceil_div(std::min(kLinearBlock, p_.in - next.k) * size, kLine);
    const std::int64_t strides = kLinearBlock / 4 / kPrefetchStride;
    const std::int64_t lines_per_stride = ceil_div(lines, num_tiles * strides);
    const std::int64_t first_line = tile * strides * lines_per_stride;
    if (first_line >= lines) return {};
    const std::byte* column = panel.data + next.k * size + first_line / panel.rows * kLine;
    return {.first = column + first_line % panel.rows * panel.row_bytes,
            .column_end = column + panel.rows * panel.row_bytes,
            .row_bytes = panel.row_bytes,
            .column_bytes = panel.rows * panel.row_bytes,
            .lines_per_stride = lines_per_stride};
  }

  const CpuKernels& kernels_;
  ThreadPool& threads_;
  const LinearParams& p_;
  bool streams_;  ///< weights straight from memory
  RowTiles tiles_;
  std::int64_t padded_in_;
  std::int64_t num_panels_ = 0;
  std::int64_t out_features_ = 0;
  bool any_plain_ = false;
  bool any_paired_ = false;
  Tasks tasks_;
  const float* plain_x_ = nullptr;
  const float* paired_x_ = nullptr;
  const float* biases_ = nullptr;
};

}  // namespace

Status cpu_linear(const CpuKernels& kernels, ThreadPool& threads, ScratchPool& scratch, const LinearParams& params) {
  if (params.num_tokens == 0) return {};
  return Linear(kernels, threads, params).run(scratch);
}

}  // namespace pagoda::kernels
