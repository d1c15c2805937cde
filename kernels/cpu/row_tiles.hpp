#pragma once

#include <algorithm>
#include <cstdint>

namespace pagoda::kernels {

/// Upper bound of lanes over all instruction sets.
constexpr int kMaxLanes = 16;

/// Returns a / b, rounded up; a >= 0 and b > 0.
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) {
  return (a + b - 1) / b;
}
/// Returns the least multiple of b that is at least a; a >= 0 and b > 0.
constexpr std::int64_t round_up(std::int64_t a, std::int64_t b) {
  return ceil_div(a, b) * b;
}

/// Splits rows into register tiles of at most `max_rows` rows, as evenly as possible: 16 rows are 8 + 8, not 14 + 2.
/// Tiles consist of whole units of `unit` rows (which divides max_rows); the last unit may lack some rows.
class RowTiles {
 public:
  RowTiles(std::int64_t rows, std::int64_t max_rows, std::int64_t unit = 1)
      : rows_(rows),
        unit_(unit),
        count_(ceil_div(rows, max_rows)),
        small_(count_ == 0 ? 0 : num_units() / count_),
        num_large_(count_ == 0 ? 0 : num_units() % count_) {}

  std::int64_t count() const { return count_; }
  std::int64_t rows(std::int64_t tile) const { return first_row(tile + 1) - first_row(tile); }
  std::int64_t first_row(std::int64_t tile) const {
    return std::min(rows_, (tile * small_ + std::min(tile, num_large_)) * unit_);
  }
  std::int64_t largest_tile_rows() const { return count_ == 0 ? 0 : rows(0); }

 private:
  std::int64_t num_units() const { return ceil_div(rows_, unit_); }

  std::int64_t rows_;
  std::int64_t unit_;
  std::int64_t count_;
  std::int64_t small_;      ///< units of a small tile; large tiles have one more
  std::int64_t num_large_;  ///< number of large tiles, which come first
};

}  // namespace pagoda::kernels
