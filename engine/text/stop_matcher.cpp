#include "engine/text/stop_matcher.hpp"

#include <utility>

namespace pagoda::text {

StopStrings::StopStrings(const std::vector<std::string>& strings) : nodes_(1) {
  root_children_.fill(-1);
  for (std::size_t i = 0; i < strings.size(); ++i) {
    if (!strings[i].empty()) insert(strings[i], static_cast<std::int32_t>(i));
  }
  link_fallbacks();
}

StopStrings::NodeId StopStrings::child(NodeId node, char byte) const {
  if (node == kRoot) return root_children_[static_cast<std::uint8_t>(byte)];
  NodeId found = nodes_[static_cast<std::size_t>(node)].child;
  while (found >= 0 && nodes_[static_cast<std::size_t>(found)].byte != byte) {
    found = nodes_[static_cast<std::size_t>(found)].sibling;
  }
  return found;
}

StopStrings::NodeId StopStrings::next(NodeId node, char byte) const {
  NodeId found = child(node, byte);
  while (found < 0 && node != kRoot) {
    node = nodes_[static_cast<std::size_t>(node)].fallback;
    found = child(node, byte);
  }
  return found < 0 ? kRoot : found;
}

void StopStrings::insert(std::string_view string, std::int32_t index) {
  NodeId node = kRoot;
  for (const char byte : string) {
    NodeId found = child(node, byte);
    if (found < 0) {
      found = static_cast<NodeId>(nodes_.size());
      Node fresh;
      fresh.byte = byte;
      Node& parent = nodes_[static_cast<std::size_t>(node)];
      fresh.depth = parent.depth + 1;
      if (node == kRoot) root_children_[static_cast<std::uint8_t>(byte)] = found;
      fresh.sibling = std::exchange(parent.child, found);
      nodes_.push_back(fresh);
    }
    node = found;
  }
  Node& last = nodes_[static_cast<std::size_t>(node)];
  if (last.string < 0) {
    last.string = index;
    last.size = static_cast<std::int32_t>(string.size());
  }
}

// Breadth first, so that a node's fallback, which is shallower, is finished before the node.
void StopStrings::link_fallbacks() {
  std::vector<NodeId> queue{kRoot};
  for (std::size_t head = 0; head < queue.size(); ++head) {
    const NodeId parent = queue[head];
    for (NodeId id = nodes_[static_cast<std::size_t>(parent)].child; id >= 0;
         id = nodes_[static_cast<std::size_t>(id)].sibling) {
      Node& node = nodes_[static_cast<std::size_t>(id)];
      if (parent != kRoot) node.fallback = next(nodes_[static_cast<std::size_t>(parent)].fallback, node.byte);
      const Node& suffix = nodes_[static_cast<std::size_t>(node.fallback)];
      if (suffix.string >= 0 && (node.string < 0 || suffix.string < node.string)) {
        node.string = suffix.string;
        node.size = suffix.size;
      }
      queue.push_back(id);
    }
  }
}

StopMatcher::Output StopMatcher::push(std::string_view piece, bool may_stop) {
  const std::size_t held_before = held_.size();
  held_ += piece;
  for (std::size_t i = held_before; i < held_.size(); ++i) {
    node_ = strings_->next(node_, held_[i]);
    const StopStrings::Node& node = strings_->nodes_[static_cast<std::size_t>(node_)];
    if (node.string < 0 || !may_stop) continue;
    held_.resize(include_stop_string_ ? i + 1 : i + 1 - static_cast<std::size_t>(node.size));
    return {finish(), static_cast<std::size_t>(node.string)};
  }
  const auto keep = static_cast<std::size_t>(strings_->nodes_[static_cast<std::size_t>(node_)].depth);
  Output output{std::move(held_), std::nullopt};
  held_ = output.text.substr(output.text.size() - keep);
  output.text.resize(output.text.size() - keep);
  return output;
}

}  // namespace pagoda::text
