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

/// A panel is `panel` consecutive rows of one weight matrix. It is packed (widened and transposed) piece by piece into
/// scratch that stays in the first-level cache, and each piece meets all rows of x of the block before it is
/// overwritten.
///
/// depth: columns of a piece. block_rows: rows of x that a task takes, so that their part of a piece's depth stays in
/// the second-level cache. block_panels: panels whose sums are kept at once, so that x is read once per depth for all
/// of them.
struct Blocking {
  std::int64_t depth = 0;
  std::int64_t block_rows = 0;
  std::int64_t block_panels = 0;
  std::int64_t task_panels = 0;
};

std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}

class Linear {
 public:
  Linear(const CpuKernels& kernels, ThreadPool& threads, const LinearParams& p)
      : kernels_(kernels), threads_(threads), p_(p), tiles_(p.num_tokens, kernels.max_rows) {
    for (const WeightMatrix& weight : p.weights) {
      num_panels_ += ceil_div(weight.rows, kernels.panel);
      out_features_ += weight.rows;
    }
    choose_blocking();
  }

  Status run(ScratchPool& pool) {
    const bool widen_biases = !p_.biases.empty();
    const std::int64_t packed_x_floats = packs_x() ? tiles_.count() * p_.in * kernels_.lanes : 0;
    const std::int64_t per_thread_floats = blocking_.depth * kernels_.panel + sums_floats();
    const int num_threads = threads_.num_threads();
    auto scratch = pool.borrow(packed_x_floats + (widen_biases ? out_features_ : 0) + num_threads * per_thread_floats,
                               2 + 2 * num_threads);
    if (!scratch) return fail(std::move(scratch.error()));

    if (packs_x()) pack_x(scratch->floats(packed_x_floats));
    if (widen_biases) widen_biases_into(scratch->floats(out_features_));
    std::vector<Workspace> workspaces;
    for (int thread = 0; thread < num_threads; ++thread) {
      workspaces.push_back({scratch->floats(blocking_.depth * kernels_.panel), scratch->floats(sums_floats())});
    }

    const std::int64_t row_blocks = ceil_div(tiles_.count(), blocking_.block_rows);
    const std::int64_t panel_chunks = ceil_div(num_panels_, blocking_.task_panels);
    threads_.parallel_for(row_blocks * panel_chunks, [&](std::int64_t task, int thread) {
      const std::int64_t chunk = task % panel_chunks;
      const std::int64_t block = task / panel_chunks;
      const std::int64_t first_panel = chunk * blocking_.task_panels;
      const std::int64_t end_panel = std::min(num_panels_, first_panel + blocking_.task_panels);
      const Tiles tiles{block * blocking_.block_rows, std::min(tiles_.count(), (block + 1) * blocking_.block_rows)};
      multiply_panels(tiles, first_panel, end_panel, workspaces[static_cast<std::size_t>(thread)]);
    });
    return {};
  }

 private:
  struct Workspace {
    float* packed = nullptr;  ///< [depth, panel]
    float* sums = nullptr;    ///< [block_panels, rows of the block, panel]
  };

  struct Tiles {
    std::int64_t first = 0;
    std::int64_t end = 0;
  };

