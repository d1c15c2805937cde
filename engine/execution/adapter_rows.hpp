#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/adapters/adapter_table.hpp"
#include "engine/layers/batch_adapters.hpp"

namespace pagoda::execution {

/// Adds the rows [first_row, first_row + num_rows) of a batch, which are behind all rows of the list. `adapter`: null
/// for rows of the base model, which are in no list.
inline void add_rows(layers::BatchAdapters& list, const adapters::SharedAdapter& adapter, std::int64_t first_row,
                     std::int64_t num_rows) {
  if (adapter == nullptr || num_rows == 0) return;
  const layers::AdapterWeights* weights = &adapter->weights();
  if (!list.empty() && list.back().adapter == weights && list.back().first_row + list.back().num_rows == first_row) {
    list.back().num_rows += num_rows;
  } else {
    list.push_back({first_row, num_rows, weights});
  }
}

/// Returns the part of a list for the rows [first, first + count). The part counts rows from `first`.
inline layers::BatchAdapters part_of(const layers::BatchAdapters& list, std::int64_t first, std::int64_t count) {
  layers::BatchAdapters part;
  for (const layers::AdapterRows& rows : list) {
    const std::int64_t begin = std::max(rows.first_row, first);
    const std::int64_t end = std::min(rows.first_row + rows.num_rows, first + count);
    if (begin < end) part.push_back({begin - first, end - begin, rows.adapter});
  }
  return part;
}

/// Returns what models take for a list: null if no row has an adapter.
inline const layers::BatchAdapters* or_null(const layers::BatchAdapters& list) {
  return list.empty() ? nullptr : &list;
}

}  // namespace pagoda::execution
