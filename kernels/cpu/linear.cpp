#include "kernels/cpu/linear.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/cpu/biases.hpp"
#include "kernels/cpu/matrix_linear.hpp"
#include "kernels/cpu/row_tiles.hpp"

namespace pagoda::kernels {
namespace {

/// A panel is `linear_panel` consecutive rows of one weight matrix; a task multiplies some panels by some rows of x.
/// stream, for few rows of x: multiplies a panel as it is stored. register_tiled, for some more rows: multiplies each
/// block of a panel (kLinearBlock columns), as it is stored, by the register tiles of x one after another, and
/// prefetches the next panel. packed, for many rows: packs a block into scratch that stays in the cache (with few rows
/// in the first register tile, while that tile is multiplied) and multiplies it by all rows of x of the task before the
/// next block overwrites it.
enum class Strategy { stream, register_tiled, packed };

struct Tasks {
  std::int64_t tiles = 0;         ///< register tiles of x in a task; their part of a block fits the second-level cache
  std::int64_t panels = 0;        ///< panels of a large task
  std::int64_t large_chunks = 0;  ///< number of tasks with `panels` panels, which come first
  std::int64_t small_panels = 0;  ///< panels of the smaller tasks that follow, so that no thread waits long at the end
  std::int64_t panels_at_once = 0;  ///< panels whose sums are kept at once, so that x is read once per block for all
};

/// linear_register_tiled keeps sums for a multiple of this number of rows.
constexpr std::int64_t kRegisterTiledUnit = 4;

/// Up to this number of rows, all of x stays in the cache, and processing one panel after another keeps the reads of
/// weights contiguous.
constexpr std::int64_t kFewRows = 56;

/// Bytes of a cache line.
constexpr std::int64_t kLine = 64;

class Linear {
 public:
  Linear(const CpuKernels& kernels, ThreadPool& threads, const LinearParams& p)
      : kernels_(kernels),
        threads_(threads),
        p_(p),
        strategy_(choose_strategy(kernels, p)),
        tiles_(choose_tiles()),
        padded_in_(ceil_div(p.in, kLinearPadding) * kLinearPadding),
        has_scales_(p.weights.front().scales != nullptr) {
    if (has_scales_ && p.weights.front().scale_columns != p.in) block_ = p.weights.front().scale_columns;
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
    const std::int64_t rows = tiles_.largest_tile_rows();
    const std::int64_t tile_rows =
        strategy_ == Strategy::register_tiled ? ceil_div(rows, kRegisterTiledUnit) * kRegisterTiledUnit : rows;
    const std::int64_t sums_floats = tasks_.panels_at_once * tasks_.tiles * tile_rows * kernels_.linear_panel;
    const int num_threads = threads_.num_threads();
    const std::int64_t scales_floats =
        has_scales_ ? ceil_div(ceil_div(p_.in, block_) * kernels_.linear_panel, kLine) * kLine : 0;
    auto scratch =
        pool.borrow(2 * x_floats + out_features_ + num_threads * (packed_floats + sums_floats + scales_floats),
                    3 + 3 * num_threads);
    if (!scratch) return fail(std::move(scratch.error()));

    if (any_plain_) plain_x_ = pack_x(scratch->floats(x_floats), DType::f32);
    if (any_paired_) paired_x_ = pack_x(scratch->floats(x_floats), DType::bf16);
    biases_ = widened_biases(kernels_, p_, scratch->floats(out_features_));
    std::vector<Workspace> workspaces;
    for (int thread = 0; thread < num_threads; ++thread) {
      workspaces.push_back({scratch->floats(packed_floats), scratch->floats(sums_floats),
                            has_scales_ ? scratch->floats(scales_floats) : nullptr});
    }

    const std::int64_t row_blocks = ceil_div(tiles_.count(), tasks_.tiles);
    const std::int64_t panel_chunks =
        tasks_.large_chunks + ceil_div(num_panels_ - first_of_chunk(tasks_.large_chunks), tasks_.small_panels);
    threads_.parallel_for(row_blocks * panel_chunks, [&](std::int64_t task, int thread) {
      const std::int64_t chunk = task % panel_chunks;
      const std::int64_t block = task / panel_chunks;
      const Tiles tiles{block * tasks_.tiles, std::min(tiles_.count(), (block + 1) * tasks_.tiles)};
      multiply_panels(tiles, first_of_chunk(chunk), std::min(num_panels_, first_of_chunk(chunk + 1)),
                      workspaces[static_cast<std::size_t>(thread)]);
    });
    return {};
  }

