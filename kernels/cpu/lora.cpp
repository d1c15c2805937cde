#include "kernels/cpu/lora.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace pagoda::kernels {
namespace {

/// Sizes of a task: rows of x by rows of A, or rows of x by columns of out.
constexpr std::int64_t kTaskRows = 16;
constexpr std::int64_t kTaskRanks = 8;
constexpr std::int64_t kTaskColumns = 512;
/// Less work (multiply-adds) does not pay for the hand-over to another thread.
constexpr std::int64_t kFewProducts = 16384;

std::int64_t pieces_of(std::int64_t count, std::int64_t piece) {
  return (count + piece - 1) / piece;
}

/// First and last + 1 of a piece.
struct Range {
  std::int64_t first = 0;
  std::int64_t end = 0;

  std::int64_t count() const { return end - first; }
};

Range range_of(std::int64_t index, std::int64_t piece, std::int64_t count) {
  return {index * piece, std::min(count, (index + 1) * piece)};
}

/// All items of one op. Rows are first multiplied by each item's A into `shrunk`, then by its B.
class Lora {
 public:
  Lora(const CpuKernels& kernels, ThreadPool& threads, const LoraParams& p) : kernels_(kernels), threads_(threads) {
    items_.reserve(p.items.size());
    for (const LoraItem& item : p.items) {
      items_.push_back({item, shrunk_floats_});
      shrunk_floats_ += item.num_rows * item.rank;
      rows_ += item.num_rows;
      widest_ = std::max(widest_, item.out_features);
    }
  }

  Status run(ScratchPool& pool, const LoraParams& p) {
    auto scratch = pool.borrow(shrunk_floats_, 1);
    if (!scratch) return fail(std::move(scratch.error()));
    float* shrunk = scratch->floats(shrunk_floats_);
    for_pieces(
        p.token_ids == nullptr ? p.in : 1,  // tokens choose rows of the table
        [](const LoraItem& item) { return pieces_of(item.rank, kTaskRanks); },
        [&](const Item& item, const Range& rows, std::int64_t piece) {
          shrink(p, item.of, rows, range_of(piece, kTaskRanks, item.of.rank), shrunk + item.shrunk);
        });
    for_pieces(
        widest_, [](const LoraItem& item) { return pieces_of(item.out_features, kTaskColumns); },
        [&](const Item& item, const Range& rows, std::int64_t piece) {
          expand(p, item.of, rows, range_of(piece, kTaskColumns, item.of.out_features), shrunk + item.shrunk);
        });
    return {};
  }

 private:
  struct Item {
    const LoraItem& of;
    std::int64_t shrunk = 0;  ///< where its rows begin in the scratch memory
  };

  /// Calls body(item, rows, piece) for all blocks of rows and all pieces of all items. `width`: multiply-adds of a row
  /// for each rank.
  template <class Pieces, class Body>
  void for_pieces(std::int64_t width, const Pieces& pieces, const Body& body) {
    std::vector<std::int64_t> ends;  // number of tasks of the items up to each
    ends.reserve(items_.size());
    std::int64_t tasks = 0;
    for (const Item& item : items_) {
      tasks += pieces_of(item.of.num_rows, kTaskRows) * pieces(item.of);
      ends.push_back(tasks);
    }
    const auto run_task = [&](std::int64_t task) {
      const auto index = static_cast<std::size_t>(std::ranges::upper_bound(ends, task) - ends.begin());
      const Item& item = items_[index];
      const std::int64_t in_item = task - (index == 0 ? 0 : ends[index - 1]);
      const std::int64_t blocks = pieces_of(item.of.num_rows, kTaskRows);
      body(item, range_of(in_item % blocks, kTaskRows, item.of.num_rows), in_item / blocks);
    };
    if ((shrunk_floats_ + rows_) * width > kFewProducts) return threads_.parallel_for(tasks, run_task);
    for (std::int64_t task = 0; task < tasks; ++task) run_task(task);
  }

  void shrink(const LoraParams& p, const LoraItem& item, const Range& rows, const Range& ranks, float* shrunk) const {
    const std::int64_t first_row = item.first_row + rows.first;
    float* to = shrunk + rows.first * item.rank + ranks.first;
    const auto element_bytes = static_cast<std::int64_t>(size_of(item.dtype));
    const auto* a = static_cast<const std::byte*>(item.a);
    if (p.token_ids != nullptr) {
      for (std::int64_t t = 0; t < rows.count(); ++t, to += item.rank) {
        const std::int64_t at = p.token_ids[first_row + t] * item.rank + ranks.first;
        kernels_.widen(a + at * element_bytes, item.dtype, ranks.count(), to);
        kernels_.scale(to, item.scale, ranks.count(), to);
      }
      return;
    }
    kernels_.lora_shrink({.x = p.x + first_row * p.in,
                          .x_stride = p.in,
                          .rows = rows.count(),
                          .a = a + ranks.first * p.in * element_bytes,
                          .dtype = item.dtype,
                          .in = p.in,
                          .ranks = ranks.count(),
                          .scale = item.scale,
                          .shrunk = to,
                          .shrunk_stride = item.rank});
  }

  void expand(const LoraParams& p, const LoraItem& item, const Range& rows, const Range& columns,
              const float* shrunk) const {
    const auto from_first = [&](const float* values) { return values == nullptr ? nullptr : values + columns.first; };
    const auto element_bytes = static_cast<std::int64_t>(size_of(item.dtype));
    const float* base = from_first(item.base);
    kernels_.lora_expand(
        {.shrunk = shrunk + rows.first * item.rank,
         .rows = rows.count(),
         .b = item.rank == 0 ? nullptr
                             : static_cast<const std::byte*>(item.b) + columns.first * item.rank * element_bytes,
         .dtype = item.dtype,
         .rank = item.rank,
         .columns = columns.count(),
         .out = p.out + (item.first_row + rows.first) * p.out_stride + item.first_column + columns.first,
         .out_stride = p.out_stride,
         .factors = from_first(item.factors),
         .base = base == nullptr ? nullptr : base + rows.first * item.base_stride,
         .base_stride = item.base_stride,
         .bias = from_first(item.bias)});
  }

  const CpuKernels& kernels_;
  ThreadPool& threads_;
  std::vector<Item> items_;
  std::int64_t shrunk_floats_ = 0;
  std::int64_t rows_ = 0;    // of all items
  std::int64_t widest_ = 0;  // largest out_features
};

}  // namespace

Status cpu_lora(const CpuKernels& kernels, ThreadPool& threads, ScratchPool& scratch, const LoraParams& params) {
  return Lora(kernels, threads, params).run(scratch, params);
}

}  // namespace pagoda::kernels
