#include "engine/grammar/search_nodes.hpp"

#include <deque>
#include <string>

namespace pagoda::grammar {

std::vector<SearchNode> search_nodes(const Expression& free_text, const std::vector<bool>& rule_ends) {
  std::vector<SearchNode> nodes(1);
  const auto node_of = [&](const std::string& text) -> SearchNode& {
    std::size_t node = 0;
    for (const char c : text) {
      const auto [child, is_new] = nodes[node].children.try_emplace(static_cast<std::uint8_t>(c), nodes.size());
      node = child->second;
      if (is_new) nodes.emplace_back();
    }
    return nodes[node];
  };
  for (const std::string& text : free_text.excluded) node_of(text).is_excluded = true;
  for (const Trigger& trigger : free_text.triggers) {
    SearchNode& node = node_of(trigger.text);
    if (!rule_ends[static_cast<std::size_t>(trigger.rule)]) {
      node.is_excluded = true;  // nothing could follow the trigger
    } else {
      node.rule = trigger.rule;
    }
  }
  std::deque<std::size_t> pending{0};
  while (!pending.empty()) {
    const std::size_t id = pending.front();
    pending.pop_front();
    for (const auto& [byte, child] : nodes[id].children) {
      std::size_t suffix = id;
      do {
        if (suffix == 0) break;
        suffix = nodes[suffix].on_failure;
      } while (!nodes[suffix].children.contains(byte));
      const auto found = nodes[suffix].children.find(byte);
      SearchNode& node = nodes[child];
      node.on_failure = found == nodes[suffix].children.end() || found->second == child ? 0 : found->second;
      // A text that ends with an excluded text is excluded, and a trigger is found in a text that ends with the
      // trigger.
      node.is_excluded |= nodes[node.on_failure].is_excluded;
      if (!node.rule) node.rule = nodes[node.on_failure].rule;
      pending.push_back(child);
    }
  }
  return nodes;
}

}  // namespace pagoda::grammar
