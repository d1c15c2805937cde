#pragma once

#include <algorithm>
#include <cstdint>

namespace pagoda::kernels {

/// The most lanes of any instruction set.
constexpr int kMostLanes = 16;

/// Rows split into register tiles of at most `max_rows`, as even as can be: 16 rows are 8 + 8, not 14 + 2.
class RowTiles {
 public:
  RowTiles(std::int64_t rows, std::int64_t max_rows)
      : count_((rows + max_rows - 1) / max_rows),
        small_(count_ == 0 ? 0 : rows / count_),
        num_large_(count_ == 0 ? 0 : rows % count_) {}

  std::int64_t count() const { return count_; }
  std::int64_t rows(std::int64_t tile) const { return small_ + (tile < num_large_ ? 1 : 0); }
  std::int64_t first_row(std::int64_t tile) const { return tile * small_ + std::min(tile, num_large_); }
  std::int64_t most_rows() const { return small_ + (num_large_ > 0 ? 1 : 0); }

 private:
  std::int64_t count_;
  std::int64_t small_;
  std::int64_t num_large_;
};

}  // namespace pagoda::kernels
