#include "engine/models/kv_grouping.hpp"

#include <algorithm>
#include <map>
#include <tuple>

namespace pagoda::models {

KvGrouping group_layers(std::span<const layers::AttentionShape> layers) {
  const auto kind_of = [](const layers::AttentionShape& layer) { return std::tuple(layer.window, layer.kv_width()); };
  std::map<std::tuple<std::int32_t, std::int64_t>, std::vector<std::size_t>> kinds;  // layers without a window first
  for (std::size_t i = 0; i < layers.size(); ++i) kinds[kind_of(layers[i])].push_back(i);

  std::size_t group_size = layers.size();
  for (const auto& [kind, members] : kinds) group_size = std::min(group_size, members.size());
  const auto num_unused = [&] {
    std::size_t unused = 0;
    for (const auto& [kind, members] : kinds) unused += (group_size - members.size() % group_size) % group_size;
    return unused;
  };
  while (group_size > 1 && 8 * num_unused() > layers.size()) --group_size;

  KvGrouping grouping;
  grouping.places.resize(layers.size());
  for (const auto& [kind, members] : kinds) {
    for (std::size_t i = 0; i < members.size(); ++i) {
      if (i % group_size == 0) grouping.groups.push_back({layers[members[i]], 0});
      KvShape& group = grouping.groups.back();
      grouping.places[members[i]] = {static_cast<KvGroupId>(grouping.groups.size() - 1),
                                     static_cast<std::int32_t>(group.num_layers++),
                                     static_cast<std::int32_t>(members[i])};
    }
  }
  return grouping;
}

}  // namespace pagoda::models
