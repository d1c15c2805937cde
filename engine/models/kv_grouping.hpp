#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/layers/attention.hpp"

namespace pagoda::models {

/// Layers that keep the same tokens in KV blocks of the same size: a KvGroup before block size and type are known.
struct KvShape {
  layers::AttentionShape attention;  ///< of each layer; with the window of the group
  std::int64_t num_layers = 0;
};

/// The layers of a model in KV groups.
struct KvGrouping {
  std::vector<KvShape> groups;          ///< groups without a window first
  std::vector<layers::KvPlace> places;  ///< place of each layer
};

/// Groups the layers by what they keep: layers with the same window and the same keys and values are alike. Blocks of
/// all groups have the same size, so alike layers are split into groups of about the same number of layers. That number
/// is the largest, up to the number of layers of the rarest kind, for which the unused parts of blocks take at most an
/// eighth of the memory of the layers.
KvGrouping group_layers(std::span<const layers::AttentionShape> layers);

}  // namespace pagoda::models
