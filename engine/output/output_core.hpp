#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/metrics/engine_metrics.hpp"
#include "engine/request/output.hpp"
#include "engine/request/request_spec.hpp"
#include "engine/step/codec.hpp"
#include "engine/step/outputs.hpp"
#include "engine/text/answer_stop_matcher.hpp"
#include "engine/text/detokenizer.hpp"
#include "engine/text/tokenizer.hpp"
#include "engine/types.hpp"
#include "engine/view/engine_view.hpp"
#include "engine/view/last.hpp"

namespace pagoda::output {

/// Turns sampled tokens into what clients see: detokenized text, stop strings, log-probabilities, and exactly one
/// terminal output per request. A plain state machine without actors or clocks. Not thread-safe: one owner.
///
/// The first token of a sequence has a delta of its own, the next ones have one for each stream_interval of them, and
/// the end of the sequence brings the rest: streams do not depend on how many tokens a step brings. What is told at the
/// end of a request alone is one delta for each sequence.
///
/// best_of > 1: outputs are returned best first, by the sum of the logprobs of their tokens, as vLLM ranks them. With
/// best_of == n deltas come as the tokens do, and an output's `index` stays that of its deltas. With best_of > n the n
/// best are numbered anew from 0: which they are is known at the end only, so all their text comes in the deltas beside
/// the terminal output; the usage counts the tokens of all best_of. Without best_of outputs come by index.
class OutputCore {
 public:
  static constexpr std::size_t kMaxEndedBytes = std::size_t{4} << 20;

  /// `max_ended_bytes`: of resumable requests that have ended, the last are kept that take no more than this together.
  explicit OutputCore(std::shared_ptr<const text::Tokenizer> tokenizer, std::size_t max_ended_bytes = kMaxEndedBytes)
      : tokenizer_(std::move(tokenizer)), max_ended_bytes_(max_ended_bytes) {}

  /// A request will produce outputs. Before its first StepOutputs. False, and it is not, where it is to go on from what
  /// no request with this tokenizer comes to.
  bool open(SharedSpec spec);

  struct Effects {
    std::vector<RequestOutput> outputs;  ///< at most one per request
    std::vector<StopHit> stop_hits;      ///< sequences that the scheduler does not know to have ended

