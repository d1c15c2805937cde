#include "io/adapters/base_weights.hpp"

#include <array>
#include <cmath>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/adapters/module_names.hpp"
#include "io/model_files/file_text.hpp"
#include "kernels/reference/element.hpp"

namespace pagoda::io {
namespace {

using kernels::reference::load;

/// Names of the embedding, which is the weight of a head that has none of its own.
constexpr std::array<std::string_view, 3> kEmbeddings{"model.embed_tokens.weight", "transformer.wte.weight",
                                                      "model.decoder.embed_tokens.weight"};

/// Returns the name of a module's weight in `base`.
std::string weight_name(const std::string& module, const weights::WeightSource& base) {
  const std::string own = module + ".weight";
  std::vector<std::string_view> names{own};
  names.insert(names.end(), kEmbeddings.begin(), kEmbeddings.end());
  for (const std::string_view name : names) {
    for (const std::string_view stored : {name, adapters::without_outer_module(name)}) {
      if (!stored.empty() && base.contains(stored)) return std::string(stored);
    }
  }
  return own;
}

bool is_same(const adapters::AdapterMatrix& weight, const weights::WeightTensor& tensor) {
  constexpr float kRelative = 1.0F / 128;  // two roundings to bfloat16
  constexpr float kAbsolute = 1e-6F;       // numbers that float16 holds with few bits
  for (std::int64_t i = 0; i < tensor.elements(); ++i) {
    const float expected = load(tensor.data, tensor.dtype, i);
    const float error = std::abs(load(weight.data.data(), weight.dtype, i) - expected);
    if (!(error <= kRelative * std::abs(expected) + kAbsolute)) return false;
  }
  return true;
}

}  // namespace

Status drop_base_weights(adapters::Adapter& adapter, const weights::WeightSource& base) {
  for (adapters::ModuleChange& change : adapter.changes) {
    if (!change.lora || !change.weight) continue;
    const std::string in_module = "adapter: module " + change.module + ": ";
    const auto tensor = base.tensor(weight_name(change.module, base), {change.weight->rows, change.weight->columns});
    if (!tensor) {
      return fail(ErrorCode::unsupported,
                  in_module + "its base_layer.weight is not that of the model: " + tensor.error().message);
    }
    if (tensor->quantized == nullptr && !is_same(*change.weight, *tensor)) {
      return fail(ErrorCode::unsupported,
                  in_module +
                      "its base_layer.weight is not that of the model, so the adapter changes more than its "
                      "low-rank matrices do");
    }
    change.weight.reset();
  }
  return {};
}

}  // namespace pagoda::io
