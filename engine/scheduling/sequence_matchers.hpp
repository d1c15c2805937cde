#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "engine/grammar/compiled_grammar.hpp"
#include "engine/types.hpp"

namespace pagoda::scheduling {

/// Where the sequences of a group are in its grammar. A matcher follows the tokens that its sequence has when a mask is
/// asked for, whatever has happened to these since: nothing else needs to tell it of forks, preemptions or restarts.
class SequenceMatchers {
 public:
  explicit SequenceMatchers(grammar::SharedGrammar grammar) : grammar_(std::move(grammar)) {}

  /// Sets `mask`, kernels::mask_words of the vocabulary, to the tokens that may follow `output`, all that the sequence
  /// has generated. Nothing may follow what the grammar does not allow.
  void fill_mask(SequenceId sequence, std::span<const TokenId> output, std::span<std::uint32_t> mask);
  /// The child will go on with the parent's tokens: saves it to follow them anew.
  void fork(SequenceId parent, SequenceId child);
  void forget(SequenceId sequence) { places_.erase(sequence); }

 private:
  struct Place {
    grammar::Matcher matcher;
    TokenIds tokens;  ///< that it has accepted
  };
  Place& place_of(SequenceId sequence, std::span<const TokenId> output);

  grammar::SharedGrammar grammar_;
  std::unordered_map<SequenceId, Place> places_;
};

}  // namespace pagoda::scheduling
