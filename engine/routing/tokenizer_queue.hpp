#pragma once

#include <cstdint>
#include <deque>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "engine/step/codec.hpp"
#include "kernels/result.hpp"

namespace pagoda::routing {

/// Texts that wait for the tokenizer, or for another taker of texts. Jobs of one client stay in order. Among clients,
/// the one with the fewest bytes taken is next, so long texts of a client delay another client by at most one text. A
/// plain state machine. Not thread-safe: one owner.
class TokenizerQueue {
 public:
  using JobId = std::uint64_t;
  using ClientId = std::uint64_t;

  /// The tokenizer gets more work while it holds fewer bytes than this. So short texts follow each other without a
  /// pause, and no job waits long behind work that cannot be taken back.
  static constexpr std::int64_t kBytesAtTokenizer = 64 << 10;
  /// The share of one client is `max_bytes` / kClientShare.
  static constexpr std::int64_t kClientShare = 4;
  /// Bytes that count for every job besides its text, so that empty texts are not free.
  static constexpr std::int64_t kJobBytes = 64;

  /// `max_bytes`: limit of the texts that wait or are at the tokenizer. A single text may be longer if the queue is
  /// empty. `taker`: name of the taker in messages.
  explicit TokenizerQueue(std::int64_t max_bytes, const char* taker = "the tokenizer")
      : max_bytes_(max_bytes), taker_(taker) {}

  /// Returns queue_full with retry_after_ms if the client's texts, or all texts, would be too many bytes.
  Status check(ClientId client, std::int64_t text_bytes) const;
  /// Adds a job. Errors: see check.
  Result<JobId> add(ClientId client, std::int64_t text_bytes);
  /// Adds a job that was admitted before, whatever is in the queue.
  JobId add_beyond_limits(ClientId client, std::int64_t text_bytes);

  /// Returns the job that goes to the tokenizer now, if one may go.
  std::optional<JobId> next();

  /// Call when the tokenizer has finished a job that `next` returned.
  void finished(JobId job);

  /// Removes a job that `next` has not returned yet. Does nothing for another job.
  void withdraw(JobId job);

  /// Removes a client that is gone, with its jobs that `next` has not returned. Returns these jobs. Its other jobs
  /// count for the limit of all texts until they are finished, but for no client, even if a client with this id comes
  /// again.
  std::vector<JobId> forget(ClientId client);

  std::int64_t num_waiting() const { return num_waiting_; }
  std::int64_t bytes() const { return bytes_; }

  /// Write and read the state as bytes. load returns false for bytes that no queue has saved; the queue must not be
  /// used then.
  void save(Encoder& out) const;
  bool load(Decoder& in);

 private:
  /// Client of a job at the tokenizer whose client is gone.
  static constexpr ClientId kNoClient = std::numeric_limits<ClientId>::max();

  struct Job {
    ClientId client = 0;
    std::int64_t bytes = 0;
    bool given = false;

    static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.client, self.bytes, self.given); }
  };
  struct Client {
    /// Bytes given to the tokenizer; raised on return to the value of the client that was served last.
    std::int64_t taken = 0;
    std::int64_t bytes = 0;     ///< bytes that wait or are at the tokenizer
    std::deque<JobId> waiting;  ///< ascending

    /// `waiting` follows from the jobs.
    static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.taken, self.bytes); }
  };

  void remove(std::map<JobId, Job>::iterator job);

  std::int64_t max_bytes_;
  const char* taker_;
  std::map<JobId, Job> jobs_;
  std::map<ClientId, Client> clients_;
  std::set<std::pair<std::int64_t, ClientId>> turns_;  ///< clients with waiting jobs, by `taken`
  /// Value of `taken` of the client that was served last, before it was served.
  std::int64_t min_taken_ = 0;
  std::int64_t num_waiting_ = 0;
  std::int64_t bytes_ = 0;
  std::int64_t bytes_given_ = 0;
  JobId next_job_ = 1;
};

}  // namespace pagoda::routing
