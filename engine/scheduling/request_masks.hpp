#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "engine/grammar/compiled_grammar.hpp"
#include "engine/request/request_spec.hpp"
#include "engine/request/thinking_budget.hpp"
#include "engine/scheduling/jump_forward_tokens.hpp"
#include "engine/scheduling/scheduler_config.hpp"
#include "engine/types.hpp"

namespace pagoda::scheduling {

/// The masks of a sequence behind its first `num_tokens` generated tokens, and what follows from them.
struct MadeMask {
  SequenceId sequence = 0;
  std::int32_t course = 0;  ///< Sequence::course when it was asked for
  std::size_t num_tokens = 0;
  /// One, and one more behind each draft; 0 where any token may be sampled.
  std::int32_t num_masks = 0;
  JumpForwardTokens jump_forward;
  std::vector<std::uint32_t> words;  ///< kernels::mask_words of the vocabulary for each mask

  /// Without the words: they follow from the tokens, and a replay may lack the grammar.
  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.sequence, self.course, self.num_tokens, self.num_masks, self.jump_forward);
  }
};

class RequestMasks;

/// Asks for the masks of one sequence. Plain values: any thread may run it, but jobs with the same key one at a time.
struct MaskJob {
  RequestId request = 0;
  SequenceId sequence = 0;
  std::int32_t course = 0;
  SequenceId parent = 0;  ///< that the sequence has forked from; 0 = none
  std::shared_ptr<RequestMasks> masks;
  bool begins_anew = false;         ///< `tokens` are all that the sequence has generated
  std::size_t num_known = 0;        ///< generated tokens of the sequence that earlier jobs brought
  TokenIds tokens;                  ///< those behind
  TokenIds drafts;                  ///< that run in the same step
  bool wants_jump_forward = false;  ///< JumpForwardTokens are of use
  std::int32_t most_drafts = 0;     ///< of these
  std::vector<SequenceId> ended;    ///< sequences of the request that need no more masks
  MadeMask made;                    ///< as far as it is

  /// Looks at about `max_work` items of the grammar and lowers `max_work` by those. Returns whether `made` is complete;
  /// if not, another call goes on.
  bool run(std::uint64_t& max_work);
  bool has_grammar() const;
  const void* key() const;
};

/// Which tokens the sequences of a request may sample, by its grammar and its thinking budget, and which ones follow
/// for certain. Used by its jobs alone, one at a time: it follows each sequence by the tokens that they bring.
class RequestMasks {
 public:
  RequestMasks(SharedSpec spec, const SchedulerConfig& config);

  const RequestSpec& spec() const { return *spec_; }
  const grammar::SharedGrammar& grammar() const { return grammar_; }
  /// The request has ended: jobs that wait need not be run.
  void forget() { is_wanted_ = false; }
  bool is_wanted() const { return is_wanted_; }

 private:
  friend struct MaskJob;

  /// A text, and where it is in the grammar.
  struct Place {
    std::optional<grammar::Matcher> matcher;
    TokenIds tokens;
    std::size_t num_accepted = 0;  ///< of them, by the matcher
    ThinkingProgress thinking;

    Place fork() const;
  };
  struct FollowedSequence {
    std::int32_t course = 0;  ///< of the last job
    Place place;
    /// A text that goes on from there and was looked at ahead, and the masks behind so many of its tokens.
    std::optional<Place> ahead;
    std::map<std::size_t, std::vector<std::uint32_t>> masks_ahead;

    void append(std::span<const TokenId> tokens);
  };

  /// Returns where the texts of all sequences begin, or as far as the parent of a sequence has come on its way.
  Place begin(const MaskJob& job) const;
  /// Brings the job's tokens to its sequence; null where that has taken another course since.
  FollowedSequence* follow(MaskJob& job);
  bool make(MaskJob& job, std::uint64_t& max_work);
  /// Sets `mask` to the tokens that may follow all of the sequence's; false where that takes more work.
  bool fill_next_mask(FollowedSequence& sequence, std::span<std::uint32_t> mask, std::uint64_t& max_work) const;
  /// Sets `mask` to the tokens that may follow the place's; false where that takes more work.
  bool fill_mask(Place& place, std::span<std::uint32_t> mask, std::uint64_t& max_work) const;
  /// Likewise of the tokens that follow the sequence's by `path`. What is found is kept for when it comes to them.
  bool fill_mask_ahead(FollowedSequence& sequence, std::span<const TokenId> path, std::span<std::uint32_t> mask,
                       std::uint64_t& max_work) const;
  JumpForwardTokens propose(const MaskJob& job, FollowedSequence& sequence, TokenIds alternatives,
                            std::uint64_t& max_work) const;

  SharedSpec spec_;
  grammar::SharedGrammar grammar_;             ///< null where the vocabulary is another than the model's, too
  std::vector<std::uint32_t> allowed_tokens_;  ///< a mask of the request's allowed_token_ids; empty = all
  std::optional<ThinkingBudget> thinking_;
  std::vector<TokenId> eos_token_ids_;
  std::size_t num_words_ = 0;
  std::shared_ptr<grammar::MaskBudget> budget_ = std::make_shared<grammar::MaskBudget>();
  std::unordered_map<SequenceId, FollowedSequence> sequences_;
  std::unordered_set<SequenceId> ended_;
  std::atomic<bool> is_wanted_ = true;
};

/// The ThinkingBudget of a request that has one.
std::optional<ThinkingBudget> thinking_budget_of(const RequestSpec& spec, const SchedulerConfig& config);

}  // namespace pagoda::scheduling
