#include "kernels/cpu/matrix_stream.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "kernels/cpu/banded_product.hpp"
#include "kernels/cpu/matrix_kernels.hpp"
#include "kernels/cpu/row_tiles.hpp"

namespace pagoda::kernels {
namespace {

constexpr std::int64_t kTasksPerThread = 4;
constexpr std::int64_t kFloatBytes = sizeof(float);

/// The product of few rows of x and bfloat16 weights. Weights are the rows of tiles, so that they are read as they are
/// stored, and the sums are transposed.
class StreamedProduct {
 public:
  StreamedProduct(const CpuKernels& kernels, ThreadPool& threads, const LinearParams& p)
      : kernels_(kernels),
        threads_(threads),
        p_(p),
        product_(p, band_rows(threads, p)),
        columns_(std::min<std::int64_t>(p.num_tokens, kernels.lanes)),
        tiles_(ceil_div(p.num_tokens, columns_)),
        pairs_(ceil_div(p.in, kMatrixStep) * kMatrixStep / 2) {}

  Status run(ScratchPool& pool) {
    const int num_threads = threads_.num_threads();
    const std::int64_t x_floats = tiles_ * columns_ * pairs_;
    const std::int64_t sums_floats = tiles_ * kMatrixBand * columns_;
    const std::int64_t rest_floats = kMatrixBand * kMatrixLine / kFloatBytes;
    auto scratch = pool.borrow(2 * x_floats + product_.out_features() + num_threads * (sums_floats + rest_floats),
                               3 + 2 * num_threads);
    if (!scratch) return fail(std::move(scratch.error()));

    pack_x(scratch->floats(x_floats), scratch->floats(x_floats));
    product_.set_biases(kernels_, scratch->floats(product_.out_features()));
    std::vector<Workspace> workspaces;
    for (int thread = 0; thread < num_threads; ++thread) {
      workspaces.push_back({scratch->floats(sums_floats), reinterpret_cast<std::byte*>(scratch->floats(rest_floats))});
    }
    const std::int64_t bands =
        std::max<std::int64_t>(1, product_.num_bands() / (kTasksPerThread * threads_.num_threads()));
    threads_.parallel_for(ceil_div(product_.num_bands(), bands), [&](std::int64_t task, int thread) {
      const std::int64_t end = std::min(product_.num_bands(), (task + 1) * bands);
      for (std::int64_t band = task * bands; band < end; ++band) {
        multiply(product_.band(band), workspaces[static_cast<std::size_t>(thread)]);
      }
    });
    return {};
  }

 private:
  struct Workspace {
    float* sums = nullptr;      ///< [tiles, kMatrixBand, columns]
    std::byte* rest = nullptr;  ///< [kMatrixBand, kMatrixLine]
  };

  /// With few bands for each thread, they are half as large, so that no thread waits long at the end.
  static std::int64_t band_rows(const ThreadPool& threads, const LinearParams& p) {
    std::int64_t rows = 0;
    for (const WeightMatrix& weight : p.weights) rows += weight.rows;
    return rows < kMatrixBand * kTasksPerThread * threads.num_threads() ? kMatrixPanel : kMatrixBand;
  }

  std::int64_t row_bytes() const { return p_.in * kMatrixBf16Bytes; }

  /// Rounds x to bfloat16, and packs it: x_ is [tile, pair of columns, row of x in the tile]. Both buffers have room
  /// for all tiles. A single row needs no packing.
  void pack_x(float* rounded, float* packed) {
    constexpr std::int64_t kPieceColumns = 512;  // whole steps
    const std::int64_t pieces = ceil_div(p_.in, kPieceColumns);
    const auto pack_piece = [=, this](std::int64_t task) {
      const std::int64_t tile = task / pieces;
      const std::int64_t first = task % pieces * kPieceColumns;
      const std::int64_t columns = std::min(kPieceColumns, p_.in - first);
      const std::int64_t pairs = ceil_div(columns, kMatrixStep) * kMatrixStep / 2;
      std::array<const float*, kMaxLanes> rows{};
      for (std::int64_t r = 0; r < columns_; ++r) {
        const std::int64_t m = std::min(tile * columns_ + r, p_.num_tokens - 1);  // repeats the last row
        float* const to = rounded + (tile * columns_ + r) * pairs_ + first / 2;
        kernels_.narrow(p_.x + m * p_.in + first, columns, DType::bf16, to);
        std::memset(reinterpret_cast<std::byte*>(to) + columns * kMatrixBf16Bytes, 0,
                    static_cast<std::size_t>(pairs * kFloatBytes - columns * kMatrixBf16Bytes));
        rows[static_cast<std::size_t>(r)] = to;
      }
      if (columns_ > 1) transpose(rows, pairs, packed + (tile * pairs_ + first / 2) * columns_);
    };
    constexpr std::int64_t kFewFloats = 8192;  // less work does not pay for the hand-over to another thread
    if (p_.num_tokens * p_.in <= kFewFloats) {
      for (std::int64_t task = 0; task < tiles_ * pieces; ++task) pack_piece(task);
    } else {
      threads_.parallel_for(tiles_ * pieces, pack_piece);
    }
    x_ = columns_ > 1 ? packed : rounded;
  }

