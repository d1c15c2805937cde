#include "engine/adapters/bound_adapter.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/adapters/dora_factors.hpp"
#include "engine/adapters/matrix_floats.hpp"
#include "engine/adapters/module_names.hpp"
#include "engine/layers/device_array.hpp"
#include "kernels/ops.hpp"

namespace pagoda::adapters {
namespace {

using layers::AdapterModule;
using layers::AdapterModules;
using layers::AdapterWeights;
using layers::ModuleId;

constexpr std::int64_t kAlignment = 256;

/// Places of the arrays of one change in the adapter's memory, in bytes from its start; unset = there is no such array.
struct Places {
  std::optional<std::int64_t> a;
  std::optional<std::int64_t> b;
  std::optional<std::int64_t> factors;
  std::optional<std::int64_t> bias;
  std::optional<std::int64_t> weight;
};

struct Layout {
  std::vector<Places> places;  // by change
  std::optional<std::int64_t> work;
  std::optional<std::int64_t> prompt;
  std::int64_t bytes = 0;
};

/// A and B are multiplied in one type.
DType type_of(const LoraChange& lora) {
  return lora.a.dtype == lora.b.dtype ? lora.a.dtype : DType::f32;
}

std::int64_t padded_columns(std::int64_t out_features) {
  return (out_features + kernels::kLoraPanel - 1) / kernels::kLoraPanel * kernels::kLoraPanel;
}

std::int64_t aligned_bytes(std::int64_t count, DType dtype) {
  const std::int64_t bytes = count * static_cast<std::int64_t>(size_of(dtype));
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

Layout layout_of(const Adapter& adapter, const AdapterModules& modules) {
  Layout layout;
  const auto take = [&](std::int64_t count, DType dtype) {
    return std::exchange(layout.bytes, layout.bytes + aligned_bytes(count, dtype));
  };
  std::int64_t work_width = 0;
  for (const ModuleChange& change : adapter.changes) {
    const AdapterModule& module = modules[find_module(modules, change.module)];
    Places places;
    if (const auto& lora = change.lora) {
      places.a = take(lora->rank() * module.in_features, type_of(*lora));
      places.b = take(lora->rank() * padded_columns(module.out_features), type_of(*lora));
      if (lora->magnitude) {
        places.factors = take(module.out_features, DType::f32);
        if (module.kind == AdapterModule::Kind::linear) work_width = std::max(work_width, module.row_width);
      }
    }
    if (change.bias) places.bias = take(module.out_features, DType::f32);
    if (change.weight) places.weight = take(module.in_features * module.out_features, change.weight->dtype);
    layout.places.push_back(places);
  }
  if (work_width > 0) layout.work = take(AdapterWeights::kWorkRows * work_width, DType::f32);
  if (adapter.prompt) layout.prompt = take(adapter.prompt->rows.rows * adapter.prompt->rows.columns, DType::f32);
  layout.bytes = std::max(layout.bytes, kAlignment);
  return layout;
}

/// Writes element `to` of an array of `dtype` with element `from` of a matrix.
void copy_element(const AdapterMatrix& matrix, std::int64_t from, std::byte* array, DType dtype, std::int64_t to) {
  kernels::reference::store(array, dtype, to, kernels::reference::load(matrix.data.data(), matrix.dtype, from));
}

/// Writes A as it is, or [vocab_size, rank] for an embedding.
void pack_a(const LoraChange& lora, bool is_table, std::byte* to) {
  const AdapterMatrix& a = lora.a;
  if (!is_table && a.dtype == type_of(lora)) {
    std::memcpy(to, a.data.data(), a.data.size());
    return;
  }
  for (std::int64_t r = 0; r < a.rows; ++r) {
    for (std::int64_t k = 0; k < a.columns; ++k) {
      copy_element(a, r * a.columns + k, to, type_of(lora), is_table ? k * a.rows + r : r * a.columns + k);
    }
  }
}

/// Calls copy(from, to) for the index of each element of B and of its place in the panels of LoraItem::b.
template <class Copy>
void for_panels(const AdapterMatrix& b, const Copy& copy) {
  for (std::int64_t n = 0; n < b.rows; ++n) {
    const std::int64_t panel = n / kernels::kLoraPanel * b.columns * kernels::kLoraPanel + n % kernels::kLoraPanel;
    for (std::int64_t r = 0; r < b.columns; ++r) copy(n * b.columns + r, panel + r * kernels::kLoraPanel);
  }
}

/// Copies elements of `size` bytes.
template <std::size_t size>
void copy_panels(const AdapterMatrix& b, std::byte* to) {
  constexpr auto kSize = static_cast<std::int64_t>(size);
  for_panels(b, [&](std::int64_t from, std::int64_t place) {
    std::memcpy(to + place * kSize, b.data.data() + from * kSize, size);
  });
}

/// Writes the panels of LoraItem::b. `to` is zeroed memory.
void pack_b(const LoraChange& lora, std::byte* to) {
  const AdapterMatrix& b = lora.b;
  const DType dtype = type_of(lora);
  if (b.dtype == dtype) return size_of(dtype) == 4 ? copy_panels<4>(b, to) : copy_panels<2>(b, to);
  for_panels(b, [&](std::int64_t from, std::int64_t place) { copy_element(b, from, to, dtype, place); });
}

void copy_floats(const std::vector<float>& floats, std::byte* to) {
  std::memcpy(to, floats.data(), floats.size() * sizeof(float));
}

/// Returns the adapter's bias minus the base's.
Result<std::vector<float>> bias_difference(const AdapterMatrix& bias, const AdapterModule& module,
                                           kernels::Device& device) {
  std::vector<float> difference = floats_of(bias);
  const void* base = module.bias;
  kernels::Buffer memory;
  if (!device.shares_host_memory()) {
    auto copy = layers::copy_to_host(device, base, difference.size() * size_of(module.bias_dtype));
    if (!copy) return fail(std::move(copy.error()));
    memory = std::move(*copy);
    base = memory.data();
  }
  for (std::size_t n = 0; n < difference.size(); ++n) {
    difference[n] -= kernels::reference::load(base, module.bias_dtype, static_cast<std::int64_t>(n));
    if (!std::isfinite(difference[n])) {
      return fail(ErrorCode::bad_file, "adapter: module " + module.name + ": element " + std::to_string(n) +
                                           " of its bias is too far from the model's");
    }
  }
  return difference;
}

/// The vectors of a change that depend on the base's weights; empty = there are none.
struct Derived {
  std::vector<float> factors;
  std::vector<float> bias;
};

Result<Derived> derive(const ModuleChange& change, const AdapterModule& module, kernels::Device& device) {
  Derived derived;
  if (change.lora && change.lora->magnitude) {
    auto factors = dora_factors(*change.lora, module, device);
    if (!factors) return fail(std::move(factors.error()));
    derived.factors = std::move(*factors);
  }
  if (change.bias) {
    auto bias = bias_difference(*change.bias, module, device);
    if (!bias) return fail(std::move(bias.error()));
    derived.bias = std::move(*bias);
  }
  return derived;
}

void write(const ModuleChange& change, const Derived& derived, const Places& places, bool is_table, std::byte* memory) {
  if (places.a) pack_a(*change.lora, is_table, memory + *places.a);
  if (places.b) pack_b(*change.lora, memory + *places.b);
  if (places.factors) copy_floats(derived.factors, memory + *places.factors);
  if (places.bias) copy_floats(derived.bias, memory + *places.bias);
  if (places.weight) std::memcpy(memory + *places.weight, change.weight->data.data(), change.weight->data.size());
}

layers::ModuleWeights weights_of(const ModuleChange& change, const Places& places, const std::byte* memory) {
  const auto floats_at = [&](const std::optional<std::int64_t>& place) {
    return place ? reinterpret_cast<const float*>(memory + *place) : nullptr;
  };
  layers::ModuleWeights weights{.factors = floats_at(places.factors), .bias = floats_at(places.bias)};
  if (const auto& lora = change.lora) {
    weights.a = memory + *places.a;
    weights.b = memory + *places.b;
    weights.dtype = type_of(*lora);
    weights.rank = lora->rank();
    weights.scale = lora->scale;
  }
  if (change.weight) {
    weights.weight = {memory + *places.weight, change.weight->dtype, change.weight->rows, change.weight->columns};
  }
  return weights;
}

}  // namespace

std::int64_t planned_bytes(std::int64_t rank, const AdapterModules& modules) {
  std::int64_t bytes = 0;
  for (const AdapterModule& module : modules.all()) {
    if (module.kind != AdapterModule::Kind::linear) continue;
    bytes += aligned_bytes(rank * module.in_features, DType::f32) +
             aligned_bytes(rank * padded_columns(module.out_features), DType::f32);
  }
  return bytes;
}

std::int64_t planned_prompt_bytes(std::int64_t num_tokens, const AdapterModules& modules) {
  const std::int64_t prefix_width = modules.kv().num_layers * 2 * modules.kv().width();
  return num_tokens * std::max(prefix_width, modules.embedding_width()) * static_cast<std::int64_t>(sizeof(float));
}

Result<std::unique_ptr<const BoundAdapter>> BoundAdapter::create(const Adapter& adapter, const AdapterModules& modules,
                                                                 kernels::Device& device) {
  if (auto status = check(adapter, modules); !status) return fail(std::move(status.error()));
  const auto module_of = [&](const ModuleChange& change) { return find_module(modules, change.module); };
  std::vector<Derived> derived;
  for (const ModuleChange& change : adapter.changes) {
    auto next = derive(change, modules[module_of(change)], device);
    if (!next) return fail(std::move(next.error()));
    derived.push_back(std::move(*next));
  }
  const Layout layout = layout_of(adapter, modules);
  auto memory = layers::fill_on_device(device, static_cast<std::size_t>(layout.bytes), [&](std::byte* to) {
    for (std::size_t i = 0; i < adapter.changes.size(); ++i) {
      const bool is_table = modules[module_of(adapter.changes[i])].kind == AdapterModule::Kind::embedding;
      write(adapter.changes[i], derived[i], layout.places[i], is_table, to);
    }
    if (adapter.prompt) copy_floats(floats_of(adapter.prompt->rows), to + *layout.prompt);
  });
  if (!memory) return fail(std::move(memory.error()));
  auto bound = std::make_unique<BoundAdapter>();
  bound->facts_ = {adapter.fingerprint, static_cast<std::int32_t>(adapter.num_virtual_tokens())};
  bound->memory_ = std::move(*memory);
  auto* start = bound->memory_.as<std::byte>();
  AdapterWeights& weights = bound->weights_;
  weights.modules = &modules;
  weights.changes.assign(modules.all().size(), -1);
  for (std::size_t i = 0; i < adapter.changes.size(); ++i) {
    weights.changes[static_cast<std::size_t>(module_of(adapter.changes[i]))] = static_cast<std::int32_t>(i);
    weights.weights.push_back(weights_of(adapter.changes[i], layout.places[i], start));
  }
  if (layout.work) weights.work = reinterpret_cast<float*>(start + *layout.work);
  if (adapter.prompt) {
    const auto* rows = reinterpret_cast<const float*>(start + *layout.prompt);
    const bool is_prefix = adapter.prompt->kind == VirtualTokens::Kind::prefix;
    bound->prompt_ = {.modules = &modules,
                      .num_tokens = adapter.prompt->rows.rows,
                      .embeddings = is_prefix ? nullptr : rows,
                      .prefix = is_prefix ? rows : nullptr};
  }
  return bound;
}

}  // namespace pagoda::adapters
