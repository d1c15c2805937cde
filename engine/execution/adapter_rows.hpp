#pragma once

#include <algorithm>
#include <cstdint>

#include "engine/adapters/adapter_table.hpp"
#include "engine/layers/batch_adapters.hpp"
#include "engine/layers/batch_prompts.hpp"

namespace pagoda::execution {

/// Adds the rows [first_row, first_row + num_rows) of a batch, which are behind all rows of the list. Rows of the base
/// model (null) and of prompt adapters are in no list.
inline void add_rows(layers::BatchAdapters& list, const adapters::SharedAdapter& adapter, std::int64_t first_row,
                     std::int64_t num_rows) {
  if (adapter == nullptr || adapter->prompt() != nullptr || num_rows == 0) return;
  const layers::AdapterWeights* weights = &adapter->weights();
  if (!list.empty() && list.back().adapter == weights && list.back().first_row + list.back().num_rows == first_row) {
    list.back().num_rows += num_rows;
  } else {
    list.push_back({first_row, num_rows, weights});
  }
}

/// Returns how many of the tokens [first_position, first_position + num_tokens) of a sequence are virtual tokens.
inline std::int64_t num_virtual_tokens(const adapters::SharedAdapter& adapter, std::int64_t first_position,
                                       std::int64_t num_tokens) {
  if (adapter == nullptr || adapter->prompt() == nullptr) return 0;
  return std::clamp<std::int64_t>(adapter->prompt()->num_tokens - first_position, 0, num_tokens);
}

/// Adds the virtual tokens among the tokens [first_position, first_position + num_tokens) of a sequence, the first of
/// which is row `first_row` of a batch. They are behind all rows of the list.
inline void add_rows(layers::BatchPrompts& list, const adapters::SharedAdapter& adapter, std::int64_t first_row,
                     std::int64_t first_position, std::int64_t num_tokens) {
  const std::int64_t count = num_virtual_tokens(adapter, first_position, num_tokens);
  if (count > 0) list.push_back({first_row, count, first_position, adapter->prompt()});
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

/// Returns what models take for a list: null if it has no row.
template <class List>
const List* or_null(const List& list) {
  return list.empty() ? nullptr : &list;
}

}  // namespace pagoda::execution
