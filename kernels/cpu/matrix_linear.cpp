#include "kernels/cpu/matrix_linear.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

#include "kernels/cpu/banded_product.hpp"
#include "kernels/cpu/matrix_kernels.hpp"
#include "kernels/cpu/matrix_stream.hpp"
#include "kernels/cpu/row_tiles.hpp"

namespace pagoda::kernels {
namespace {

/// Up to this number of rows of x, bfloat16 weights are read as they are stored, and each strip of x reads a band
/// again: x and the band must then stay in the second-level cache.
constexpr std::int64_t kMostStreamedRows = 256;
constexpr std::int64_t kMostStreamedBytes = std::int64_t{2} << 20;
/// Columns of a block, unless groups require more. A block of a band, and of a strip of x, stay in the first-level
/// cache.
constexpr std::int64_t kBlockColumns = 256;
/// Maximum rows of x in a task. Their part of a block, and their sums, stay in the second-level cache.
constexpr std::int64_t kMaxRows = 512;
/// Maximum bands of a task. All are multiplied by a block of columns of x before the next block.
constexpr std::int64_t kMaxBands = 8;
constexpr std::int64_t kTasksPerThread = 4;
constexpr std::int64_t kFloatBytes = sizeof(float);

/// The product of many rows of x. Rows of x are the rows of tiles, and are copied so that each tile is contiguous. So
/// is each block of columns of a band: bfloat16 weights are packed, quantised weights unpacked to bytes.
template <class Params>
class BlockedProduct {
  using Matrix = typename BandedProduct<Params>::Matrix;
  static constexpr bool kQuantized = std::is_same_v<Params, QuantizedLinearParams>;

 public:
  BlockedProduct(const CpuKernels& kernels, ThreadPool& threads, const Params& p)
      : kernels_(kernels),
        threads_(threads),
        p_(p),
        product_(p, kMatrixBand),
        row_blocks_(p.num_tokens, kMaxRows, kMatrixStripRows),
        strips_(ceil_div(p.num_tokens, kMatrixStripRows)) {
    if constexpr (kQuantized) {
      const QuantizedMatrix& weight = p.weights.front();
      group_size_ = weight.format.group_size;
      groups_ = weight.groups();
      piece_columns_ = quantized_matrix_step(group_size_);
    }
    block_columns_ = std::max(group_size_, kBlockColumns / group_size_ * group_size_);
    columns_ = ceil_div(p.in, group_size_) * group_size_;
    const std::int64_t tasks = kTasksPerThread * threads.num_threads();
    task_bands_ = std::clamp<std::int64_t>(product_.num_bands() * row_blocks_.count() / tasks, 1, kMaxBands);
  }

  Status run(ScratchPool& pool) {
    if constexpr (kQuantized) PAGODA_ASSERT(kernels_.quantized.bytes_at_8_bits == 1, "x has a byte for each column");
    const int num_threads = threads_.num_threads();
    const std::int64_t x_floats = num_blocks() * strips_ * strip_bytes() / kFloatBytes;
    const std::int64_t scales = num_blocks() * strips_ * strip_scales();
    const std::int64_t row_floats = columns_ * element_bytes() / kFloatBytes + 3 * groups_;
    const std::int64_t sums_floats = task_bands_ * row_blocks_.largest_tile_rows() * kMatrixBand;
    const std::int64_t w_floats = kMatrixBand * block_columns_ * element_bytes() / kFloatBytes;
    const std::int64_t thread_floats = sums_floats + w_floats + row_floats;
    auto scratch =
        pool.borrow(x_floats + 2 * scales + product_.out_features() + num_threads * thread_floats, 4 + 3 * num_threads);
    if (!scratch) return fail(std::move(scratch.error()));

    x_ = reinterpret_cast<std::byte*>(scratch->floats(x_floats));
    x_scales_ = scratch->floats(scales);
    x_sums_ = scratch->floats(scales);
    product_.set_biases(kernels_, scratch->floats(product_.out_features()));
    std::vector<Workspace> workspaces;
    for (int thread = 0; thread < num_threads; ++thread) {
      workspaces.push_back({scratch->floats(sums_floats), reinterpret_cast<std::byte*>(scratch->floats(w_floats)),
                            scratch->floats(row_floats)});
    }
    // Rows of a tile share cache lines of its scales, and small pieces share those of x.
    threads_.parallel_for(ceil_div(p_.num_tokens, kMatrixTileRows), [&](std::int64_t tile, int thread) {
      const std::int64_t end = std::min(p_.num_tokens, (tile + 1) * kMatrixTileRows);
      for (std::int64_t m = tile * kMatrixTileRows; m < end; ++m) {
        prepare_row(m, workspaces[static_cast<std::size_t>(thread)].row);
      }
    });
    const std::int64_t chunks = ceil_div(product_.num_bands(), task_bands_);
    threads_.parallel_for(row_blocks_.count() * chunks, [&](std::int64_t task, int thread) {
      const std::int64_t first = task % chunks * task_bands_;
      multiply(task / chunks, first, std::min(product_.num_bands(), first + task_bands_),
               workspaces[static_cast<std::size_t>(thread)]);
    });
    return {};
  }

