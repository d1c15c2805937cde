#include "engine/adapters/rank_adapter.hpp"

#include <cstddef>
#include <cstring>
#include <string>

namespace pagoda::adapters {
namespace {

using weights::ModuleSlice;
using weights::Range;

/// Returns the rows and columns in the ranges.
AdapterMatrix part_of(const AdapterMatrix& matrix, const std::vector<Range>& rows, const std::vector<Range>& columns) {
  const std::size_t size = size_of(matrix.dtype);
  AdapterMatrix part{
      .dtype = matrix.dtype, .rows = weights::size_of_all(rows), .columns = weights::size_of_all(columns), .data = {}};
  part.data.resize(static_cast<std::size_t>(part.rows * part.columns) * size);
  std::byte* to = part.data.data();
  for (const Range& range : rows) {
    for (std::int64_t row = range.begin; row < range.end; ++row) {
      for (const Range& its : columns) {
        const std::size_t bytes = static_cast<std::size_t>(its.size()) * size;
        const std::size_t from = static_cast<std::size_t>(row * matrix.columns + its.begin) * size;
        std::memcpy(to, matrix.data.data() + from, bytes);
        to += bytes;
      }
    }
  }
  return part;
}

void take_rows(AdapterMatrix& matrix, const ModuleSlice& slice) {
  matrix = part_of(matrix, slice.ranges, {{0, matrix.columns}});
}

Status refuse_dora(const ModuleChange& change) {
  if (!change.lora || !change.lora->magnitude) return {};
  return fail(ErrorCode::unsupported,
              "adapter: module " + change.module +
                  " is changed by DoRA, which needs whole rows of weights, but these are divided "
                  "between ranks (tensor_parallel_size)");
}

Status take_part(ModuleChange& change, const ModuleSlice& slice, bool is_first_rank) {
  if (slice.axis == ModuleSlice::Axis::inputs) {
    if (Status allowed = refuse_dora(change); !allowed) return allowed;
    if (change.lora) change.lora->a = part_of(change.lora->a, {{0, change.lora->a.rows}}, slice.ranges);
    if (!is_first_rank) change.bias.reset();
    return {};
  }
  if (change.lora) take_rows(change.lora->b, slice);
  if (change.lora && change.lora->magnitude) take_rows(*change.lora->magnitude, slice);
  if (change.weight) take_rows(*change.weight, slice);
  if (change.bias) take_rows(*change.bias, slice);
  return {};
}

/// Takes the keys and values of the rank's heads: rows are [layers, 2, heads, head_dim].
void take_heads(VirtualTokens& prompt, const RankParts& parts) {
  const std::int64_t width = parts.num_kv_heads * parts.head_dim;
  std::vector<Range> columns;
  for (std::int64_t first = 0; first < prompt.rows.columns; first += width) {
    columns.push_back({first + parts.kv_heads.begin * parts.head_dim, first + parts.kv_heads.end * parts.head_dim});
  }
  prompt.rows = part_of(prompt.rows, {{0, prompt.rows.rows}}, columns);
  if (prompt.num_heads != 0) prompt.num_heads = parts.kv_heads.size();
}

}  // namespace

Status take_part_of_rank(Adapter& adapter, const RankParts& parts) {
  std::erase_if(adapter.changes, [&](const ModuleChange& change) { return !parts.has(change.module); });
  for (ModuleChange& change : adapter.changes) {
    const auto slice = parts.slice_of(change.module);
    if (!slice) continue;
    if (parts.is_table(change.module)) {
      if (Status allowed = refuse_dora(change); !allowed) return allowed;
      continue;
    }
    if (Status taken = take_part(change, *slice, parts.is_first_rank); !taken) return taken;
  }
  if (adapter.prompt && adapter.prompt->kind == VirtualTokens::Kind::prefix) take_heads(*adapter.prompt, parts);
  return {};
}

}  // namespace pagoda::adapters
