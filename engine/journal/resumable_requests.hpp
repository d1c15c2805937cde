#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "engine/output/output_core.hpp"

namespace pagoda::journal {

/// Finds in a journal the requests that may be taken up again: those whose clients want to come back, as far as they
/// had come when the engine died. Requests that have ended are found while any record or state of the journal has them,
/// also where the engine's own core had no room for them any more. Only the output core is run, which knows all that
/// clients were told; what is damaged, or was written half, is passed over. Tokens that are missing for that come out
/// the same when they are computed again: a request that lacks a record goes on from the tokens before it.
class ResumableRequests {
 public:
  /// `tokenizer`: of the model that was served.
  explicit ResumableRequests(std::shared_ptr<const text::Tokenizer> tokenizer) : tokenizer_(std::move(tokenizer)) {}

  /// The records of all segments in their order.
  void record(std::span<const std::byte> bytes);
  /// Call where records are missing before the next one. The requests that are live stay as they are, for what comes
  /// next would leave a hole in their texts; those that begin later are followed.
  void on_gap();

  /// As far as the records go, by their ids.
  std::vector<output::OutputCore::Resumable> take() const;
  std::int64_t num_damaged() const { return num_damaged_; }

 private:
  bool enter(std::uint8_t what, Decoder& in);
  bool load(Decoder& in);

  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::unique_ptr<output::OutputCore> core_;  ///< null before its first state
  /// Requests that were live where records are missing; the next state tells which of them still are.
  std::map<RequestId, output::OutputCore::Resumable> live_before_gap_;
  /// Requests that had ended before the last state, which the core dropped for want of room.
  std::map<RequestId, output::OutputCore::Resumable> ended_before_;
  TimeUs now_ = 0;                ///< of the last step
  std::int64_t num_damaged_ = 0;  ///< records that could not be read
};

/// What a request that had come to `progress` has told of it: the deltas of each sequence in their order, one for each
/// token. Nothing of one that tells all at its end.
std::vector<SequenceDelta> sent_deltas(const std::shared_ptr<const text::Tokenizer>& tokenizer, const RequestSpec& spec,
                                       const RequestProgress& progress);

}  // namespace pagoda::journal