 private:
  struct Workspace {
    float* packed = nullptr;  ///< [steps of kLinearBlock, 4 * linear_panel]
    /// [panels_at_once, rows of the task's tiles, linear_panel]; for linear_register_tiled each tile has the rows of
    /// the largest tile, rounded up to kRegisterTiledUnit.
    float* sums = nullptr;
    float* scales = nullptr;  ///< [blocks of columns, linear_panel], scales of 8-bit floats
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
    const std::byte* data = nullptr;  ///< start of the first row
    DType dtype = DType::f32;
    std::int64_t rows = 0;
    std::int64_t out_column = 0;
    std::int64_t row_bytes = 0;
    const WeightMatrix* weight = nullptr;
    std::int64_t first_row = 0;  ///< index of the panel's first row in the weight matrix
  };

  /// Lines of the next block of a panel. The register tiles of the current block prefetch a share each.
  struct Fetching {
    const std::byte* first = nullptr;
    std::int64_t rows = 0;
    std::int64_t row_bytes = 0;
    std::int64_t lines = 0;
    std::int64_t lines_per_stride = 0;
    std::int64_t lines_per_tile = 0;

    PrefetchBlock share_of(std::int64_t tile) const {
      const std::int64_t first_line = tile * lines_per_tile;
      if (first_line >= lines) return {};
      // 32 bits, because a few 64-bit divisions take almost as long as a tile.
      const auto at = static_cast<std::uint32_t>(first_line);
      const auto column_rows = static_cast<std::uint32_t>(rows);
      const std::byte* column = first + at / column_rows * kLine;
      return {.first = column + at % column_rows * row_bytes,
              .column_end = column + rows * row_bytes,
              .row_bytes = row_bytes,
              .column_bytes = rows * row_bytes,
              .lines_per_stride = lines_per_stride};
    }
  };

  static Strategy choose_strategy(const CpuKernels& kernels, const LinearParams& p) {
    if (p.num_tokens <= kernels.stream_rows) return Strategy::stream;
    if (p.weights.front().scales != nullptr) return Strategy::packed;
    const bool all_bf16 = std::all_of(p.weights.begin(), p.weights.end(),
                                      [](const WeightMatrix& weight) { return weight.dtype == DType::bf16; });
    // With types that are widened, each of several tiles of x would widen the weights again.
    const std::int64_t max_rows = all_bf16 ? kernels.register_tiled_rows : kernels.register_tiled_tile;
    return p.num_tokens <= max_rows ? Strategy::register_tiled : Strategy::packed;
  }

  RowTiles choose_tiles() const {
    if (strategy_ == Strategy::stream) return {p_.num_tokens, p_.num_tokens};
    if (strategy_ == Strategy::register_tiled) return {p_.num_tokens, kernels_.register_tiled_tile, kRegisterTiledUnit};
    if (p_.num_tokens > kFewRows || kernels_.packing_rows == 0) return {p_.num_tokens, kernels_.linear_rows};
    return {p_.num_tokens, kernels_.packing_rows};
  }

  void choose_tasks() {
    constexpr std::int64_t kMaxRows = 256;
    constexpr std::int64_t kMaxColumns = 256;
    constexpr std::int64_t kColumnsAtOnce = 64;
    constexpr std::int64_t kTasksPerThread = 4;
    const std::int64_t row_blocks = ceil_div(p_.num_tokens, kMaxRows);
    const std::int64_t wanted_chunks = ceil_div(threads_.num_threads() * kTasksPerThread, row_blocks);
    tasks_.tiles = ceil_div(tiles_.count(), row_blocks);
    tasks_.panels = std::clamp<std::int64_t>(num_panels_ / wanted_chunks, 1, kMaxColumns / kernels_.linear_panel);
    constexpr std::int64_t kSmaller = 4;
    tasks_.large_chunks = row_blocks > 1 ? num_panels_ / tasks_.panels : num_panels_ * 3 / 4 / tasks_.panels;
    tasks_.small_panels = row_blocks > 1 ? tasks_.panels : ceil_div(tasks_.panels, kSmaller);
    tasks_.panels_at_once = strategy_ == Strategy::register_tiled || p_.num_tokens <= kFewRows
                                ? 1
                                : std::min<std::int64_t>(tasks_.panels, kColumnsAtOnce / kernels_.linear_panel);
  }