 private:
  struct Workspace {
    float* sums = nullptr;   ///< [bands, rows of x, columns of the band]
    std::byte* w = nullptr;  ///< a block of a band
    float* row = nullptr;    ///< a row of x, and its scales
  };

  static constexpr std::int64_t element_bytes() { return kQuantized ? 1 : kMatrixBf16Bytes; }
  std::int64_t num_blocks() const { return ceil_div(columns_, block_columns_); }
  /// Returns the bytes of a block of columns of a strip of x, and the number of its scales.
  std::int64_t strip_bytes() const { return kMatrixStripRows * block_columns_ * element_bytes(); }
  std::int64_t strip_scales() const { return kQuantized ? kMatrixStripRows * (block_columns_ / group_size_) : 0; }

  /// Rounds or quantises row m of x to `row`, and copies it to its tile.
  void prepare_row(std::int64_t m, float* row) {
    const float* const x = p_.x + m * p_.in;
    auto* const bytes = reinterpret_cast<std::byte*>(row);
    if constexpr (kQuantized) {
      const QuantizedMatrix& weight = p_.weights.front();
      float* const scales = row + columns_ / kFloatBytes;
      auto* const offsets = reinterpret_cast<std::int32_t*>(scales + groups_);  // not used
      float* const sums = scales + 2 * groups_;
      kernels_.quantized.quantize_row({.x = x,
                                       .order = weight.order,
                                       .columns = p_.in,
                                       .group_size = group_size_,
                                       .rotated = weight.format.rotated,
                                       .zero_point = weight.format.zero_point(),
                                       .value_bits = weight.format.value_bits(),
                                       .pairs_bounded = weight.format.pairs_bounded(),
                                       .q = reinterpret_cast<std::int8_t*>(bytes),
                                       .scales = scales,
                                       .offsets = offsets,
                                       .sums = weight.format.asymmetric ? sums : nullptr});
      const std::int64_t block_groups = block_columns_ / group_size_;
      for (std::int64_t group = 0; group < groups_; ++group) {
        const std::int64_t at = (group / block_groups * strips_ + m / kMatrixStripRows) * strip_scales() +
                                group % block_groups * kMatrixStripRows + m % kMatrixStripRows;
        x_scales_[at] = scales[group];
        if (weight.format.asymmetric) x_sums_[at] = sums[group];
      }
    } else {
      kernels_.narrow(x, p_.in, DType::bf16, bytes);
      std::memset(bytes + p_.in * kMatrixBf16Bytes, 0, static_cast<std::size_t>((columns_ - p_.in) * kMatrixBf16Bytes));
    }
    const std::int64_t block_pieces = block_columns_ / piece_columns_;
    const std::int64_t piece_bytes = piece_columns_ * element_bytes();
    for (std::int64_t piece = 0; piece < columns_ / piece_columns_; ++piece) {
      std::byte* const to = x_ + (piece / block_pieces * strips_ + m / kMatrixStripRows) * strip_bytes() +
                            (piece % block_pieces * kMatrixStripRows + m % kMatrixStripRows) * piece_bytes;
      std::memcpy(to, bytes + piece * piece_bytes, static_cast<std::size_t>(piece_bytes));
    }
  }

