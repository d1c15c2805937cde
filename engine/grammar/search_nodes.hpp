#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "engine/grammar/rules.hpp"

namespace pagoda::grammar {

/// A node of an Aho-Corasick automaton that searches free text for triggers and excluded texts.
struct SearchNode {
  std::map<std::uint8_t, std::size_t> children;
  std::size_t on_failure = 0;  ///< the node of its longest suffix that is a node
  bool is_excluded = false;
  std::optional<RuleId> rule;  ///< rule of the trigger that is complete here
};

/// Returns the nodes of free text, the root first. A trigger whose rule cannot end, according to `rule_ends`, is
/// excluded.
std::vector<SearchNode> search_nodes(const Expression& free_text, const std::vector<bool>& rule_ends);

}  // namespace pagoda::grammar