  std::int64_t first_of_chunk(std::int64_t chunk) const {
    const std::int64_t large = std::min(chunk, tasks_.large_chunks);
    return large * tasks_.panels + (chunk - large) * tasks_.small_panels;
  }

  /// Returns the number of floats that k packed columns of a row of x take, for weights of type `dtype`.
  std::int64_t floats_of(DType dtype, std::int64_t k) const { return 4 * steps_of(kernels_, dtype, k); }

  /// Packs x for weights of type `dtype`; returns `packed`. Tile t of x starts at first_row(t) * padded_in_ and is
  /// [steps, rows of the tile, 4].
  const float* pack_x(float* packed, DType dtype) {
    const std::int64_t blocks = ceil_div(p_.in, kLinearBlock);
    const auto pack_block = [&](std::int64_t task) {
      const std::int64_t tile = task / blocks;
      const std::int64_t k = task % blocks * kLinearBlock;
      const std::int64_t first = tiles_.first_row(tile);
      kernels_.pack_rows({.x = p_.x + first * p_.in + k,
                          .rows = tiles_.rows(tile),
                          .k = std::min(kLinearBlock, p_.in - k),
                          .x_pitch = p_.in,
                          .paired = dtype == DType::bf16,
                          .dst = packed + first * padded_in_ + floats_of(dtype, k) * tiles_.rows(tile)});
    };
    const std::int64_t tasks = tiles_.count() * blocks;
    constexpr std::int64_t kFewFloats = 8192;  // less work does not pay for the hand-over to another thread
    if (p_.num_tokens * padded_in_ <= kFewFloats) {
      for (std::int64_t task = 0; task < tasks; ++task) pack_block(task);
    } else {
      threads_.parallel_for(tasks, pack_block);
    }
    return packed;
  }

  const float* packed_x(DType dtype, std::int64_t tile, std::int64_t k) const {
    const float* x = dtype == DType::bf16 ? paired_x_ : plain_x_;
    return x + tiles_.first_row(tile) * padded_in_ + floats_of(dtype, k) * tiles_.rows(tile);
  }

  Panel panel_at(std::int64_t index) const {
    std::int64_t column = 0;
    for (const WeightMatrix& weight : p_.weights) {
      const std::int64_t panels = ceil_div(weight.rows, kernels_.linear_panel);
      if (index < panels) {
        const std::int64_t row = index * kernels_.linear_panel;
        const std::int64_t row_bytes = p_.in * static_cast<std::int64_t>(size_of(weight.dtype));
        return {static_cast<const std::byte*>(weight.data) + row * row_bytes,
                weight.dtype,
                std::min<std::int64_t>(kernels_.linear_panel, weight.rows - row),
                column + row,
                row_bytes,
                &weight,
                row};
      }
      index -= panels;
      column += weight.rows;
    }
    PAGODA_ASSERT(false, "panel index out of range");
    return {};
  }

  void multiply_panels(const Tiles& tiles, std::int64_t first_panel, std::int64_t end_panel,
                       const Workspace& work) const {
    if (strategy_ == Strategy::stream) {
      for (std::int64_t index = first_panel; index < end_panel; ++index) {
        const Panel panel = panel_at(index);
        stream_panel(panel, work, scales_of(panel, 0, p_.in, work));
      }
      return;
    }
    if (strategy_ == Strategy::register_tiled) return multiply_register_tiled(tiles, first_panel, end_panel, work);
    for (std::int64_t panel = first_panel; panel < end_panel; panel += tasks_.panels_at_once) {
      multiply_packed(tiles, panel, std::min(end_panel, panel + tasks_.panels_at_once), work);
    }
  }

