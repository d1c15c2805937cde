#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/weights/weight_source.hpp"
#include "kernels/dtype.hpp"

namespace pagoda::layers {

/// Index of a module among AdapterModules::all.
using ModuleId = std::int32_t;
inline constexpr ModuleId kNoModule = -1;

/// A module of a model that adapters can change.
struct AdapterModule {
  enum class Kind : std::uint8_t {
    linear,     ///< weight [out_features, in_features]
    embedding,  ///< table [in_features, out_features]: in_features is the size of the vocabulary
    head,       ///< like linear; an adapter may replace its weight
  };

  std::string name;  ///< full name as in a Hugging Face checkpoint, for example "model.layers.0.self_attn.q_proj"
  Kind kind = Kind::linear;
  std::int64_t in_features = 0;
  std::int64_t out_features = 0;
  std::int64_t row_width = 0;         ///< width of an output row of its layer, in which its columns are a part
  weights::LinearWeight weight = {};  ///< of the base; has no data if the model was built over weights without data
  const void* bias = nullptr;         ///< [out_features], of the base
  DType bias_dtype = DType::f32;
  bool has_bias = false;
};

/// The keys and values that each layer of a model keeps for a token.
struct ModelKv {
  std::int64_t num_layers = 0;
  std::int64_t num_heads = 0;
  std::int64_t head_dim = 0;

  std::int64_t width() const { return num_heads * head_dim; }
};

/// The modules of a model, collected while the model takes its weights. A module is known by its own name even if it
/// shares its weight with another module: a head tied to the embedding changes alone, as in peft.
class AdapterModules {
 public:
  ModuleId add(AdapterModule module);
  /// Notes that the model has the module `name`. It cannot be changed unless it is also added.
  void note(std::string_view name) { names_.emplace(name); }

  const std::vector<AdapterModule>& all() const { return all_; }
  const AdapterModule& operator[](ModuleId id) const { return all_[static_cast<std::size_t>(id)]; }
  /// Returns the module `name`, or kNoModule.
  ModuleId find(std::string_view name) const;
  /// Returns whether the model has a module `name`, whether or not adapters can change it.
  bool has(std::string_view name) const { return names_.contains(name); }

  /// The keys and values that a prefix replaces (PromptWeights).
  const ModelKv& kv() const { return kv_; }
  void set_kv(const ModelKv& kv) { kv_ = kv; }
  /// The width of the embeddings of tokens, which a later stage of the model knows without having them.
  std::int64_t embedding_width() const { return embedding_width_; }
  void set_embedding_width(std::int64_t width) { embedding_width_ = width; }

 private:
  std::vector<AdapterModule> all_;
  std::map<std::string, ModuleId, std::less<>> ids_;
  std::set<std::string, std::less<>> names_;
  ModelKv kv_;
  std::int64_t embedding_width_ = 0;
};

}  // namespace pagoda::layers