  /// `depth` columns of a panel, from k on.
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
  };

  bool is_gemv() const { return p_.num_tokens <= kernels_.max_gemv_tokens; }
  bool packs_x() const { return p_.num_tokens > 1; }
  std::int64_t sums_floats() const {
    return blocking_.block_panels * blocking_.block_rows * tiles_.most_rows() * kernels_.panel;
  }

  void choose_blocking() {
    constexpr std::int64_t kDepth = 192;
    constexpr std::int64_t kMostRows = 256;
    constexpr std::int64_t kMostPanels = 8;
    constexpr std::int64_t kTasksPerThread = 4;
    blocking_.depth = std::min(p_.in, kDepth);
    const std::int64_t row_blocks = std::max<std::int64_t>(1, ceil_div(p_.num_tokens, kMostRows));
    blocking_.block_rows = std::max<std::int64_t>(1, ceil_div(tiles_.count(), row_blocks));
    const std::int64_t wanted_chunks = ceil_div(threads_.num_threads() * kTasksPerThread, row_blocks);
    blocking_.task_panels = std::clamp<std::int64_t>(num_panels_ / wanted_chunks, 1, kMostPanels);
    blocking_.block_panels = p_.num_tokens <= 4 * kernels_.max_rows ? 1 : blocking_.task_panels;
  }

  /// Tile t of x becomes [in, lanes] at t * in * lanes: the rows of a tile side by side for each k.
  void pack_x(float* packed) {
    x_ = packed;
    const auto pack_tile = [&](std::int64_t tile) {
      std::array<const void*, kMostLanes> rows;
      const std::int64_t first = tiles_.first_row(tile);
      for (std::int64_t r = 0; r < kernels_.lanes; ++r) {
        rows[static_cast<std::size_t>(r)] = p_.x + (first + std::min(r, tiles_.rows(tile) - 1)) * p_.in;
      }
      kernels_.pack({.rows = rows.data(),
                     .dtype = DType::f32,
                     .first = 0,
                     .count = p_.in,
                     .dst = packed + tile * p_.in * kernels_.lanes,
                     .pitch = kernels_.lanes});
    };
    if (tiles_.count() == 1) return pack_tile(0);
    threads_.parallel_for(tiles_.count(), pack_tile);
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
      const std::int64_t panels = ceil_div(weight.rows, kernels_.panel);
      if (index < panels) {
        const std::int64_t row = index * kernels_.panel;
        const std::int64_t row_bytes = p_.in * static_cast<std::int64_t>(size_of(weight.dtype));
        return {static_cast<const std::byte*>(weight.data) + row * row_bytes, weight.dtype,
                std::min<std::int64_t>(kernels_.panel, weight.rows - row), column + row};
      }
      index -= panels;
      column += weight.rows;
    }
    PAGODA_ASSERT(false, "panel index out of range");
    return {};
  }

  void multiply_panels(const Tiles& tiles, std::int64_t first_panel, std::int64_t end_panel,
                       const Workspace& work) const {
    if (is_gemv()) {
      for (std::int64_t index = first_panel; index < end_panel; ++index) multiply_from_memory(panel_at(index), work);
      return;
    }
    for (std::int64_t panel = first_panel; panel < end_panel; panel += blocking_.block_panels) {
      multiply_block(tiles, panel, std::min(end_panel, panel + blocking_.block_panels), work);
    }
  }

  void multiply_from_memory(const Panel& panel, const Workspace& work) const {
    const std::int64_t row_bytes = p_.in * static_cast<std::int64_t>(size_of(panel.dtype));
    for (std::int64_t first = 0; first < panel.rows; first += kernels_.lanes) {
      const std::int64_t rows = std::min<std::int64_t>(kernels_.lanes, panel.rows - first);
      kernels_.gemv({.w = panel.data + first * row_bytes,
                     .dtype = panel.dtype,
                     .rows = rows,
                     .k = p_.in,
                     .x = packs_x() ? x_ : p_.x,
                     .x_pitch = packs_x() ? kernels_.lanes : 1,
                     .tokens = p_.num_tokens,
                     .c = work.sums});
      for (std::int64_t token = 0; token < p_.num_tokens; ++token) {
        write_row(token, panel.out_column + first, rows, work.sums + token * kernels_.lanes);
      }
    }
  }

  void multiply_block(const Tiles& tiles, std::int64_t first_panel, std::int64_t end_panel,
                      const Workspace& work) const {
    const std::int64_t rows = tiles_.first_row(tiles.end) - tiles_.first_row(tiles.first);
    const std::int64_t sums_of_panel = rows * kernels_.panel;
    for (std::int64_t k = 0; k < p_.in; k += blocking_.depth) {
      for (std::int64_t index = first_panel; index < end_panel; ++index) {
        const Piece next = index + 1 < end_panel         ? Piece{index + 1, k}
                           : k + blocking_.depth < p_.in ? Piece{first_panel, k + blocking_.depth}
                                                         : Piece{end_panel, 0};
        pack_piece({index, k}, work.packed);
        multiply_piece(tiles, k, next, work.packed, work.sums + (index - first_panel) * sums_of_panel);
      }
    }
    for (std::int64_t index = first_panel; index < end_panel; ++index) {
      write_panel(tiles, panel_at(index), work.sums + (index - first_panel) * sums_of_panel);
    }
  }

  std::int64_t depth_at(std::int64_t k) const { return std::min(blocking_.depth, p_.in - k); }

  void pack_piece(const Piece& piece, float* packed) const {
    const Panel panel = panel_at(piece.panel);
    const std::int64_t row_bytes = p_.in * static_cast<std::int64_t>(size_of(panel.dtype));
    for (std::int64_t half = 0; half < kernels_.panel; half += kernels_.lanes) {
      std::array<const void*, kMostLanes> rows;
      for (std::int64_t r = 0; r < kernels_.lanes; ++r) {
        rows[static_cast<std::size_t>(r)] = panel.data + std::min(half + r, panel.rows - 1) * row_bytes;
      }
      kernels_.pack({.rows = rows.data(),
                     .dtype = panel.dtype,
                     .first = piece.k,
                     .count = depth_at(piece.k),
                     .dst = packed + half,
                     .pitch = kernels_.panel});
    }
  }

  /// While a piece is multiplied, the next one is fetched from memory.
  void multiply_piece(const Tiles& tiles, std::int64_t k, const Piece& next, const float* packed, float* sums) const {
    for (std::int64_t tile = tiles.first; tile < tiles.end; ++tile) {
      const std::int64_t rows = tiles_.rows(tile);
      kernels_.gemm_tile({.x = x_ + (tile * p_.in + k) * kernels_.lanes,
                          .x_pitch = kernels_.lanes,
                          .w = packed,
                          .w_pitch = kernels_.panel,
                          .c = sums,
                          .c_pitch = kernels_.panel,
                          .rows = rows,
                          .k = depth_at(k),
                          .first = k == 0,
                          .prefetch = share_of_prefetch(next, tile - tiles.first, tiles.end - tiles.first)});
      sums += rows * kernels_.panel;
    }
  }

  /// The lines of `next` that the given one of `num_tiles` register tiles prefetches.
  PrefetchBlock share_of_prefetch(const Piece& next, std::int64_t tile, std::int64_t num_tiles) const {
    constexpr std::int64_t kLine = 64;
    if (next.panel >= num_panels_) return {};
    const Panel panel = panel_at(next.panel);
    const auto size = static_cast<std::int64_t>(size_of(panel.dtype));
    const std::int64_t row_bytes = p_.in * size;
    const std::int64_t lines = panel.rows * ceil_div(depth_at(next.k) * size, kLine);
    const std::int64_t strides = ceil_div(blocking_.depth, kPrefetchStride);
    const std::int64_t lines_per_stride = ceil_div(lines, num_tiles * strides);
    const std::int64_t first_line = tile * strides * lines_per_stride;
    if (first_line >= lines) return {};
    const std::byte* column = panel.data + next.k * size + first_line / panel.rows * kLine;
    return {.first = column + first_line % panel.rows * row_bytes,
            .column_end = column + panel.rows * row_bytes,
            .row_bytes = row_bytes,
            .column_bytes = panel.rows * row_bytes,
            .lines_per_stride = lines_per_stride};
  }

  void write_panel(const Tiles& tiles, const Panel& panel, const float* sums) const {
    for (std::int64_t token = tiles_.first_row(tiles.first); token < tiles_.first_row(tiles.end); ++token) {
      write_row(token, panel.out_column, panel.rows, sums);
      sums += kernels_.panel;
    }
  }

  void write_row(std::int64_t token, std::int64_t column, std::int64_t count, const float* sums) const {
    const float* bias = biases_ == nullptr ? nullptr : biases_ + column;
    kernels_.write_out(sums, bias, count, p_.accumulate, p_.out + token * p_.out_stride + column);
  }

  const CpuKernels& kernels_;
  ThreadPool& threads_;
  const LinearParams& p_;
  RowTiles tiles_;
  std::int64_t num_panels_ = 0;
  std::int64_t out_features_ = 0;
  Blocking blocking_;
  const float* x_ = nullptr;
  const float* biases_ = nullptr;
};

}  // namespace

Status cpu_linear(const CpuKernels& kernels, ThreadPool& threads, ScratchPool& scratch, const LinearParams& params) {
  if (params.num_tokens == 0) return {};
  return Linear(kernels, threads, params).run(scratch);
}

}  // namespace pagoda::kernels