  /// Multiplies all rows of x, a single register tile, by a panel as it is stored.
  void stream_panel(const Panel& panel, const Workspace& work, const float* scales) const {
    constexpr std::int64_t kAheadBytes = 768;
    const bool wide = p_.num_tokens <= kernels_.wide_stream_rows;
    const std::int64_t part_rows = wide ? kernels_.linear_panel : kernels_.stream_panel;
    for (std::int64_t row = 0; row < panel.rows; row += part_rows) {
      const Panel part = part_of(panel, row, std::min(part_rows, panel.rows - row));
      kernels_.linear_stream({.x = packed_x(part.dtype, 0, 0),
                              .rows = p_.num_tokens,
                              .piece = piece_of(part, 0, p_.in),
                              .block = block_,
                              .sums = sums_of(work.sums, 0, p_.in, part, 0, scales == nullptr ? nullptr : scales + row),
                              .ahead_bytes = kAheadBytes});
    }
  }

  /// Multiplies panel by panel and prefetches the next panel, a contiguous range of memory, meanwhile. Goes block by
  /// block, so that a register tile's part of a block of x stays in the first-level cache.
  void multiply_register_tiled(const Tiles& tiles, std::int64_t first_panel, std::int64_t end_panel,
                               const Workspace& work) const {
    const std::int64_t tile_sums =
        ceil_div(tiles_.largest_tile_rows(), kRegisterTiledUnit) * kRegisterTiledUnit * kernels_.linear_panel;
    const std::int64_t calls = ceil_div(p_.in, kLinearBlock) * (tiles.end - tiles.first);
    for (std::int64_t index = first_panel; index < end_panel; ++index) {
      const Panel panel = panel_at(index);
      std::int64_t call = 0;
      for (std::int64_t k = 0; k < p_.in; k += kLinearBlock) {
        float* sums = work.sums;
        for (std::int64_t tile = tiles.first; tile < tiles.end; ++tile, ++call, sums += tile_sums) {
          const std::int64_t count = std::min(kLinearBlock, p_.in - k);
          kernels_.linear_register_tiled({.x = packed_x(panel.dtype, tile, k),
                                          .rows = tiles_.rows(tile),
                                          .piece = piece_of(panel, k, count),
                                          .sums = sums_of(sums, k, count, panel, tiles_.first_row(tile)),
                                          .prefetch = share_of_panel(index + 1, call, calls)});
        }
      }
    }
  }

  /// Returns the consecutive lines of a panel that call `call` of `calls` calls of linear_register_tiled prefetches.
  PrefetchBlock share_of_panel(std::int64_t index, std::int64_t call, std::int64_t calls) const {
    if (index >= num_panels_) return {};
    const Panel panel = panel_at(index);
    const std::int64_t lines = ceil_div(panel.rows * panel.row_bytes, kLine);
    const std::int64_t lines_per_stride = ceil_div(lines, calls * kRegisterTiledStrides);
    const std::int64_t first_line = call * kRegisterTiledStrides * lines_per_stride;
    if (first_line >= lines) return {};
    return {.first = panel.data + first_line * kLine,
            .column_end = panel.data + panel.rows * panel.row_bytes,
            .row_bytes = kLine,
            .column_bytes = 0,
            .lines_per_stride = lines_per_stride};
  }

  void multiply_packed(const Tiles& tiles, std::int64_t first_panel, std::int64_t end_panel,
                       const Workspace& work) const {
    const std::int64_t rows = tiles_.first_row(tiles.end) - tiles_.first_row(tiles.first);
    for (std::int64_t k = 0; k < p_.in; k += block_) {
      for (std::int64_t index = first_panel; index < end_panel; ++index) {
        const Piece next = index + 1 < end_panel ? Piece{index + 1, k}
                           : k + block_ < p_.in  ? Piece{first_panel, k + block_}
                                                 : Piece{end_panel, 0};
        float* sums = work.sums + (index - first_panel) * rows * kernels_.linear_panel;
        multiply_block(tiles, {index, k}, next, work, sums);
      }
    }
  }

