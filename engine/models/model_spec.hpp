#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "engine/layers/attention.hpp"
#include "engine/models/decoder_config.hpp"
#include "engine/models/draft_head.hpp"
#include "engine/models/kv_grouping.hpp"
#include "engine/models/model.hpp"
#include "engine/step/kv_layout.hpp"
#include "engine/types.hpp"
#include "engine/weights/weight_source.hpp"
#include "kernels/dtype.hpp"

namespace pagoda::models {

/// A fact about a model for its users: a name and a value.
using Fact = std::pair<std::string, std::variant<std::int64_t, bool, std::string>>;

/// All that is known about a model before its weights are loaded, and the function that builds it. The model's family
/// makes it from a config.
struct ModelSpec {
  std::string architecture;  ///< architectures[0] of config.json, for example "LlamaForCausalLM"
  std::int64_t vocab_size = 0;
  std::int64_t max_position_embeddings = 0;  ///< positions of the config; the default of max_model_len
  std::int64_t position_limit = 0;           ///< largest max_model_len that is allowed
  bool tie_word_embeddings = false;          ///< whether the head is the embedding, even if a checkpoint has both
  /// The values that the family read. A GGUF file is written from them.
  DecoderConfig decoder;
  std::vector<KvShape> kv;                   ///< see KvGrouping::groups
  std::optional<DraftHeadFacts> draft_head;  ///< set if this is no model but a DraftHead, which its builder returns
  std::vector<Fact> facts;                   ///< sizes and choices of the family, for `pagoda inspect`

  /// Takes the weights where they lie in the source, which must outlive the model, and checks their shapes. Allocates
  /// nothing, so with weights::MeasuredWeights it only counts bytes. Errors: missing or misshapen tensors (bad_file);
  /// errors of the source.
  Result<std::unique_ptr<Model>> build(const weights::WeightSource& source) const { return builder(source, place); }
  /// The family's function, which build calls.
  std::function<Result<std::unique_ptr<Model>>(const weights::WeightSource&, const RankPlace&)> builder;

  RankPlace place;  ///< the rank whose part of the model this is
  /// Returns the part of this whole model that one of several ranks computes. If they divide layers, it is built over
  /// weights::RankWeights. Ranks exchange rows while they run (Model::connect).
  ModelSpec of_rank(const RankPlace& rank) const;
  /// Returns the maximum number of floats that a rank exchanges with those of its stage at a time.
  std::int64_t largest_exchange(const layers::ModelLimits& limits) const;

  // Fields that every family's config has.
  DType checkpoint_dtype = DType::f32;  ///< torch_dtype
  std::optional<TokenId> bos_token_id;
  std::vector<TokenId> eos_token_ids;  ///< generation_config.json wins over config.json

  /// Returns the layout of the model's KV in blocks of `block_size` tokens.
  KvLayout kv_layout(std::int32_t block_size, DType kv_dtype) const;
};

/// Builds a model and allocates its memory. Errors: limits below 1 or above the model's (bad_config); errors of build
/// and allocate.
Result<std::unique_ptr<Model>> create_model(const ModelSpec& spec, const weights::WeightSource& weights,
                                            std::shared_ptr<kernels::Device> device, const layers::ModelLimits& limits);

}  // namespace pagoda::models
