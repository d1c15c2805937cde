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
      for (std::int64_t panel = first_panel; panel < end_panel; panel += blocking_.block_panels) {
        multiply_block(tiles, panel, std::min(end_panel, panel + blocking_.block_panels),
                       workspaces[static_cast<std::size_t>(thread)]);
      }
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

  /// Some rows of one weight matrix, at most a panel.
  struct Panel {
    const std::byte* data = nullptr;  ///< of the first row
    DType dtype = DType::f32;
    std::int64_t rows = 0;
    std::int64_t out_column = 0;
  };

  bool packs_x() const { return p_.num_tokens > 1; }
  std::int64_t x_pitch() const { return packs_x() ? kernels_.lanes : 1; }
  std::int64_t sums_floats() const {
    return blocking_.block_panels * blocking_.block_rows * tiles_.most_rows() * kernels_.panel;
  }

  void choose_blocking() {
    constexpr std::int64_t kDepth = 256;
    constexpr std::int64_t kMostRows = 256;
    constexpr std::int64_t kMostPanels = 8;
    constexpr std::int64_t kTasksPerThread = 4;
    blocking_.depth = std::min(p_.in, kDepth);
    const std::int64_t row_blocks = std::max<std::int64_t>(1, ceil_div(p_.num_tokens, kMostRows));
    blocking_.block_rows = std::max<std::int64_t>(1, ceil_div(tiles_.count(), row_blocks));
    const std::int64_t wanted_chunks = ceil_div(threads_.num_threads() * kTasksPerThread, row_blocks);
    blocking_.task_panels = std::clamp<std::int64_t>(num_panels_ / wanted_chunks, 1, kMostPanels);
    blocking_.block_panels = p_.num_tokens <= kernels_.max_rows * 4 ? 1 : blocking_.task_panels;
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

  void multiply_block(const Tiles& tiles, std::int64_t first_panel, std::int64_t end_panel,
                      const Workspace& work) const {
    const std::int64_t rows =
        tiles_.first_row(tiles.end - 1) + tiles_.rows(tiles.end - 1) - tiles_.first_row(tiles.first);
    const std::int64_t sums_of_panel = rows * kernels_.panel;
    for (std::int64_t k = 0; k < p_.in; k += blocking_.depth) {
      const std::int64_t depth = std::min(blocking_.depth, p_.in - k);
      for (std::int64_t index = first_panel; index < end_panel; ++index) {
        pack_panel(panel_at(index), k, depth, work.packed);
        multiply_panel(tiles, k, depth, work.packed, work.sums + (index - first_panel) * sums_of_panel);
      }
    }
    for (std::int64_t index = first_panel; index < end_panel; ++index) {
      write_panel(tiles, panel_at(index), work.sums + (index - first_panel) * sums_of_panel);
    }
  }

  void pack_panel(const Panel& panel, std::int64_t k, std::int64_t depth, float* packed) const {
    const std::int64_t size = static_cast<std::int64_t>(size_of(panel.dtype));
    const std::int64_t row_bytes = p_.in * size;
    const bool last = k + depth == p_.in;
    // What this thread needs next: the following columns of the same rows, or the first columns of the next panel.
    const std::int64_t next = last ? kernels_.panel * row_bytes - k * size : depth * size;
    for (std::int64_t half = 0; half < kernels_.panel; half += kernels_.lanes) {
      std::array<const void*, kMostLanes> rows;
      for (std::int64_t r = 0; r < kernels_.lanes; ++r) {
        rows[static_cast<std::size_t>(r)] = panel.data + std::min(half + r, panel.rows - 1) * row_bytes;
      }
      kernels_.pack({.rows = rows.data(),
                     .dtype = panel.dtype,
                     .first = k,
                     .count = depth,
                     .dst = packed + half,
                     .pitch = kernels_.panel,
                     .prefetch_bytes = next});
    }
  }

  void multiply_panel(const Tiles& tiles, std::int64_t k, std::int64_t depth, const float* packed, float* sums) const {
    for (std::int64_t tile = tiles.first; tile < tiles.end; ++tile) {
      const std::int64_t rows = tiles_.rows(tile);
      kernels_.gemm_tile({.x = (packs_x() ? x_ + tile * p_.in * kernels_.lanes : p_.x) + k * x_pitch(),
                          .x_pitch = x_pitch(),
                          .w = packed,
                          .w_pitch = kernels_.panel,
                          .c = sums,
                          .c_pitch = kernels_.panel,
                          .rows = rows,
                          .k = depth,
                          .first = k == 0});
      sums += rows * kernels_.panel;
    }
  }

  void write_panel(const Tiles& tiles, const Panel& panel, const float* sums) const {
    const float* bias = biases_ == nullptr ? nullptr : biases_ + panel.out_column;
    const std::int64_t first = tiles_.first_row(tiles.first);
    const std::int64_t end = tiles_.first_row(tiles.end - 1) + tiles_.rows(tiles.end - 1);
    for (std::int64_t row = first; row < end; ++row) {
      kernels_.write_out(sums, bias, panel.rows, p_.accumulate, p_.out + row * p_.out_stride + panel.out_column);
      sums += kernels_.panel;
    }
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
