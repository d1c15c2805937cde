#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "engine/request/request_spec.hpp"
#include "engine/scheduling/draft_outcomes.hpp"
#include "engine/scheduling/earlier_places.hpp"
#include "engine/scheduling/output_history.hpp"
#include "engine/scheduling/proposer.hpp"
#include "engine/speculation_config.hpp"
#include "engine/types.hpp"

namespace pagoda::scheduling {

/// Takes drafts from the text of the sequence: what followed its last tokens where they stood before. Answers that
/// repeat parts of their prompt, such as edited code, quotations and JSON, are mostly found this way (Saxena, "Prompt
/// Lookup Decoding", 2023). With a history, earlier outputs of the user are searched, too (as in Oliaro et al.,
/// "SuffixDecoding", 2024).
///
/// Several places may be found. Those count that agree with the end of the text in the most tokens, and each draft is
/// the token that most of them continue with. The chance of a draft is the share of these places, times the share of
/// drafts that were right lately where as many tokens agreed.
class LookupProposer final : public Proposer {
 public:
  /// `history` must outlive this object.
  LookupProposer(const SpeculationConfig& config, const RequestSpec& spec, const TokenIds& eos_token_ids,
                 const OutputHistory& history);

  void propose(const SequenceGroup& group, Sequence& sequence, std::size_t max_drafts, std::int32_t& new_tokens,
               std::vector<double>& chances) override;
  void on_result(SequenceId sequence, std::int32_t num_drafts, std::int32_t num_right) override;
  void on_fork(SequenceId parent, SequenceId child) override;
  void erase(SequenceId sequence) override { sequences_.erase(sequence); }
  void save(Encoder& out) const override;
  bool load(Decoder& in) override;

 private:
  /// Numbers of agreeing tokens are counted together by powers of two: 1, 2 to 3, 4 to 7, ...
  static constexpr std::size_t kMatchSizes = 7;
  /// Maximum number of places that count.
  static constexpr std::size_t kMaxPlaces = 4;

  struct State {
    std::array<DraftOutcomes, kMatchSizes> outcomes{};  ///< by the number of tokens that agreed
    std::uint32_t match_size = 0;                       ///< index in `outcomes` of the latest drafts
    // The rest follows from the tokens.
    std::optional<EarlierPlaces> in_output;
    TokenIds continuation;        ///< what probably follows the known tokens, at most max_length tokens
    std::int64_t max_length = 0;  ///< for as many there was room when the continuation was looked for
    std::vector<double> chances;  ///< that a token of the continuation and all before it are right
    std::int32_t num_known = 0;   ///< number of known tokens that the continuation belongs to; 0 = none
    std::int64_t version = 0;     ///< version of the history that it belongs to
    std::int32_t loaded_end = 0;  ///< EarlierPlaces::end() of a loaded state, which has no places yet; 0 = none

    static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.outcomes, self.match_size); }
  };

  /// Adds places of known tokens, and takes their number from `new_tokens`. Places that a saved state had cost nothing.
  /// Returns whether none is left to add.
  bool add_places(const SequenceGroup& group, const JoinedTokens& tokens, State& state, std::int32_t& new_tokens);
  /// Places of texts that agree with the end of the sequence in as many tokens.
  struct Found {
    struct Place {
      const JoinedTokens* text = nullptr;
      std::int32_t position = 0;
    };
    std::int32_t num_agreed = 0;
    std::array<Place, kMaxPlaces> places;
    std::size_t count = 0;
  };
  void find_continuation(const SequenceGroup& group, const JoinedTokens& tokens, std::int64_t max_length,
                         State& state) const;
  /// Adds the places of `text`, whose n-grams are in `earlier`, that agree with the end of `tokens` in at least as many
  /// tokens as those before. If they agree in more, they replace those.
  void find_places(const JoinedTokens& tokens, const JoinedTokens& text, const EarlierPlaces& earlier,
                   Found& found) const;

  const SpeculationConfig config_;
  const TokenIds ending_tokens_;  ///< are no drafts: nothing is behind them
  const OutputHistory& history_;
  EarlierPlaces in_prompt_;                ///< the same for all sequences
  std::int32_t loaded_end_of_prompt_ = 0;  ///< as State::loaded_end
  std::map<SequenceId, State> sequences_;
};

}  // namespace pagoda::scheduling
