#include "kernels/cpu/quantized_linear.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/cpu/biases.hpp"
#include "kernels/cpu/matrix_linear.hpp"
#include "kernels/cpu/row_tiles.hpp"

namespace pagoda::kernels {
namespace {

/// Columns of a block. A block of the weights of a tile, and of its rows of x, stays in the first-level cache while all
/// tiles of x are multiplied by these weights.
constexpr std::int64_t kBlockColumns = 512;
/// Columns of a block if there is only one tile of x. No data is reused from the cache then, and longer blocks need
/// fewer calls.
constexpr std::int64_t kOneTileBlockColumns = 2048;
static_assert(kBlockColumns % kTwoLevelColumns == 0 && kOneTileBlockColumns % kTwoLevelColumns == 0);
/// Maximum rows of x in a task; their part of a block stays in the second-level cache.
constexpr std::int64_t kMaxRows = 512;
/// Up to this number of rows, the last tasks have single panels. With more rows, bands of fewer panels cost more than
/// threads wait at the end.
constexpr std::int64_t kFewRows = 64;
constexpr std::int64_t kLine = 64;

class QuantizedLinear {
 public:
  QuantizedLinear(const CpuKernels& kernels, ThreadPool& threads, const QuantizedLinearParams& p)
      : kernels_(kernels),
        threads_(threads),
        p_(p),
        format_(p.weights.front().format),
        groups_(p.weights.front().groups()),
        padded_in_(p.weights.front().padded_columns()),
        column_bytes_(format_.value_bits() == 8 && !format_.pairs_bounded() ? kernels.quantized.bytes_at_8_bits : 1),
        x_stride_(padded_in_ * column_bytes_),
        one_tile_(p.num_tokens <= kernels.quantized.rows),
        groups_per_block_((one_tile_ ? kOneTileBlockColumns : kBlockColumns) / format_.group_size),
        num_blocks_(ceil_div(groups_, groups_per_block_)),
        row_blocks_(p.num_tokens, kMaxRows) {
    choose_tasks();
  }

  Status run(ScratchPool& pool) {
    const std::int64_t rows = p_.num_tokens;
    const int num_threads = threads_.num_threads();
    const std::int64_t band_columns = kernels_.quantized.panels * kQuantizedPanel;
    const std::int64_t sums_floats = row_blocks_.rows(0) * band_columns;
    const std::int64_t unpacked_floats =
        one_tile_ ? 0 : band_columns * groups_per_block_ * format_.group_size * column_bytes_ / 4;
    const std::int64_t floats_per_group = format_.asymmetric ? 3 : 2;
    const std::int64_t affine_sums = format_.affine && one_tile_ ? padded_in_ / kAffineColumns : 0;
    auto scratch = pool.borrow(rows * (x_stride_ / 4 + floats_per_group * groups_ + affine_sums) + out_features_ +
                                   num_threads * (sums_floats + unpacked_floats),
                               6 + 2 * num_threads);
    if (!scratch) return fail(std::move(scratch.error()));

    x_ = reinterpret_cast<std::int8_t*>(scratch->floats(rows * x_stride_ / 4));
    x_scales_ = scratch->floats(rows * groups_);
    x_offsets_ = reinterpret_cast<std::int32_t*>(scratch->floats(rows * groups_));
    if (format_.asymmetric) x_sums_ = scratch->floats(rows * groups_);
    if (affine_sums > 0) x_affine_sums_ = scratch->floats(rows * affine_sums);
    quantize_x();
    biases_ = widened_biases(kernels_, p_, scratch->floats(out_features_));
    std::vector<Workspace> workspaces;
    for (int thread = 0; thread < num_threads; ++thread) {
      workspaces.push_back(
          {scratch->floats(sums_floats), reinterpret_cast<std::uint8_t*>(scratch->floats(unpacked_floats))});
    }

    const std::int64_t chunks = std::ssize(first_bands_) - 1;
    threads_.parallel_for(row_blocks_.count() * chunks, [&](std::int64_t task, int thread) {
      const auto chunk = static_cast<std::size_t>(task % chunks);
      const std::int64_t end_band = first_bands_[chunk + 1];
      for (std::int64_t band = first_bands_[chunk]; band < end_band; ++band) {
        multiply(task / chunks, band, band + 1 < end_band, workspaces[static_cast<std::size_t>(thread)]);
      }
    });
    return {};
  }

 private:
  /// Adjacent panels of one weight matrix, at most as many as a tile takes.
  struct Band {
    const QuantizedMatrix* weight = nullptr;
    std::int64_t first_panel = 0;
    std::int64_t panels = 0;
    std::int64_t part_column = 0;  ///< output column where the matrix starts
  };

  struct Workspace {
    float* sums = nullptr;             ///< [rows of a row block, columns of a band]
    std::uint8_t* unpacked = nullptr;  ///< [panels of a band, one block]
  };