  /// Multiplies a block, and prefetches the next block meanwhile.
  void multiply_block(const Tiles& tiles, const Piece& piece, const Piece& next, const Workspace& work,
                      float* sums) const {
    const Panel panel = panel_at(piece.panel);
    const std::int64_t count = std::min(block_, p_.in - piece.k);
    float* const packed = work.packed;
    const float* const scales = scales_of(panel, piece.k, count, work);
    const bool packs_in_passing = tiles_.rows(tiles.first) <= kernels_.packing_rows;
    if (!packs_in_passing) kernels_.pack_weights(piece_of(panel, piece.k, count), packed);
    const Fetching fetching = fetching_of(next, tiles.end - tiles.first);
    const std::int64_t floats = floats_of(panel.dtype, piece.k);
    const std::int64_t steps = steps_of(kernels_, panel.dtype, ceil_div(count, kLinearPadding) * kLinearPadding);
    const float* const x = panel.dtype == DType::bf16 ? paired_x_ : plain_x_;
    std::int64_t row = tiles_.first_row(tiles.first);
    // The arguments are built in place, because a copy would stall: it would load data just stored in smaller pieces.
    for (std::int64_t tile = tiles.first; tile < tiles.end; ++tile) {
      const std::int64_t rows = tiles_.rows(tile);
      if (tile == tiles.first && packs_in_passing) {
        kernels_.linear_stream({.x = x + row * padded_in_ + floats * rows,
                                .rows = rows,
                                .piece = piece_of(panel, piece.k, count),
                                .sums = sums_of(sums, piece.k, count, panel, row, scales),
                                .packed = packed,
                                .prefetch = fetching.share_of(tile - tiles.first)});
      } else {
        kernels_.linear_tile({.x = x + row * padded_in_ + floats * rows,
                              .w = packed,
                              .dtype = panel.dtype,
                              .rows = rows,
                              .steps = steps,
                              .sums = sums_of(sums, piece.k, count, panel, row, scales),
                              .prefetch = fetching.share_of(tile - tiles.first)});
      }
      row += rows;
      sums += rows * kernels_.linear_panel;
    }
  }

  /// Returns the scales of columns [k, k + count) of a panel's rows, times kFp8Unit; null if the weights have no
  /// scales.
  const float* scales_of(const Panel& panel, std::int64_t k, std::int64_t count, const Workspace& work) const {
    if (!has_scales_) return nullptr;
    const WeightMatrix& weight = *panel.weight;
    float* to = work.scales;
    for (std::int64_t block = 0; block < count; block += block_, to += kernels_.linear_panel) {
      std::fill_n(to, kernels_.linear_panel, 0.0F);
      for (std::int64_t r = 0; r < panel.rows; ++r) {
        to[r] = kFp8Unit * weight.scales[(panel.first_row + r) / weight.scale_rows * weight.scales_of_row() +
                                         (k + block) / weight.scale_columns];
      }
    }
    return work.scales;
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

  LinearSums sums_of(float* sums, std::int64_t k, std::int64_t count, const Panel& panel, std::int64_t row,
                     const float* scales = nullptr) const {
    return {.sums = sums,
            .starts_at_zero = k == 0,
            .last = k + count == p_.in,
            .scales = scales,
            .out = {.out = p_.out + row * p_.out_stride + panel.out_column,
                    .stride = p_.out_stride,
                    .bias = biases_ == nullptr ? nullptr : biases_ + panel.out_column,
                    .columns = panel.rows,
                    .accumulate = p_.accumulate}};
  }

  Fetching fetching_of(const Piece& next, std::int64_t num_tiles) const {
    if (next.panel >= num_panels_) return {};
    const Panel panel = panel_at(next.panel);
    const auto size = static_cast<std::int64_t>(size_of(panel.dtype));
    const std::int64_t lines = panel.rows * ceil_div(std::min(block_, p_.in - next.k) * size, kLine);
    const std::int64_t strides = steps_of(kernels_, panel.dtype, block_) / kPrefetchStride;
    const std::int64_t lines_per_stride = ceil_div(lines, num_tiles * strides);
    return {.first = panel.data + next.k * size,
            .rows = panel.rows,
            .row_bytes = panel.row_bytes,
            .lines = lines,
            .lines_per_stride = lines_per_stride,
            .lines_per_tile = strides * lines_per_stride};
  }

  const CpuKernels& kernels_;
  ThreadPool& threads_;
  const LinearParams& p_;
  Strategy strategy_;
  RowTiles tiles_;
  std::int64_t padded_in_;
  bool has_scales_;
  std::int64_t block_ = kLinearBlock;  ///< columns of a block of sums
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
  if (uses_matrix_unit(kernels, params)) return cpu_matrix_linear(kernels, threads, scratch, params);
  return Linear(kernels, threads, params).run(scratch);
}

}  // namespace pagoda::kernels
