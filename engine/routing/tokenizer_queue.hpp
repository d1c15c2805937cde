#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "engine/step/codec.hpp"
#include "kernels/result.hpp"

namespace pagoda::routing {

/// The texts that wait for the tokenizer, or for whoever takes texts likewise. Each client's stay in order; among
/// clients the one that had the fewest bytes taken comes next, so that long texts of one delay another by one text at
/// most. A plain state machine. Not thread-safe: one owner.
class TokenizerQueue {
 public:
  using JobId = std::uint64_t;
  using ClientId = std::uint64_t;

  /// The tokenizer gets more work while it holds fewer bytes than this: short texts follow each other without a wait,
  /// and nobody waits long behind what can no longer be taken back.
  static constexpr std::int64_t kBytesAtTokenizer = 64 << 10;
  /// One client's share of `max_bytes` is its 1 / kClientShare.
  static constexpr std::int64_t kClientShare = 4;
  /// Counted for every job beside its text, so that empty texts are not free.
  static constexpr std::int64_t kJobBytes = 64;

  /// `max_bytes`: of the texts that wait or are at the tokenizer. A single text may be longer, alone in the queue.
  /// `taker`: who takes them, in messages.
  explicit TokenizerQueue(std::int64_t max_bytes, const char* taker = "the tokenizer")
      : max_bytes_(max_bytes), taker_(taker) {}

  /// Error: queue_full with retry_after_ms, when the client's texts or all of them would be too many bytes.
  Status check(ClientId client, std::int64_t text_bytes) const;
  /// Error: as check.
  Result<JobId> add(ClientId client, std::int64_t text_bytes);
  /// Adds a job that was admitted before, whatever is in the queue.
  JobId add_beyond_limits(ClientId client, std::int64_t text_bytes);

  /// The job that goes to the tokenizer now, if one may.
  std::optional<JobId> next();

  /// The tokenizer has finished a job that `next` gave.
  void finished(JobId job);

  /// Takes a job back that `next` has not given yet. One that it has given, or that is not there, is left alone.
  void withdraw(JobId job);

  /// The client has gone: its jobs that `next` has not given are taken back. These are they.
  std::vector<JobId> forget(ClientId client);

  std::int64_t num_waiting() const { return num_waiting_; }
  std::int64_t bytes() const { return bytes_; }

  /// The state as bytes. False for bytes that no queue has saved; it cannot be used then.
  void save(Encoder& out) const;
  bool load(Decoder& in);

 private:
  struct Job {
    ClientId client = 0;
    std::int64_t bytes = 0;
    bool given = false;

    static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.client, self.bytes, self.given); }
  };
  struct Client {
    std::int64_t taken = 0;     ///< bytes that the tokenizer was given; lifted to the least of those present on return
    std::int64_t bytes = 0;     ///< waiting or at the tokenizer
    std::deque<JobId> waiting;  ///< rising

    /// Who waits is told by the jobs.
    static constexpr auto visit_fields(auto& self, auto&& visit) { return visit(self.taken, self.bytes); }
  };

  void remove(std::map<JobId, Job>::iterator job);

  std::int64_t max_bytes_;
  const char* taker_;
  std::map<JobId, Job> jobs_;
  std::map<ClientId, Client> clients_;
  std::set<std::pair<std::int64_t, ClientId>> turns_;  ///< clients with waiting jobs, by `taken`
  std::int64_t least_taken_ = 0;                       ///< of the client that was served last, before it was
  std::int64_t num_waiting_ = 0;
  std::int64_t bytes_ = 0;
  std::int64_t bytes_given_ = 0;
  JobId next_job_ = 1;
};

}  // namespace pagoda::routing