  /// Divides the panels of all weights into bands, and the bands into chunks. Each chunk gets half of a thread's
  /// equal share of the panels that are left. So the first chunks are large, and the last ones so small that no thread
  /// waits long at the end.
  void choose_tasks() {
    const std::int64_t band_panels = kernels_.quantized.panels;
    const std::int64_t num_threads = threads_.num_threads();
    std::int64_t left = 0;
    for (const QuantizedMatrix& weight : p_.weights) left += weight.panels();
    std::int64_t left_in_chunk = 0;
    for (const QuantizedMatrix& weight : p_.weights) {
      for (std::int64_t panel = 0; panel < weight.panels();) {
        if (left_in_chunk == 0) {
          const std::int64_t num_bands = left / (2 * num_threads) / band_panels;
          const bool is_single = p_.num_tokens <= kFewRows && left <= num_threads * band_panels;
          left_in_chunk = is_single ? 1 : std::max<std::int64_t>(1, num_bands) * band_panels;
          first_bands_.push_back(std::ssize(bands_));
        }
        const std::int64_t panels = std::min({band_panels, weight.panels() - panel, left_in_chunk});
        bands_.push_back({&weight, panel, panels, out_features_});
        panel += panels;
        left -= panels;
        left_in_chunk -= panels;
      }
      out_features_ += weight.rows;
    }
    first_bands_.push_back(std::ssize(bands_));
  }

  void quantize_x() {
    const auto quantize_row = [this](std::int64_t row) {
      kernels_.quantized.quantize_row({.x = p_.x + row * p_.in,
                                       .order = p_.weights.front().order,
                                       .columns = p_.in,
                                       .group_size = format_.group_size,
                                       .rotated = format_.rotated,
                                       .zero_point = format_.zero_point(),
                                       .value_bits = format_.value_bits(),
                                       .pairs_bounded = format_.pairs_bounded(),
                                       .q = x_ + row * x_stride_,
                                       .scales = x_scales_ + row * groups_,
                                       .offsets = x_offsets_ + row * groups_,
                                       .sums = x_sums_ == nullptr ? nullptr : x_sums_ + row * groups_,
                                       .affine_sums = affine_sums_of(row, 0)});
    };
    constexpr std::int64_t kFewFloats = 16384;  // less work does not pay for the hand-over to another thread
    if (p_.num_tokens * padded_in_ <= kFewFloats) {
      for (std::int64_t row = 0; row < p_.num_tokens; ++row) quantize_row(row);
    } else {
      threads_.parallel_for(p_.num_tokens, quantize_row);
    }
  }

  /// Returns the sums of a row of x that affine weights need, from a group on; null if there are none.
  float* affine_sums_of(std::int64_t row, std::int64_t group) const {
    if (x_affine_sums_ == nullptr) return nullptr;
    return x_affine_sums_ + (row * padded_in_ + group * format_.group_size) / kAffineColumns;
  }

  const std::uint8_t* data_of(const Band& band, std::int64_t block) const {
    return band.weight->data + band.first_panel * band.weight->panel_bytes() +
           block * groups_per_block_ * kQuantizedPanel * format_.group_size * format_.bits / 8;
  }

  /// Returns the factors of a band from a group on; null if the format has none.
  const std::int8_t* factors_of(const Band& band, std::int64_t group) const {
    const std::int64_t columns = format_.factor_columns();
    if (columns == 0) return nullptr;
    return band.weight->factors + band.first_panel * band.weight->panel_factors() +
           group * format_.group_size / columns * band.weight->shared_factors();
  }

  /// Returns the weights after a block of a band; null at the end of a task.
  const std::uint8_t* data_after(std::int64_t band, std::int64_t block, bool another_band) const {
    if (block + 1 < num_blocks_) return data_of(bands_[static_cast<std::size_t>(band)], block + 1);
    return another_band ? data_of(bands_[static_cast<std::size_t>(band) + 1], 0) : nullptr;
  }

