#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "engine/scheduling/earlier_places.hpp"
#include "engine/scheduling/proposer.hpp"
#include "engine/speculation_config.hpp"
#include "engine/types.hpp"

namespace pagoda::scheduling {

/// Takes drafts from the text of the sequence itself: what followed its last tokens where they stood before. Answers
/// that repeat parts of their prompt, such as edited code, quotations and JSON, are mostly found this way (Saxena,
/// "Prompt Lookup Decoding", 2023).
///
/// Several places may be found. Those count that agree with the end of the text in the most tokens, and each draft is
/// the token that most of them continue with. The chance of a draft is the share of these places, times the share of
/// drafts that were right lately where as many tokens agreed.
class LookupProposer final : public Proposer {
 public:
  LookupProposer(const SpeculationConfig& config, const TokenIds& eos_token_ids);

  void propose(const SequenceGroup& group, Sequence& sequence, const DraftRoom& room,
               std::vector<double>& chances) override;
  void on_result(SequenceId sequence, std::int32_t num_drafts, std::int32_t num_right) override;
  void on_fork(SequenceId parent, SequenceId child) override;
  void erase(SequenceId sequence) override { sequences_.erase(sequence); }
  void save(Encoder& out) const override;
  bool load(Decoder& in) override;

 private:
  /// Numbers of agreeing tokens are counted together by powers of two: 1, 2 to 3, 4 to 7, ...
  static constexpr std::size_t kMatchSizes = 7;

  /// Counts of drafts, in which older ones fade.
  struct Outcomes {
    double right = 0;
    double wrong = 0;

    static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.right, self.wrong); }
  };

  struct State {
    std::array<Outcomes, kMatchSizes> outcomes{};  ///< by the number of tokens that agreed
    std::uint32_t match_size = 0;                  ///< index in `outcomes` of the latest drafts
    // The rest follows from the tokens.
    std::optional<EarlierPlaces> in_output;
    TokenIds continuation;        ///< what probably follows the known tokens
    std::vector<double> chances;  ///< that a token of the continuation and all before it are right
    std::int32_t num_known = 0;   ///< number of known tokens that the continuation belongs to; 0 = none
    std::int32_t loaded_end = 0;  ///< EarlierPlaces::end() of a loaded state, which has no places yet; 0 = none

    static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.outcomes, self.match_size); }
  };

  /// Adds places of known tokens, and takes their number from `new_tokens`. Places that a saved state had cost nothing.
  /// Returns whether none is left to add.
  bool add_places(const SequenceGroup& group, const JoinedTokens& tokens, State& state, std::int32_t& new_tokens);
  void find_continuation(const JoinedTokens& tokens, State& state) const;
  /// Adds places that agree in at least `agreed` tokens to `places`, latest first. If they agree in more than those
  /// before, they replace them. Returns in how many tokens the places agree.
  std::int32_t find_places(const JoinedTokens& tokens, const EarlierPlaces& earlier, std::int32_t agreed,
                           std::vector<std::int32_t>& places) const;

  const SpeculationConfig config_;
  const TokenIds eos_token_ids_;
  EarlierPlaces in_prompt_;                ///< the same for all sequences
  std::int32_t loaded_end_of_prompt_ = 0;  ///< as State::loaded_end
  std::map<SequenceId, State> sequences_;
};

}  // namespace pagoda::scheduling