  /// Multiplies some bands by a block of rows of x.
  void multiply(std::int64_t row_block, std::int64_t first_band, std::int64_t end_band, const Workspace& work) const {
    const std::int64_t first_row = row_blocks_.first_row(row_block);
    const std::int64_t rows = row_blocks_.rows(row_block);
    for (std::int64_t column = 0; column < columns_; column += block_columns_) {
      float* sums = work.sums;
      for (std::int64_t index = first_band; index < end_band; ++index, sums += rows * kMatrixBand) {
        multiply_block(product_.band(index), column, first_row, rows, work.w, sums);
      }
    }
    // Row after row, because the rows of the output are far apart.
    for (std::int64_t m = 0; m < rows; ++m) {
      const float* sums = work.sums;
      for (std::int64_t index = first_band; index < end_band; ++index, sums += rows * kMatrixBand) {
        const Band<Matrix>& band = product_.band(index);
        product_.write(first_row + m, band.out_column, band.rows, sums + m * band.panels() * kMatrixPanel);
      }
    }
  }

  void multiply_block(const Band<WeightMatrix>& band, std::int64_t column, std::int64_t first_row, std::int64_t rows,
                      std::byte* w, float* sums) const {
    const std::int64_t count = std::min(block_columns_, p_.in - column);
    const std::int64_t steps = ceil_div(count, kMatrixStep);
    const std::int64_t row_bytes = p_.in * kMatrixBf16Bytes;
    for (std::int64_t panel = 0; panel < band.panels(); ++panel) {
      const std::int64_t row = band.first_row + panel * kMatrixPanel;
      kernels_.matrix.pack(
          {.w = static_cast<const std::byte*>(band.weight->data) + row * row_bytes + column * kMatrixBf16Bytes,
           .row_bytes = row_bytes,
           .rows = std::min(kMatrixPanel, band.weight->rows - row),
           .columns = count,
           .panel = w + panel * steps * kMatrixTileBytes});
    }
    kernels_.matrix.multiply({.x = x_ + x_strip(column, first_row) * strip_bytes(),
                              .x_strip_bytes = strip_bytes(),
                              .rows = rows,
                              .w = w,
                              .w_panel_bytes = steps * kMatrixTileBytes,
                              .panels = band.panels(),
                              .steps = steps,
                              .sums = sums,
                              .starts_at_zero = column == 0});
  }

  void multiply_block(const Band<QuantizedMatrix>& band, std::int64_t column, std::int64_t first_row, std::int64_t rows,
                      std::byte* w, float* sums) const {
    const QuantizedMatrix& weight = *band.weight;
    const QuantizedFormat& format = weight.format;
    const std::int64_t count = std::min(block_columns_, groups_ * group_size_ - column);
    const void* bytes =
        weight.data + band.first_panel() * weight.panel_bytes() + column * kQuantizedPanel * format.bits / 8;
    std::int64_t panel_bytes = weight.panel_bytes();
    const std::int8_t* factors = nullptr;
    if (format.factor_columns() > 0) {
      factors = weight.factors + band.first_panel() * weight.panel_factors() +
                column / format.factor_columns() * weight.shared_factors();
    }
    if (format.bits < 8 || !format.asymmetric) {
      const auto* const data = static_cast<const std::uint8_t*>(bytes);
      for (std::int64_t panel = 0; panel < band.panels(); ++panel) {
        prepare_panel(format, data + panel * panel_bytes,
                      factors == nullptr ? nullptr : factors + panel * weight.panel_factors(), count,
                      w + panel * kQuantizedPanel * count);
      }
      bytes = w;
      panel_bytes = kQuantizedPanel * count;
    }
    const std::int64_t first_scale =
        band.first_panel() * weight.panel_scales() + column / weight.scale_columns() * kQuantizedPanel;
    const std::int64_t x = x_strip(column, first_row);
    kernels_.matrix.multiply_quantized({.x = reinterpret_cast<const std::int8_t*>(x_ + x * strip_bytes()),
                                        .x_strip_bytes = strip_bytes(),
                                        .x_scales = x_scales_ + x * strip_scales(),
                                        .x_sums = x_sums_ + x * strip_scales(),
                                        .scale_stride = strip_scales(),
                                        .rows = rows,
                                        .w = bytes,
                                        .w_panel_bytes = panel_bytes,
                                        .w_scales = weight.scales + first_scale,
                                        .w_mins = format.asymmetric ? weight.mins + first_scale : nullptr,
                                        .w_scale_stride = weight.panel_scales(),
                                        .w_factors = format.two_level_scales ? factors : nullptr,
                                        .w_factor_stride = weight.panel_factors(),
                                        .panels = band.panels(),
                                        .num_groups = count / group_size_,
                                        .group_size = group_size_,
                                        .sums = sums,
                                        .starts_at_zero = column == 0});
  }

