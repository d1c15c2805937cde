#include "io/model_files/gguf/gguf_names.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include "engine/models/families.hpp"
#include "io/model_files/file_text.hpp"

namespace pagoda::io {
namespace {

constexpr std::string_view kLayerPrefix = "blk.";

/// The order in which they are packed into one module.
constexpr std::array<std::string_view, 3> kQkv{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"};

using models::GgufModule;

/// Returns the module of a layer for which `fits` holds; null when there is none.
template <class Fits>
const GgufModule* find_in_layers(const GgufArchitecture& architecture, Fits fits) {
  for (const auto modules : {architecture.own_layers, architecture.layers}) {
    const auto found = std::ranges::find_if(modules, fits);
    if (found != modules.end()) return &*found;
  }
  return nullptr;
}

std::optional<std::string> module_name(const GgufArchitecture& architecture, std::string_view module) {
  if (!module.starts_with(architecture.layer_prefix)) {
    const auto found = std::ranges::find(architecture.outer, module, &GgufModule::hugging_face);
    if (found == architecture.outer.end()) return std::nullopt;
    return std::string(found->gguf);
  }
  const auto in_layers = module.substr(architecture.layer_prefix.size());
  const auto dot = in_layers.find('.');
  if (dot == in_layers.npos) return std::nullopt;
  const auto* found = find_in_layers(
      architecture, [&](const GgufModule& known) { return known.hugging_face == in_layers.substr(dot + 1); });
  if (found == nullptr) return std::nullopt;
  return std::string(kLayerPrefix) + std::string(in_layers.substr(0, dot)) + "." + std::string(found->gguf);
}

}  // namespace

Result<const GgufArchitecture*> find_gguf_architecture(const GgufFile& file) {
  constexpr const char* kKey = "general.architecture";
  const auto name = file.get<std::string_view>(kKey);
  if (!name) return fail(name.error());
  if (!*name) return file.bad(kKey, "is missing");
  if (const auto* found = models::find_gguf_architecture(**name)) return found;
  return file.bad(kKey, quote(**name) + " is not supported; supported are " + gguf_architecture_names(),
                  ErrorCode::unsupported);
}

std::string gguf_architecture_names() {
  std::string names;
  for (const auto& name : models::gguf_architectures()) names.append(names.empty() ? "" : ", ").append(name);
  return names;
}

std::vector<models::GgufKey> gguf_keys(const GgufArchitecture& architecture) {
  std::vector<models::GgufKey> keys(architecture.keys.begin(), architecture.keys.end());
  keys.push_back(architecture.norm_eps);
  keys.insert(keys.end(), architecture.own_keys.begin(), architecture.own_keys.end());
  return keys;
}

std::optional<std::string> gguf_tensor_name(const GgufArchitecture& architecture, std::string_view name) {
  const auto dot = name.rfind('.');
  if (dot == name.npos) return std::nullopt;
  const std::string_view module = name.substr(0, dot);
  auto gguf_name = module_name(architecture, module);
  if (!gguf_name && !architecture.optional_module.empty()) {
    gguf_name = module_name(architecture, std::string(architecture.optional_module).append(module));
  }
  if (gguf_name) gguf_name->append(name.substr(dot));
  return gguf_name;
}

std::optional<std::string> hugging_face_tensor_name(const GgufArchitecture& architecture, std::string_view name,
                                                    bool packs_gate) {
  const auto dot = name.rfind('.');
  if (dot == name.npos) return std::nullopt;
  const std::string_view module = name.substr(0, dot);
  const std::string_view ending = name.substr(dot);
  if (!module.starts_with(kLayerPrefix)) {
    const auto found = std::ranges::find(architecture.outer, module, &GgufModule::gguf);
    if (found == architecture.outer.end()) return std::nullopt;
    return std::string(found->hugging_face).append(ending);
  }
  const auto end = module.find('.', kLayerPrefix.size());
  if (end == module.npos) return std::nullopt;
  const std::string_view number = module.substr(kLayerPrefix.size(), end - kLayerPrefix.size());
  const std::string_view in_layer = module.substr(end + 1);
  const auto* found = find_in_layers(architecture, [&](const GgufModule& known) {
    return known.gguf == in_layer && !(packs_gate && known.hugging_face == "mlp.up_proj");
  });
  if (found == nullptr) return std::nullopt;
  return std::string(architecture.layer_prefix).append(number).append(".").append(found->hugging_face).append(ending);
}

std::optional<std::string> hugging_face_tensor_name(const GgufArchitecture& architecture, std::string_view name,
                                                    const GgufFile& file) {
  constexpr std::string_view kUp = ".ffn_up.";
  const auto up = name.find(kUp);
  const bool packs_gate =
      up != name.npos && file.tensor(std::string(name.substr(0, up)) + ".ffn_gate.weight") == nullptr;
  return hugging_face_tensor_name(architecture, name, packs_gate);
}

Result<GgufHeads> read_gguf_heads(const GgufFile& file, const GgufArchitecture& architecture) {
  const auto read = [&](const char* name, std::int64_t otherwise) -> Result<std::int64_t> {
    const std::string key = std::string(architecture.name) + ".attention." + name;
    const auto heads = file.get<std::int64_t>(key);
    if (!heads) return fail(heads.error());
    const std::int64_t count = heads->value_or(otherwise);
    if (count < 1 || count > models::kMaxHeads) {
      return file.bad(key, "must be from 1 to " + std::to_string(models::kMaxHeads), ErrorCode::bad_config);
    }
    return count;
  };
  const auto queries = read("head_count", 1);
  if (!queries) return fail(queries.error());
  const auto keys = read("head_count_kv", *queries);
  if (!keys) return fail(keys.error());
  return GgufHeads{*queries, *keys};
}

std::vector<GgufRowRange> gguf_tensors_of(const GgufArchitecture& architecture, std::string_view name,
                                          std::int64_t num_rows, const GgufHeads& heads) {
  if (auto gguf_name = gguf_tensor_name(architecture, name)) return {{std::move(*gguf_name), 0, num_rows}};
  const std::int64_t num_heads = heads.queries + 2 * heads.keys;
  const std::size_t packed = architecture.packed_qkv.empty() ? name.npos : name.find(architecture.packed_qkv);
  if (packed == name.npos || num_heads < 1 || num_rows % num_heads != 0) return {};
  std::vector<GgufRowRange> ranges;
  std::int64_t first_row = 0;
  for (const std::string_view module : kQkv) {
    const std::int64_t count = module == kQkv.front() ? heads.queries : heads.keys;
    std::string alone(name);
    alone.replace(packed, architecture.packed_qkv.size(), module);
    auto gguf_name = gguf_tensor_name(architecture, alone);
    if (!gguf_name) return {};
    const std::int64_t rows = num_rows / num_heads * count;
    ranges.push_back({std::move(*gguf_name), first_row, rows});
    first_row += rows;
  }
  return ranges;
}

std::optional<GgufPackedTensor> packed_tensor_of(const GgufArchitecture& architecture, std::string_view name) {
  if (architecture.packed_qkv.empty()) return std::nullopt;
  const auto* const module =
      std::ranges::find_if(kQkv, [&](std::string_view each) { return name.find(each) != name.npos; });
  if (module == kQkv.end()) return std::nullopt;
  const auto with = [&](std::string_view other) {
    return std::string(name).replace(name.find(*module), module->size(), other);
  };
  GgufPackedTensor packed{with(architecture.packed_qkv), {}};
  for (const std::string_view part : kQkv) packed.parts.push_back(gguf_tensor_name(architecture, with(part)).value());
  return packed;
}

bool includes_one(const GgufArchitecture& architecture, std::string_view name) {
  return architecture.norms_include_one && name.ends_with("_norm.weight");
}

bool is_transposed_in_folders(const GgufArchitecture& architecture, std::string_view name) {
  return architecture.untransposed && name.starts_with(kLayerPrefix);
}

std::int64_t interleaved_heads(const GgufArchitecture& architecture, std::string_view name, const GgufHeads& heads) {
  if (!architecture.interleaved_heads) return 0;
  if (name.find(".attn_q.") != name.npos) return heads.queries;
  if (name.find(".attn_k.") != name.npos) return heads.keys;
  return 0;
}

std::int64_t interleaved_row(std::int64_t row, std::int64_t head_dim) {
  // Row i of half `half` of a head is stored at row 2i + half.
  const std::int64_t in_head = row % head_dim;
  const std::int64_t half = head_dim / 2;
  return row - in_head + 2 * (in_head % half) + in_head / half;
}

}  // namespace pagoda::io
