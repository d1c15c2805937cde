#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "engine/journal/journal.hpp"
#include "engine/journal/state_follower.hpp"
#include "io/journal/journal_contents.hpp"
#include "io/journal/journal_lock.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// A journal in a file of fixed size: a ring of segments, of which the oldest is overwritten (journal_format.hpp
/// describes the bytes). The file is mapped, so writing a record is a copy in memory. Records survive every end of the
/// process, but not a crash of the machine, because the system decides when to write to the disk. No other process may
/// truncate the file while it is written.
///
/// A state that leaves too little room for records is left out of its segment, with one warning per core.
class JournalFile final : public journal::Journal, private journal::StateSink {
 public:
  using Key = std::array<std::uint64_t, 2>;

  struct Options {
    std::optional<Key> token_key = std::nullopt;  ///< if set, prompts and outputs are hashed; the key is never written
    std::string model = {};  ///< identifies the served model; part of the setup record of every segment
    /// Whether the file is made as PATH + kLaterSuffix until take_place(). Until then a journal at PATH stays there and
    /// remains the valid one.
    bool takes_place_later = false;
    std::shared_ptr<JournalLock> lock = nullptr;  ///< lock of PATH; null: create() takes it
    /// Whether a thread follows the cores and writes the states that segments begin with. If not, the cores write them
    /// in their steps.
    bool follows = false;
    std::shared_ptr<const text::Tokenizer> tokenizer = nullptr;  ///< tokenizer of the model, to follow the output core
  };
  static constexpr const char* kLaterSuffix = ".recovering";

  /// Makes the file, of about `bytes` bytes. An existing journal is kept as PATH.1, the earlier PATH.1 as PATH.2, and
  /// PATH.2 as PATH.3, so that the journal of a crashed process is not lost. `setup` begins every segment.
  /// Errors: bad_config (the file cannot be made, another server has the lock, or `bytes` is too small), out_of_memory
  /// (the disk is full).
  static Result<std::shared_ptr<JournalFile>> create(const std::string& path, std::int64_t bytes, std::string setup,
                                                     const Options& options);
  static Result<std::shared_ptr<JournalFile>> create(const std::string& path, std::int64_t bytes, std::string setup) {
    return create(path, bytes, std::move(setup), Options());
  }
  ~JournalFile() override;
  JournalFile(const JournalFile&) = delete;
  JournalFile& operator=(const JournalFile&) = delete;

  std::uint64_t segment() const override;
  bool append(std::uint64_t segment, std::span<const std::byte> record) override;
  bool append_state(std::uint64_t segment, std::span<const std::byte> record) override;
  bool follows(const journal::CoreId& core) const override;
  std::size_t max_ended_bytes() const override { return max_ended_bytes(static_cast<std::int64_t>(file_.size())); }
  void begin_segment_if_full() override;
  void on_diverged(const journal::CoreId& core) override;
  std::optional<Key> token_key() const override { return options_.token_key; }

  /// Moves the file to PATH; a journal there is kept as PATH.1. Call once. Errors: bad_config.
  Status take_place();

  // Limits of a journal of `bytes` bytes:
  /// Returns the bytes that a segment has for the states of all cores together.
  static std::size_t max_state_bytes(std::int64_t bytes);
  static std::size_t max_ended_bytes(std::int64_t bytes);
  /// Returns the size of a journal, in MiB, whose segments have room for states of `bytes` bytes.
  static std::int64_t mib_for_states(std::size_t bytes);

 private:
  struct FollowedCore {
    bool is_followed = false;
    std::uint64_t segment = 0;     ///< segment of the last record for the follower
    std::uint64_t with_state = 0;  ///< last segment that has a state of the core, or for which the state is too large
  };

  JournalFile(std::string path, std::span<std::byte> file, std::size_t segment_bytes, std::string setup,
              Options options);
  void begin_segment();
  bool write(std::span<const std::byte> record);
  std::span<std::byte> current() const;

  // -- The follower's thread:
  void follow();
  void queue(FollowedCore& its, std::span<const std::byte> record);
  void follow_none();
  // StateSink:
  std::optional<std::size_t> room(std::uint64_t segment) const override;
  void put_first_state(std::uint64_t segment, std::span<const std::byte> record) override;
  std::size_t max_room() const override { return max_state_bytes(static_cast<std::int64_t>(file_.size())); }
  bool has_state(std::uint64_t segment, const journal::CoreId& core) const override;
  void left_out(std::uint64_t segment, const journal::CoreId& core, std::size_t bytes) override;
  void lost(const journal::CoreId& core) override;

  std::string path_;
  std::span<std::byte> file_;
  std::size_t segment_bytes_;
  std::string setup_;
  Options options_;
  mutable std::mutex mutex_;  ///< guards the fields below, and the file
  std::uint64_t segment_ = 0;
  std::size_t used_ = 0;  ///< used bytes of the segment
  bool is_torn_ = false;  ///< whether a record did not fit: nothing more is written to this segment
  std::map<journal::CoreId, FollowedCore> cores_;
  /// Records for the follower, in batches: for each record its segment, its size, then its bytes.
  std::deque<std::vector<std::byte>> queue_;
  std::size_t queue_bytes_ = 0;
  std::vector<std::vector<std::byte>> spare_batches_;  ///< empty batches whose memory is reused
  bool has_work_ = false;
  bool ends_ = false;
  std::condition_variable work_;
  std::set<journal::CoreId> has_warned_;  ///< used by follower_ only
  std::thread follower_;                  ///< declared last, because it uses the other fields
};

/// Keeps a journal that cannot be read as PATH.unread too; it also stays at PATH. Earlier files of this name become
/// PATH.unread.1 to PATH.unread.3. Returns the name. Errors: bad_config.
Result<std::string> keep_unreadable(const std::string& path);

/// Renames a journal to PATH.1; earlier kept journals move to the next number. Errors: bad_config.
Status keep_journal(const std::string& path);

}  // namespace pagoda::io