  /// Makes bytes of some columns of a panel; in a symmetric format they are signed.
  void prepare_panel(const QuantizedFormat& format, const std::uint8_t* panel, const std::int8_t* factors,
                     std::int64_t columns, std::byte* to) const {
    auto* const unpacked = reinterpret_cast<std::uint8_t*>(to);
    if (format.bits < 8) {
      kernels_.quantized.unpack(
          {format.bits, format.codebook, panel, format.affine ? factors : nullptr, columns, unpacked});
      panel = unpacked;
    }
    if (format.asymmetric) return;
    kernels_.matrix.subtract(panel, kQuantizedPanel * columns, format.zero_point(), reinterpret_cast<std::int8_t*>(to));
  }

  /// Returns the index of a strip of a block of columns, of which there are strips_ for each block of columns.
  std::int64_t x_strip(std::int64_t column, std::int64_t first_row) const {
    return column / block_columns_ * strips_ + first_row / kMatrixStripRows;
  }

  const CpuKernels& kernels_;
  ThreadPool& threads_;
  const Params& p_;
  BandedProduct<Params> product_;
  RowTiles row_blocks_;
  std::int64_t strips_;                       ///< strips of kMatrixStripRows rows of x
  std::int64_t group_size_ = kMatrixStep;     ///< columns that are multiplied as a whole
  std::int64_t groups_ = 0;                   ///< groups of quantised columns
  std::int64_t piece_columns_ = kMatrixStep;  ///< columns of a row of a tile of x
  std::int64_t columns_ = 0;                  ///< columns of x, padded to whole groups and pieces
  std::int64_t block_columns_ = 0;
  std::int64_t task_bands_ = 1;
  std::byte* x_ = nullptr;     ///< [blocks of columns, strips, pieces, kMatrixStripRows, bytes of a piece]
  float* x_scales_ = nullptr;  ///< [blocks of columns, strips, groups, kMatrixStripRows], like the next one
  float* x_sums_ = nullptr;    ///< only used if the weights have minimums
};

}  // namespace

bool uses_matrix_unit(const CpuKernels& kernels, const LinearParams& params) {
  return has_matrix_unit(kernels) &&
         std::all_of(params.weights.begin(), params.weights.end(),
                     [](const WeightMatrix& weight) { return weight.dtype == DType::bf16; });
}

bool uses_matrix_unit(const CpuKernels& kernels, const QuantizedLinearParams& params) {
  return has_matrix_unit(kernels) && params.num_tokens >= kernels.matrix.min_quantized_rows &&
         params.weights.front().format.group_size >= kernels.matrix.min_quantized_group;
}

Status cpu_matrix_linear(const CpuKernels& kernels, ThreadPool& threads, ScratchPool& scratch,
                         const LinearParams& params) {
  const std::int64_t bytes = (params.num_tokens + kMatrixBand) * params.in * kMatrixBf16Bytes;
  const bool is_cached = params.num_tokens <= kMostStreamedRows && bytes <= kMostStreamedBytes;
  if (is_cached || params.num_tokens <= kMatrixStripRows) {
    return cpu_matrix_stream(kernels, threads, scratch, params);
  }
  return BlockedProduct<LinearParams>(kernels, threads, params).run(scratch);
}

Status cpu_matrix_linear(const CpuKernels& kernels, ThreadPool& threads, ScratchPool& scratch,
                         const QuantizedLinearParams& params) {
  return BlockedProduct<QuantizedLinearParams>(kernels, threads, params).run(scratch);
}

}  // namespace pagoda::kernels
