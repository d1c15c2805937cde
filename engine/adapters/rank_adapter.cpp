#include "engine/adapters/rank_adapter.hpp"

#include <cstddef>
#include <cstring>
#include <string>

namespace pagoda::adapters {
namespace {

using weights::ModuleSlice;
using weights::Range;

std::int64_t total(const std::vector<Range>& ranges) {
  std::int64_t sum = 0;
  for (const Range& range : ranges) sum += range.size();
  return sum;
}

/// Returns the rows and columns in the ranges.
AdapterMatrix part_of(const AdapterMatrix& matrix, const std::vector<Range>& rows, const std::vector<Range>& columns) {
  const std::size_t size = size_of(matrix.dtype);
  AdapterMatrix part{.dtype = matrix.dtype, .rows = total(rows), .columns = total(columns), .data = {}};
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

std::string shape_of(std::int64_t rows, std::int64_t columns) {
  return "[" + std::to_string(rows) + ", " + std::to_string(columns) + "]";
}

/// Takes the parts of one module's matrices; the first error stays.
class PartOfModule {
 public:
  PartOfModule(const std::string& module, const ModuleSlice& slice) : module_(module), slice_(slice) {}

  void take_rows(std::string_view name, AdapterMatrix& matrix) {
    take(name, matrix, slice_.full_size, matrix.columns, slice_.ranges, {{0, matrix.columns}});
  }
  void take_columns(std::string_view name, AdapterMatrix& matrix) {
    take(name, matrix, matrix.rows, slice_.full_size, {{0, matrix.rows}}, slice_.ranges);
  }
  const Status& status() const { return status_; }

 private:
  void take(std::string_view name, AdapterMatrix& matrix, std::int64_t full_rows, std::int64_t full_columns,
            const std::vector<Range>& rows, const std::vector<Range>& columns) {
    const auto bytes = static_cast<std::size_t>(full_rows * full_columns) * size_of(matrix.dtype);
    const bool fits = matrix.rows == full_rows && matrix.columns == full_columns && matrix.data.size() == bytes;
    if (fits) {
      matrix = part_of(matrix, rows, columns);
    } else if (status_) {
      status_ = fail(ErrorCode::bad_file, "adapter: module " + module_ + ": " + std::string(name) + " is " +
                                              shape_of(matrix.rows, matrix.columns) + ", but the model needs " +
                                              shape_of(full_rows, full_columns));
    }
  }

  const std::string& module_;
  const ModuleSlice& slice_;
  Status status_;
};

Status refuse_dora(const ModuleChange& change) {
  if (!change.lora || !change.lora->magnitude) return {};
  return fail(ErrorCode::unsupported,
              "adapter: module " + change.module +
                  " is changed by DoRA, which needs whole rows of weights, but these are divided "
                  "between ranks (tensor_parallel_size)");
}

Status take_part(ModuleChange& change, const ModuleSlice& slice, bool is_first_rank) {
  PartOfModule part(change.module, slice);
  if (slice.axis == ModuleSlice::Axis::inputs) {
    if (Status allowed = refuse_dora(change); !allowed) return allowed;
    if (change.lora) part.take_columns("A", change.lora->a);
    if (!is_first_rank) change.bias.reset();
    return part.status();
  }
  if (change.lora) part.take_rows("B", change.lora->b);
  if (change.lora && change.lora->magnitude) part.take_rows("the magnitude", *change.lora->magnitude);
  if (change.weight) part.take_rows("the weight", *change.weight);
  if (change.bias) part.take_rows("the bias", *change.bias);
  return part.status();
}

/// Takes the keys and values of the rank's heads: rows are [layers, 2, heads, head_dim].
Status take_heads(VirtualTokens& prompt, const RankParts& parts) {
  const std::int64_t width = parts.num_kv_heads * parts.head_dim;
  const auto bytes = static_cast<std::size_t>(prompt.rows.rows * prompt.rows.columns) * size_of(prompt.rows.dtype);
  const bool fits = prompt.rows.columns == parts.num_layers * 2 * width && prompt.rows.data.size() == bytes &&
                    (prompt.num_heads == 0 || prompt.num_heads == parts.num_kv_heads);
  if (!fits) {
    return fail(ErrorCode::bad_file,
                "adapter: virtual tokens have keys and values of " + std::to_string(prompt.rows.columns) +
                    " elements, but the model needs " + std::to_string(parts.num_layers * 2 * width) + " (" +
                    std::to_string(parts.num_layers) + " layers with keys and values of " +
                    std::to_string(parts.num_kv_heads) + " heads of " + std::to_string(parts.head_dim) + ")");
  }
  std::vector<Range> columns;
  for (std::int64_t first = 0; first < prompt.rows.columns; first += width) {
    columns.push_back({first + parts.kv_heads.begin * parts.head_dim, first + parts.kv_heads.end * parts.head_dim});
  }
  prompt.rows = part_of(prompt.rows, {{0, prompt.rows.rows}}, columns);
  if (prompt.num_heads != 0) prompt.num_heads = parts.kv_heads.size();
  return {};
}

}  // namespace

Status take_part_of_rank(Adapter& adapter, const RankParts& parts) {
  for (ModuleChange& change : adapter.changes) {
    const auto slice = parts.slice_of(change.module);
    if (!slice) continue;
    if (parts.is_table(change.module)) {
      if (Status allowed = refuse_dora(change); !allowed) return allowed;
      continue;
    }
    if (Status taken = take_part(change, *slice, parts.is_first_rank); !taken) return taken;
  }
  const bool has_prefix = adapter.prompt && adapter.prompt->kind == VirtualTokens::Kind::prefix;
  return has_prefix ? take_heads(*adapter.prompt, parts) : Status();
}

}  // namespace pagoda::adapters
