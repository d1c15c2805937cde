#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "engine/output/output_core.hpp"

namespace pagoda::journal {

/// Finds in a journal the requests that can be resumed: those whose clients want to come back, with the progress that
/// they had when the engine died. A request that has ended is found while any record or state of the journal has it,
/// even if the engine's own core had no room for it any more. Only the output core is run, which knows all that clients
/// received. Damaged and half-written records are skipped. Missing tokens are the same when they are computed again: a
/// request that lacks a record goes on from the tokens before it.
///
/// Memory grows with the bytes of the records. A few bytes can open a request of thousands of sequences, so requests
/// are left out above kMaxSequences and one for each kBytesOfSequence that were read.
class ResumableRequests {
 public:
  static constexpr std::size_t kMaxSequences = std::size_t{1} << 17;
  static constexpr std::size_t kBytesOfSequence = 64;

  /// `tokenizer`: that of the served model.
  explicit ResumableRequests(std::shared_ptr<const text::Tokenizer> tokenizer) : tokenizer_(std::move(tokenizer)) {}

  /// Takes the next record. Pass the records of all segments in their order.
  void record(std::span<const std::byte> bytes);
  /// Call where records are missing before the next record. Live requests stay as they are, because the next records
  /// would leave a hole in their texts. Requests that begin later are followed.
  void on_gap();

  /// Returns the requests as they are after the last record, ordered by id.
  std::vector<output::OutputCore::Resumable> take() const;
  std::int64_t num_damaged() const { return num_damaged_; }

 private:
  bool apply_record(std::uint8_t what, Decoder& in);
  bool load(Decoder& in);

  std::shared_ptr<const text::Tokenizer> tokenizer_;
  std::unique_ptr<output::OutputCore> core_;  ///< null before its first state
  /// Requests that were live where records are missing. The next state shows which of them still are live.
  std::map<RequestId, output::OutputCore::Resumable> live_before_gap_;
  /// Requests that had ended before the last state. The core may have dropped them because it had no room.
  std::map<RequestId, output::OutputCore::Resumable> ended_before_;
  TimeUs now_ = 0;                 ///< time of the last step
  std::int64_t num_damaged_ = 0;   ///< number of records that could not be read
  std::size_t num_bytes_ = 0;      ///< bytes of all records
  std::size_t num_sequences_ = 0;  ///< sequences of all requests that records have opened
};

/// Returns the deltas that a request with `progress` has sent: the deltas of each sequence in their order, one for each
/// token. Empty for a request that sends all its output at its end.
std::vector<SequenceDelta> sent_deltas(const std::shared_ptr<const text::Tokenizer>& tokenizer, const RequestSpec& spec,
                                       const RequestProgress& progress);

}  // namespace pagoda::journal