  /// to[i, r] = rows[r][i] for r < columns_ and i < count, a multiple of lanes.
  void transpose(std::array<const float*, kMaxLanes>& rows, std::int64_t count, float* to) const {
    const auto lanes = static_cast<std::int64_t>(kernels_.lanes);
    if (columns_ == lanes) return kernels_.pack({.rows = rows.data(), .count = count, .dst = to});
    std::fill(rows.begin() + columns_, rows.end(), rows[0]);
    for (std::int64_t first = 0; first < count; first += lanes) {
      float square[kMaxLanes * kMaxLanes];
      std::array<const float*, kMaxLanes> square_rows = rows;
      for (const float*& row : square_rows) row += first;
      kernels_.pack({.rows = square_rows.data(), .count = lanes, .dst = square});
      for (std::int64_t i = 0; i < lanes; ++i) std::copy_n(square + i * lanes, columns_, to + (first + i) * columns_);
    }
  }

  /// Multiplies a band by all rows of x.
  void multiply(const Band<WeightMatrix>& band, const Workspace& work) const {
    const std::byte* const w = static_cast<const std::byte*>(band.weight->data) + band.first_row * row_bytes();
    const std::int64_t whole_bytes = p_.in / kMatrixStep * kMatrixLine;
    const std::int64_t rest_bytes = row_bytes() - whole_bytes;
    if (rest_bytes > 0) {
      std::memset(work.rest, 0, kMatrixBand * kMatrixLine);
      for (std::int64_t r = 0; r < band.rows; ++r) {
        std::memcpy(work.rest + r * kMatrixLine, w + r * row_bytes() + whole_bytes,
                    static_cast<std::size_t>(rest_bytes));
      }
    }
    kernels_.matrix.stream({.w = w,
                            .w_row_bytes = row_bytes(),
                            .w_rows = band.rows,
                            .steps = p_.in / kMatrixStep,
                            .rest = rest_bytes > 0 ? work.rest : nullptr,
                            .x = x_,
                            .x_tile_floats = columns_ * pairs_,
                            .tiles = tiles_,
                            .columns = columns_,
                            .sums = work.sums});
    for (std::int64_t tile = 0; tile < tiles_; ++tile) {
      write(band, tile * columns_, work.sums + tile * kMatrixBand * columns_);
    }
  }

  /// Writes the results of a tile of x, whose sums are [row of weights, row of x].
  void write(const Band<WeightMatrix>& band, std::int64_t first_row, const float* sums) const {
    const auto lanes = static_cast<std::int64_t>(kernels_.lanes);
    const std::int64_t rows = std::min(columns_, p_.num_tokens - first_row);
    for (std::int64_t n = 0; n < band.rows; n += lanes) {
      // columns_ rows of `lanes` results; or, if there are fewer columns than lanes, the results of one row at a time.
      float results[kMaxLanes * kMaxLanes];
      std::array<const float*, kMaxLanes> square{};
      if (columns_ == lanes) {
        for (std::int64_t i = 0; i < lanes; ++i) square[static_cast<std::size_t>(i)] = sums + (n + i) * columns_;
        kernels_.pack({.rows = square.data(), .count = lanes, .dst = results});
      } else {
        for (std::int64_t i = 0; i < lanes; ++i) {
          for (std::int64_t r = 0; r < rows; ++r) results[r * lanes + i] = sums[(n + i) * columns_ + r];
        }
      }
      const std::int64_t count = std::min(lanes, band.rows - n);
      for (std::int64_t r = 0; r < rows; ++r) {
        product_.write(first_row + r, band.out_column + n, count, results + r * lanes);
      }
    }
  }

  const CpuKernels& kernels_;
  ThreadPool& threads_;
  const LinearParams& p_;
  BandedProduct<LinearParams> product_;
  std::int64_t columns_;  ///< rows of x in a tile
  std::int64_t tiles_;    ///< tiles of x
  std::int64_t pairs_;    ///< pairs of columns, padded to whole steps
  const float* x_ = nullptr;
};

}  // namespace

Status cpu_matrix_stream(const CpuKernels& kernels, ThreadPool& threads, ScratchPool& scratch,
                         const LinearParams& params) {
  return StreamedProduct(kernels, threads, params).run(scratch);
}

}  // namespace pagoda::kernels