    bool empty() const { return outputs.empty() && stop_hits.empty(); }
    static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.outputs, self.stop_hits); }
  };
  /// Outputs of requests that have ended (or were never opened) are dropped. A request with a terminal output is
  /// forgotten. `now`: for the timing of terminal outputs.
  Effects process(const StepOutputs& step, TimeUs now);

  /// Whether they are of sequences that requests have: of a step that was read from bytes.
  bool takes(const StepOutputs& step) const;

  std::size_t num_open() const { return requests_.size(); }

  /// A request that could be taken up again (RequestSpec::resume), as far as it has come.
  struct Resumable {
    SharedSpec spec;
    std::shared_ptr<const RequestProgress> progress;
    TimeUs until_us = 0;  ///< when one that has ended is forgotten
  };
  /// Those that are open, and those that have ended and may still be asked for; by their ids.
  std::vector<Resumable> resumable() const;
  /// From now on all that have ended are kept for their time, however many bytes they take.
  void keep_all_ended();

  /// What it has counted since it was made. Not part of its state: nothing follows from it.
  const metrics::RequestMetrics& metrics() const { return metrics_; }

  /// What it knows of those of the requests that are open, and the last that ended.
  view::RequestFacts facts(std::span<const RequestId> requests) const;

  /// The state as bytes (output_state.cpp): of each sequence what it has produced, from which its detokenizer and its
  /// stop matcher are made again.
  void save(Encoder& out) const { save(out, Saved::all); }
  /// Which requests a state has: those that a replay needs, or no more than a recovery needs.
  enum class Saved : std::uint8_t { all, resumable, live_resumable };
  void save(Encoder& out, Saved which) const;
  /// Of a core that has been told nothing. False for bytes that no core with this tokenizer has saved; it cannot be
  /// used then.
  bool load(Decoder& in);

 private:
  struct SequenceState {
    text::IncrementalDetokenizer detokenizer;
    text::AnswerStopMatcher stop_matcher;
    SequenceResult result;
    SequenceDelta delta;
    std::vector<SequenceDelta> told = {};  ///< before it: those of the step's tokens that others of the step follow
    bool ended = false;
    TimeUs last_token_us = -1;        ///< for the metrics
    std::int64_t num_characters = 0;  ///< that its tokens have made, those of stop strings included
  };
  struct RequestState {
    SharedSpec spec;
    std::vector<SequenceState> sequences;
    std::size_t num_ended = 0;
    TimeUs first_scheduled_us = -1;
    TimeUs first_token_us = -1;
    TimeUs last_token_us = -1;  ///< for the metrics
    std::int64_t cached_tokens = 0;
    std::int64_t preemptions = 0;
    std::int64_t restarts = 0;
    std::int64_t discarded_tokens = 0;  ///< of sequences that best_of did not choose: they were computed all the same
    Logprobs prompt_logprobs = Logprobs();  ///< empty when they were not asked
    bool touched = false;                   ///< has something to tell in this step

    /// What is not told by its sequences, between two steps.
    static constexpr auto visit_fields(auto& self, auto&& visit) {
      return visit(self.first_scheduled_us, self.first_token_us, self.cached_tokens, self.preemptions, self.restarts,
                   self.prompt_logprobs);
    }
  };

  /// One that has ended, of Resumable.
  struct Ended {
    SharedSpec spec;
    std::shared_ptr<const RequestProgress> progress;
    TimeUs until_us = 0;
  };

  static RequestProgress progress_of(const RequestState& request);
  void keep_ended(const RequestState& request, const std::optional<Error>& error, TimeUs now);
  void forget_ended(TimeUs now);
  void drop_oldest_ended();
  void take_facts(const StepOutputs& step);
  void count_token(RequestState& request, SequenceState& sequence, TimeUs sampled);
  void count_end(const RequestState& request, TimeUs now);
  void remember_end(const RequestState& request, std::optional<FinishReason> reason, TimeUs now);
  void take_token(RequestState& request, SequenceState& sequence, const SequenceOutput& output, Effects& effects);
  /// The text that a token of a sequence makes known, and the stop string that it completes.
  text::AnswerStopMatcher::Output push_token(const RequestSpec& spec, SequenceState& sequence, TokenId token,
                                             bool may_stop) const;
  static void take_text(SequenceState& sequence, text::AnswerStopMatcher::Output matched, const RequestSpec& spec,
                        Effects& effects);
  static void end_sequence(RequestState& request, SequenceState& sequence, FinishReason reason);
  /// Whether the delta that ends with the last token of a sequence, which has not ended, is complete.
  static bool is_delta_complete(const RequestSpec& spec, const SequenceState& sequence);
  void set_prompt_offsets(RequestState& request) const;
  static void put_best_first(RequestState& request);
  static void keep_best(RequestState& request);
  static void take_deltas(RequestState& request, RequestOutput& output);
  void finish(RequestState& request, TimeUs now, RequestOutput& output) const;
  bool load_request(Decoder& in);
  bool load_ended(Decoder& in);
  /// Makes of a new sequence one that has come to `result`. False when none of this request comes to that.
  bool restore(const RequestSpec& spec, SequenceResult result, bool ended, SequenceState& sequence) const;
  static void set_unsent(const RequestSpec& spec, SequenceState& sequence);

  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::size_t max_ended_bytes_;
  std::unordered_map<RequestId, RequestState> requests_;
  std::deque<Ended> ended_to_resume_;  ///< in the order of their ends
  std::size_t ended_bytes_ = 0;        ///< about what they take
  metrics::RequestMetrics metrics_;
  view::Last<view::EndedRequest, view::kMaxEnded> ended_;  ///< for who watches; no part of its state either
};

}  // namespace pagoda::output
