#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>
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
  /// The same of an `output` that the sequence may come to: what is found is kept for when it does.
  void fill_mask_ahead(SequenceId sequence, std::span<const TokenId> output, std::span<std::uint32_t> mask);
  /// Of a token, as the grammar reads it; empty where it has none.
  std::string_view bytes_of(TokenId token) const { return grammar_->bytes_of(token); }
  /// The child will go on with the parent's tokens: saves it to follow them anew.
  void fork(SequenceId parent, SequenceId child);
  void forget(SequenceId sequence);

 private:
  struct Place {
    grammar::Matcher matcher;
    TokenIds tokens;  ///< that it has accepted

    bool is_on_the_way_to(std::span<const TokenId> output) const;
    void fill_mask(std::span<const TokenId> output, std::span<std::uint32_t> mask);
  };
  struct PlaceAhead {
    Place place;
    std::map<std::size_t, std::vector<std::uint32_t>> masks;  ///< by how many of its tokens they follow
  };
  Place& place_of(SequenceId sequence, std::span<const TokenId> output);
  const std::vector<std::uint32_t>* known_mask(SequenceId sequence, std::span<const TokenId> output) const;

  grammar::SharedGrammar grammar_;
  std::shared_ptr<grammar::MaskBudget> budget_ = std::make_shared<grammar::MaskBudget>();
  std::unordered_map<SequenceId, Place> places_;
  std::unordered_map<SequenceId, PlaceAhead> ahead_;  ///< of sequences that something was looked up for
};

}  // namespace pagoda::scheduling
