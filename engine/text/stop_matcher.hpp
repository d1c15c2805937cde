#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pagoda::text {

/// The stop strings of one request as an Aho-Corasick automaton. Immutable: the sequences of the request share it.
/// Memory and build time grow with the total length of the strings.
class StopStrings {
 public:
  /// Empty strings never match.
  explicit StopStrings(const std::vector<std::string>& strings);

  bool empty() const { return nodes_.size() == 1; }

 private:
  friend class StopMatcher;
  using NodeId = std::int32_t;
  static constexpr NodeId kRoot = 0;

  struct Node {
    char byte = 0;
    NodeId child = -1;        // first child; a node's children are a list
    NodeId sibling = -1;      // next child of the same parent
    NodeId fallback = kRoot;  // the longest proper suffix of this node's text that is a node
    std::int32_t depth = 0;   // bytes of this node's text
    // First in the list of the strings that end here or at a node on the way of the fallbacks.
    std::int32_t string = -1;
    std::int32_t size = 0;  // bytes of that string
  };
  NodeId child(NodeId node, char byte) const;
  NodeId next(NodeId node, char byte) const;
  void insert(std::string_view string, std::int32_t index);
  void link_fallbacks();

  std::vector<Node> nodes_;
  std::array<NodeId, 256> root_children_{};
};

/// Looks for stop strings in the text of one sequence, which is pushed piece by piece. Copy it to fork the sequence.
///
/// The match that ends first in the text wins. If several end at the same byte, the first string in the list wins. So
/// the result does not depend on how the text is cut into pieces. Text that may be the start of a stop string is held
/// back until this is decided. If whole UTF-8 characters are pushed, whole characters are returned. O(1) amortised per
/// byte.
class StopMatcher {
 public:
  StopMatcher(std::shared_ptr<const StopStrings> strings, bool include_stop_string)
      : strings_(std::move(strings)), include_stop_string_(include_stop_string) {}

  struct Output {
    std::string text;  ///< text that may be given out now
    /// Index of the stop string that ended the sequence; `text` is then the last text of the sequence.
    std::optional<std::size_t> stop;
  };
  /// With `may_stop` false (a sequence still below min_tokens) no match may end within `piece`. Nothing may be pushed
  /// after a stop.
  Output push(std::string_view piece, bool may_stop = true);
  /// Returns the text that is still held back, at the end of a sequence that no stop string ended. Text that is pushed
  /// after it is searched on its own.
  std::string finish() {
    node_ = StopStrings::kRoot;
    return std::exchange(held_, {});
  }

 private:
  std::shared_ptr<const StopStrings> strings_;
  bool include_stop_string_;
  StopStrings::NodeId node_ = StopStrings::kRoot;
  std::string held_;  // the text of node_
};

}  // namespace pagoda::text
