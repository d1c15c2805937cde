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

/// Turns sampled tokens into the outputs of clients: detokenized text, stop strings, log-probabilities, and exactly one
/// terminal output per request. A plain state machine without actors or clocks. Not thread-safe: one owner.
///
/// The first token of a sequence has a delta of its own. The next tokens have one delta for each stream_interval of
/// them, and the end of the sequence brings the rest. So streams do not depend on the number of tokens that a step
/// brings. Outputs that are sent only at the end of a request have one delta for each sequence.
///
/// best_of > 1: outputs come best first, by the sum of the logprobs of their tokens, as vLLM ranks them. With best_of
/// == n, deltas come as the tokens do, and an output keeps the `index` of its deltas. With best_of > n, the n best are
/// known only at the end. They get new indices from 0, and all their text comes in the deltas beside the terminal
/// output; the usage counts the tokens of all best_of sequences. Without best_of, outputs come by index.
class OutputCore {
 public:
  static constexpr std::size_t kMaxEndedBytes = std::size_t{4} << 20;

  /// `max_ended_bytes`: maximum size of all resumable requests that have ended; the last ones that fit are kept.
  explicit OutputCore(std::shared_ptr<const text::Tokenizer> tokenizer, std::size_t max_ended_bytes = kMaxEndedBytes)
      : tokenizer_(std::move(tokenizer)), max_ended_bytes_(max_ended_bytes) {}

  /// Opens a request. Call before its first StepOutputs. Returns false and opens nothing if the request is to continue
  /// from progress that is impossible for a request with this tokenizer.
  bool open(SharedSpec spec);

  struct Effects {
    std::vector<RequestOutput> outputs;  ///< at most one per request
    std::vector<StopHit> stop_hits;      ///< sequences that the scheduler does not know to be ended

    bool empty() const { return outputs.empty() && stop_hits.empty(); }
    static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.outputs, self.stop_hits); }
  };
  /// Returns the outputs of a step. Outputs of requests that have ended, or were never opened, are dropped. A request
  /// is forgotten after its terminal output. `now` is for the times in terminal outputs.
  Effects process(const StepOutputs& step, TimeUs now);

  /// Returns whether the outputs belong to sequences of their requests. For outputs that were read from bytes.
  bool takes(const StepOutputs& step) const;

  std::size_t num_open() const { return requests_.size(); }

  /// Returns the open ones of the requests, each with its progress, for a scheduler that continues them.
  std::vector<SharedSpec> with_progress_of(std::span<const RequestId> requests) const;

  /// A request that could be resumed (RequestSpec::resume), with its progress.
  struct Resumable {
    SharedSpec spec;
    std::shared_ptr<const RequestProgress> progress;
    TimeUs until_us = 0;  ///< time when an ended request is forgotten
  };
  /// Returns the open requests, and the ended ones that can still be resumed, sorted by id.
  std::vector<Resumable> resumable() const;
  /// From now on, keeps all ended requests for their time, whatever their size.
  void keep_all_ended();

  /// Returns counts since this core was made. They are not part of its state: no output depends on them.
  const metrics::RequestMetrics& metrics() const { return metrics_; }

  /// Returns facts about those of the requests that are open, and about the last ended ones.
  view::RequestFacts facts(std::span<const RequestId> requests) const;

  /// Writes the state as bytes (output_state.cpp). It contains the output of each sequence, from which load makes the
  /// detokenizer and the stop matcher again.
  void save(Encoder& out) const { save(out, Saved::all); }
  /// The requests that a state contains: all that a replay needs, or only those that a recovery needs.
  enum class Saved : std::uint8_t { all, resumable, live_resumable };
  void save(Encoder& out, Saved which) const;
  /// Restores a saved state. The core must be unused. Returns false for bytes that no core with this tokenizer has
  /// saved; the core must not be used then.
  bool load(Decoder& in);

 private:
  struct SequenceState {
    text::IncrementalDetokenizer detokenizer;
    text::AnswerStopMatcher stop_matcher;
    SequenceResult result;
    SequenceDelta delta;
    /// Complete deltas before `delta`, of tokens of the step that are followed by others of the step.
    std::vector<SequenceDelta> complete_deltas = {};
    bool ended = false;
    TimeUs last_token_us = -1;        ///< time of its last token, for metrics
    std::int64_t num_characters = 0;  ///< number of characters of its tokens, those of stop strings included
  };
  struct RequestState {
    SharedSpec spec;
    std::vector<SequenceState> sequences;
    std::size_t num_ended = 0;
    TimeUs first_scheduled_us = -1;
    TimeUs first_token_us = -1;
    TimeUs last_token_us = -1;  ///< time of its last token, for metrics
    std::int64_t cached_tokens = 0;
    std::int64_t preemptions = 0;
    std::int64_t restarts = 0;
    std::int64_t draft_tokens = 0;
    std::int64_t drafts_accepted = 0;
    /// Number of computed tokens of sequences that best_of did not choose.
    std::int64_t discarded_tokens = 0;
    Logprobs prompt_logprobs = Logprobs();  ///< empty if not requested
    bool touched = false;                   ///< whether it has outputs in this step

    /// The state between two steps that does not follow from the sequences.
    static constexpr auto visit_fields(auto& self, auto&& visit) {
      return visit(self.first_scheduled_us, self.first_token_us, self.cached_tokens, self.preemptions, self.restarts,
                   self.draft_tokens, self.drafts_accepted, self.prompt_logprobs);
    }
  };

  /// A resumable request that has ended.
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
  /// Returns the text that a token of a sequence makes known, and the stop string that it completes.
  text::AnswerStopMatcher::Output push_token(const RequestSpec& spec, SequenceState& sequence, TokenId token,
                                             bool may_stop) const;
  static void take_text(SequenceState& sequence, text::AnswerStopMatcher::Output matched, const RequestSpec& spec,
                        Effects& effects);
  static void end_sequence(RequestState& request, SequenceState& sequence, FinishReason reason);
  /// Returns whether the delta that ends with the last token of an unfinished sequence is complete.
  static bool is_delta_complete(const RequestSpec& spec, const SequenceState& sequence);
  void set_prompt_offsets(RequestState& request) const;
  static void put_best_first(RequestState& request);
  static void keep_best(RequestState& request);
  static void take_deltas(RequestState& request, RequestOutput& output);
  void finish(RequestState& request, TimeUs now, RequestOutput& output) const;
  bool load_request(Decoder& in);
  bool load_ended(Decoder& in);
  /// Sets a new sequence to the state with this result. Returns false if no sequence of the request can have it.
  bool restore(const RequestSpec& spec, SequenceResult result, bool ended, SequenceState& sequence) const;
  static void set_unsent(const RequestSpec& spec, SequenceState& sequence);

  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::size_t max_ended_bytes_;
  std::unordered_map<RequestId, RequestState> requests_;
  std::deque<Ended> ended_to_resume_;  ///< in the order of their ends
  std::size_t ended_bytes_ = 0;        ///< approximate size of these
  metrics::RequestMetrics metrics_;
  view::Last<view::EndedRequest, view::kMaxEnded> ended_;  ///< for observers; not part of the saved state
};

}  // namespace pagoda::output
