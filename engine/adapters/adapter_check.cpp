#include <cstddef>
#include <cstdint>
#include <set>
#include <string>
#include <string_view>

#include "engine/adapters/bound_adapter.hpp"
#include "engine/adapters/module_names.hpp"

namespace pagoda::adapters {
namespace {

using layers::AdapterModule;

std::string shape_text(std::string_view rows, std::string_view columns) {
  return "[" + std::string(rows) + ", " + std::string(columns) + "]";
}
std::string shape_text(std::int64_t rows, std::int64_t columns) {
  return shape_text(std::to_string(rows), std::to_string(columns));
}

/// Returns what is wrong with the elements of a matrix, after its name; empty = nothing.
std::string problem_of(const AdapterMatrix& matrix) {
  if (!is_weight_type(matrix.dtype)) return " has the type " + std::string(to_string(matrix.dtype));
  const auto bytes = matrix.rows * matrix.columns * static_cast<std::int64_t>(size_of(matrix.dtype));
  if (static_cast<std::int64_t>(matrix.data.size()) == bytes) return {};
  return " has " + std::to_string(matrix.data.size()) + " bytes, but its shape needs " + std::to_string(bytes);
}

/// Checks one module; the first error stays.
class ModuleCheck {
 public:
  explicit ModuleCheck(std::string_view module) : module_(module) {}

  void refuse(std::string_view reason) {
    if (status_) status_ = fail(ErrorCode::bad_file, "adapter: module " + module_ + ": " + std::string(reason));
  }

  /// Requires a matrix of this shape.
  void require(std::string_view name, const AdapterMatrix& matrix, std::int64_t rows, std::int64_t columns) {
    require(name, matrix, matrix.rows == rows && matrix.columns == columns, shape_text(rows, columns));
  }
  void require(std::string_view name, const AdapterMatrix& matrix, bool fits, std::string_view wanted) {
    const std::string text(name);
    if (!fits) {
      refuse(text + " is " + shape_text(matrix.rows, matrix.columns) + ", but the model needs " + std::string(wanted));
    }
    if (const std::string problem = problem_of(matrix); !problem.empty()) refuse(text + problem);
  }

  const Status& status() const { return status_; }

 private:
  std::string module_;
  Status status_;
};

Status check_change(const ModuleChange& change, const AdapterModule& module) {
  ModuleCheck checked(change.module);
  if (const auto& lora = change.lora) {
    const std::string in = std::to_string(module.in_features);
    const std::string rank = std::to_string(lora->rank());
    checked.require("A", lora->a, lora->a.columns == module.in_features && lora->a.rows >= 1, shape_text("rank", in));
    checked.require("B", lora->b, module.out_features, lora->rank());
    if (lora->magnitude) checked.require("the magnitude", *lora->magnitude, module.out_features, 1);
  }
  if (change.weight) {
    const bool is_table = module.kind == AdapterModule::Kind::embedding;
    if (module.kind == AdapterModule::Kind::linear) {
      checked.refuse("only the weight of an embedding or of the head can be replaced");
    }
    if (change.lora) checked.refuse("its weight cannot be both replaced and changed");
    checked.require("the weight", *change.weight, is_table ? module.in_features : module.out_features,
                    is_table ? module.out_features : module.in_features);
  }
  if (change.bias) {
    if (!module.has_bias) checked.refuse("the adapter has a bias, but the model has none here");
    checked.require("the bias", *change.bias, module.out_features, 1);
  }
  return checked.status();
}

Status check_prompt(const VirtualTokens& prompt, const layers::AdapterModules& modules) {
  const layers::ModelKv& kv = modules.kv();
  const std::int64_t columns = prompt.rows.columns;
  const auto refuse = [](const std::string& reason) { return fail(ErrorCode::bad_file, "adapter: " + reason); };
  if (prompt.rows.rows < 1) return refuse("it has no virtual tokens");
  if (const std::string problem = problem_of(prompt.rows); !problem.empty()) {
    return refuse("the matrix of its virtual tokens" + problem);
  }
  if (prompt.kind == VirtualTokens::Kind::embeddings && columns != modules.embedding_width()) {
    return refuse("virtual tokens have embeddings of " + std::to_string(columns) + ", but those of the model have " +
                  std::to_string(modules.embedding_width()));
  }
  if (prompt.kind == VirtualTokens::Kind::prefix) {
    if (columns != kv.num_layers * 2 * kv.width()) {
      return refuse("virtual tokens have keys and values of " + std::to_string(columns) +
                    " elements, but the model needs " + std::to_string(kv.num_layers * 2 * kv.width()) + " (" +
                    std::to_string(kv.num_layers) + " layers with keys and values of " + std::to_string(kv.num_heads) +
                    " heads of " + std::to_string(kv.head_dim) + ")");
    }
    if (prompt.num_heads != 0 && prompt.num_heads != kv.num_heads) {
      return refuse("virtual tokens have keys of " + std::to_string(prompt.num_heads) + " heads, but the model has " +
                    std::to_string(kv.num_heads));
    }
  }
  return {};
}

}  // namespace

std::string_view without_outer_module(std::string_view name) {
  for (const std::string_view outer : {"transformer.", "model.", "language_model."}) {
    if (name.starts_with(outer)) return name.substr(outer.size());
  }
  return {};
}

layers::ModuleId find_module(const layers::AdapterModules& modules, std::string_view name) {
  const layers::ModuleId found = modules.find(name);
  return found != layers::kNoModule ? found : modules.find(without_outer_module(name));
}

Status check(const Adapter& adapter, const layers::AdapterModules& modules) {
  if (adapter.prompt) {
    if (!adapter.changes.empty())
      return fail(ErrorCode::bad_file, "adapter: it has virtual tokens and changed modules");
    return check_prompt(*adapter.prompt, modules);
  }
  std::set<layers::ModuleId> seen;
  for (const ModuleChange& change : adapter.changes) {
    const layers::ModuleId id = find_module(modules, change.module);
    if (id == layers::kNoModule) {
      return fail(ErrorCode::bad_file, modules.has(change.module)
                                           ? "adapter: module " + change.module + " cannot be changed by an adapter"
                                           : "adapter: the model has no module " + change.module);
    }
    if (!seen.insert(id).second) {
      return fail(ErrorCode::bad_file, "adapter: module " + change.module + " is changed twice");
    }
    if (Status status = check_change(change, modules[id]); !status) return status;
  }
  return {};
}

}  // namespace pagoda::adapters