  /// Multiplies all rows of a row block by a band, block of columns by block of columns.
  void multiply(std::int64_t row_block, std::int64_t index, bool another_band, const Workspace& work) const {
    const Band& band = bands_[static_cast<std::size_t>(index)];
    const std::int64_t first_row = row_blocks_.first_row(row_block);
    const RowTiles tiles(row_blocks_.rows(row_block), kernels_.quantized.rows);
    const std::int64_t columns = band.panels * kQuantizedPanel;
    const bool unpacks = (format_.bits < 8 || column_bytes_ > 1) && tiles.count() > 1;
    const std::int64_t lines = (kQuantizedPanel * format_.group_size * format_.bits / 8 + kLine - 1) / kLine;
    for (std::int64_t block = 0; block < num_blocks_; ++block) {
      const std::int64_t first_group = block * groups_per_block_;
      const std::int64_t first_scale =
          band.first_panel * band.weight->panel_scales() +
          first_group * format_.group_size / band.weight->scale_columns() * kQuantizedPanel;
      QuantizedTileArgs args{.x_stride = x_stride_,
                             .group_stride = groups_,
                             .w = data_of(band, block),
                             .w_stride = band.weight->panel_bytes(),
                             .w_scales = band.weight->scales + first_scale,
                             .w_mins = format_.asymmetric ? band.weight->mins + first_scale : nullptr,
                             .w_scale_stride = band.weight->panel_scales(),
                             .w_factors = format_.two_level_scales ? factors_of(band, first_group) : nullptr,
                             .w_affine = format_.affine ? factors_of(band, first_group) : nullptr,
                             .w_factor_stride = band.weight->panel_factors(),
                             .panels = band.panels,
                             .num_groups = std::min(groups_per_block_, groups_ - first_group),
                             .group_size = format_.group_size,
                             .bits = format_.bits,
                             .codebook = format_.codebook,
                             .pairs_bounded = format_.pairs_bounded(),
                             .starts_at_zero = block == 0,
                             .ahead = data_after(index, block, another_band),
                             .ahead_stride = band.weight->panel_bytes(),
                             .ahead_group_bytes = kQuantizedPanel * format_.group_size * format_.bits / 8};
      if (unpacks) unpack(args, work.unpacked);
      for (std::int64_t tile = 0; tile < tiles.count(); ++tile) {
        const std::int64_t row = first_row + tiles.first_row(tile);
        args.x = x_ + row * x_stride_ + first_group * format_.group_size * column_bytes_;
        args.x_scales = x_scales_ + row * groups_ + first_group;
        args.x_offsets = x_offsets_ + row * groups_ + first_group;
        if (format_.asymmetric) args.x_sums = x_sums_ + row * groups_ + first_group;
        args.x_affine_sums = affine_sums_of(row, first_group);
        args.rows = tiles.rows(tile);
        args.sums = work.sums + tiles.first_row(tile) * columns;
        args.first_line = tile * lines / tiles.count();
        args.end_line = (tile + 1) * lines / tiles.count();
        kernels_.quantized.tile(args);
      }
    }
    for (std::int64_t row = 0; row < row_blocks_.rows(row_block); ++row) {
      write_row(work.sums + row * columns, band, first_row + row);
    }
  }

  /// Unpacks the weights of `args` to scratch and makes `args` read them from there.
  void unpack(QuantizedTileArgs& args, std::uint8_t* unpacked) const {
    const std::int64_t columns = args.num_groups * args.group_size;
    const std::int64_t stride = kQuantizedPanel * columns * column_bytes_;
    for (std::int64_t panel = 0; panel < args.panels; ++panel) {
      kernels_.quantized.unpack({args.bits, args.codebook, args.w + panel * args.w_stride,
                                 args.w_affine == nullptr ? nullptr : args.w_affine + panel * args.w_factor_stride,
                                 columns, unpacked + panel * stride});
    }
    args.w = unpacked;
    args.w_affine = nullptr;
    args.w_stride = stride;
    args.unpacked = true;
  }

  void write_row(const float* sums, const Band& band, std::int64_t row) const {
    const std::int64_t first = band.first_panel * kQuantizedPanel;
    const std::int64_t columns = std::min(band.panels * kQuantizedPanel, band.weight->rows - first);
    float* out = p_.out + row * p_.out_stride + band.part_column + first;
    const float* bias = biases_ == nullptr ? nullptr : biases_ + band.part_column + first;
    for (std::int64_t n = 0; n < columns; ++n) {
      const float result = bias == nullptr ? sums[n] : sums[n] + bias[n];
      out[n] = p_.accumulate ? out[n] + result : result;
    }
  }

  const CpuKernels& kernels_;
  ThreadPool& threads_;
  const QuantizedLinearParams& p_;
  QuantizedFormat format_;
  std::int64_t groups_;
  std::int64_t padded_in_;
  std::int64_t column_bytes_;  ///< bytes per column of x, and per unpacked weight
  std::int64_t x_stride_;
  bool one_tile_;  ///< whether there is only one tile of x
  std::int64_t groups_per_block_;
  std::int64_t num_blocks_;
  RowTiles row_blocks_;
  std::vector<Band> bands_;
  std::vector<std::int64_t> first_bands_;  ///< first band of each chunk, and the number of bands
  std::int64_t out_features_ = 0;
  std::int8_t* x_ = nullptr;           ///< [num_tokens, padded_in, column_bytes]
  float* x_scales_ = nullptr;          ///< [num_tokens, groups]
  std::int32_t* x_offsets_ = nullptr;  ///< [num_tokens, groups]
  float* x_sums_ = nullptr;            ///< [num_tokens, groups]; only if the weights have minimums
  float* x_affine_sums_ = nullptr;  ///< [num_tokens, padded_in / kAffineColumns]; only with affine weights and one tile
  const float* biases_ = nullptr;
};

}  // namespace

Status cpu_quantized_linear(const CpuKernels& kernels, ThreadPool& threads, ScratchPool& scratch,
                            const QuantizedLinearParams& params) {
  if (params.num_tokens == 0) return {};
  if (uses_matrix_unit(kernels, params)) return cpu_matrix_linear(kernels, threads, scratch, params);
  return QuantizedLinear(kernels, threads, params).run(scratch);
}

}  // namespace pagoda::kernels
