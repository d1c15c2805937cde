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

/// The masks of a sequence behind its first `num_tokens` generated tokens, and the tokens that follow from them.
struct MadeMask {
  SequenceId sequence = 0;
  std::int32_t course = 0;  ///< sequence::course when the mask was requested
  std::size_t num_tokens = 0;
  /// One mask, and one more behind each draft; 0 = any token may be sampled.
  std::int32_t num_masks = 0;
  JumpForwardTokens jump_forward;
  std::vector<std::uint32_t> words;  ///< kernels::mask_words of the vocabulary for each mask

  /// The words are not visited: they follow from the tokens, and a replay may lack the grammar.
  static constexpr auto visit_fields(auto& self, auto&& visit) {
    return visit(self.sequence, self.course, self.num_tokens, self.num_masks, self.jump_forward);
  }
};

class RequestMasks;

/// A job that makes the masks of one sequence. It holds plain values: any thread may run it, but jobs with the same key
/// must run one at a time.
struct MaskJob {
  RequestId request = 0;
  SequenceId sequence = 0;
  std::int32_t course = 0;
  SequenceId parent = 0;  ///< sequence that this one was forked from; 0 = none
  std::shared_ptr<RequestMasks> masks;
  bool begins_anew = false;         ///< whether `tokens` are all tokens that the sequence has generated
  std::size_t num_known = 0;        ///< number of generated tokens that earlier jobs brought
  TokenIds tokens;                  ///< generated tokens behind these
  TokenIds drafts;                  ///< drafts that run in the same step
  bool wants_jump_forward = false;  ///< whether JumpForwardTokens are useful
  std::int32_t max_drafts = 0;      ///< maximum number of drafts in these
  std::vector<SequenceId> ended;    ///< sequences of the request that need no more masks
  MadeMask made;                    ///< result so far

  /// Reads about `max_work` items of the grammar, and subtracts their number from `max_work`. Returns whether `made` is
  /// complete; if not, another call continues.
  bool run(std::uint64_t& max_work);
  bool has_grammar() const;
  const void* key() const;
};

/// Decides which tokens the sequences of a request may sample, by its grammar and its thinking budget, and which tokens
/// follow for certain. Only its jobs use it, one at a time. It follows each sequence by the tokens that the jobs bring.
class RequestMasks {
 public:
  RequestMasks(SharedSpec spec, const SchedulerConfig& config);

  const RequestSpec& spec() const { return *spec_; }
  const grammar::SharedGrammar& grammar() const { return grammar_; }
  /// Call when the request has ended: then waiting jobs need not run.
  void forget() { is_wanted_ = false; }
  bool is_wanted() const { return is_wanted_; }

 private:
  friend struct MaskJob;

  /// A text and its position in the grammar.
  struct GrammarPosition {
    std::optional<grammar::Matcher> matcher;
    TokenIds tokens;
    std::size_t num_accepted = 0;  ///< number of `tokens` that the matcher has accepted
    ThinkingProgress thinking;

    GrammarPosition fork() const;
  };
  struct FollowedSequence {
    std::int32_t course = 0;  ///< course of the last job
    GrammarPosition position;
    /// A continuation of the text that was examined ahead, and its masks by their number of tokens.
    std::optional<GrammarPosition> ahead;
    std::map<std::size_t, std::vector<std::uint32_t>> masks_ahead;

    void append(std::span<const TokenId> tokens);
  };

  /// Returns the beginning of a text, or a copy of the parent's position if the sequence continues from there.
  GrammarPosition begin(const MaskJob& job) const;
  /// Appends the job's tokens to its sequence. Returns null if the sequence has ended or has taken another course
  /// since.
  FollowedSequence* follow(MaskJob& job);
  bool make(MaskJob& job, std::uint64_t& max_work);
  /// Sets `mask` to the tokens that may follow all tokens of the sequence. Returns false if that takes more work.
  bool fill_next_mask(FollowedSequence& sequence, std::span<std::uint32_t> mask, std::uint64_t& max_work) const;
  /// Sets `mask` to the tokens that may follow the tokens of `position`. Returns false if that takes more work.
  bool fill_mask(GrammarPosition& position, std::span<std::uint32_t> mask, std::uint64_t& max_work) const;
  /// Sets `mask` to the tokens that may follow the sequence's tokens and `path`, and keeps the result for later use.
  /// Returns false if that takes more work.
  bool fill_mask_ahead(FollowedSequence& sequence, std::span<const TokenId> path, std::span<std::uint32_t> mask,
                       std::uint64_t& max_work) const;
  JumpForwardTokens propose(const MaskJob& job, FollowedSequence& sequence, TokenIds alternatives,
                            std::uint64_t& max_work) const;

  SharedSpec spec_;
  grammar::SharedGrammar grammar_;             ///< null if there is none, or if its vocabulary is not the model's
  std::vector<std::uint32_t> allowed_tokens_;  ///< mask of the request's allowed_token_ids; empty = all
  std::optional<ThinkingBudget> thinking_;
  std::vector<TokenId> eos_token_ids_;
  std::size_t num_words_ = 0;
  std::shared_ptr<grammar::MaskBudget> budget_ = std::make_shared<grammar::MaskBudget>();
  std::unordered_map<SequenceId, FollowedSequence> sequences_;
  std::unordered_set<SequenceId> ended_;
  std::atomic<bool> is_wanted_ = true;
};

/// Returns the ThinkingBudget of a request, if it has one and the marks are known.
std::optional<ThinkingBudget> thinking_budget_of(const RequestSpec& spec, const SchedulerConfig& config);

}  // namespace pagoda::scheduling
