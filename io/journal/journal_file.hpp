#pragma once

#include <array>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
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

/// A journal in a file of fixed size: a ring of segments, of which the oldest is overwritten (journal_format.hpp has
/// the bytes). The file is mapped, so a record is a copy in memory, and what was recorded outlives the process however
/// that ends (but not the machine: the system writes to the disk when it likes). Nobody else may cut the file while it
/// is written.
///
/// A state that leaves too little room for records is left out of its segment, with one warning.
class JournalFile final : public journal::Journal, private journal::StateSink {
 public:
  using Key = std::array<std::uint64_t, 2>;

  struct Options {
    std::optional<Key> token_key = std::nullopt;  ///< prompts and outputs stay out of it; the key is never written
    std::string model = {};  ///< what tells the served model from others; begins every segment, as the setup does
    /// The file is made beside its place, with kLaterSuffix behind its name, until take_place is called: what is at its
    /// place stays there, and counts.
    bool takes_place_later = false;
    std::shared_ptr<JournalLock> lock = nullptr;  ///< of its place; null: create takes it
    /// A thread follows the cores and writes the states that segments begin with; else the cores do, in their steps.
    bool follows = false;
    std::shared_ptr<const text::Tokenizer> tokenizer = nullptr;  ///< of the model, to follow the output core
  };
  static constexpr const char* kLaterSuffix = ".recovering";

  /// Makes the file, of about `bytes` bytes. One that is there already is kept as PATH.1, that as PATH.2, and that as
  /// PATH.3: what a crashed process has left is not lost when the next begins. `setup` begins every segment.
  /// Errors: bad_config (it cannot be made there, another server has the lock of its place, or `bytes` is too few),
  /// out_of_memory (the disk is full).
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
  bool follows(journal::Source source) const override;
  std::size_t max_ended_bytes() const override { return max_ended_bytes(static_cast<std::int64_t>(file_.size())); }
  void begin_segment_if_full() override;
  std::optional<Key> token_key() const override { return options_.token_key; }

  /// From now on it is at its place, and what was there is kept. Once. Errors: bad_config.
  Status take_place();

  // What journals of so many bytes hold:
  /// States of all cores together that a segment takes.
  static std::size_t max_state_bytes(std::int64_t bytes);
  static std::size_t max_ended_bytes(std::int64_t bytes);
  /// Journal, in MiB, whose segments take states of so many bytes.
  static std::int64_t mib_for_states(std::size_t bytes);

 private:
  struct FollowedSource {
    bool is_followed = false;
    std::uint64_t segment = 0;     ///< of the last record for the follower
    std::uint64_t with_state = 0;  ///< the last segment that has a state of the core, or can have none
  };

  JournalFile(std::string path, std::span<std::byte> file, std::size_t segment_bytes, std::string setup,
              Options options);
  void begin_segment();
  bool write(std::span<const std::byte> record);
  std::span<std::byte> current() const;

  // -- the follower's thread
  void follow();
  void queue(std::span<const std::byte> record);
  void follow_none();
  // StateSink:
  std::optional<std::size_t> room(std::uint64_t segment) const override;
  void put_first_state(std::uint64_t segment, std::span<const std::byte> record) override;
  std::size_t max_room() const override { return max_state_bytes(static_cast<std::int64_t>(file_.size())); }
  bool has_state(std::uint64_t segment, journal::Source source) const override;
  void left_out(std::uint64_t segment, journal::Source source, std::size_t bytes) override;
  void lost(journal::Source source) override;

  std::string path_;
  std::span<std::byte> file_;
  std::size_t segment_bytes_;
  std::string setup_;
  Options options_;
  mutable std::mutex mutex_;  ///< of what follows, and of the file
  std::uint64_t segment_ = 0;
  std::size_t used_ = 0;  ///< bytes of the segment
  bool is_torn_ = false;  ///< a record did not fit: nothing more comes into this segment
  std::array<FollowedSource, journal::kNumSources> sources_;
  /// Records for the follower, in batches: of each its segment and size, then its bytes.
  std::deque<std::vector<std::byte>> queue_;
  std::size_t queue_bytes_ = 0;
  std::vector<std::vector<std::byte>> spare_batches_;  ///< empty, with memory that was taken
  bool has_work_ = false;
  bool ends_ = false;
  std::condition_variable work_;
  std::array<bool, journal::kNumSources> has_warned_{};  ///< the follower's
  std::thread follower_;                                 ///< last: it uses the rest
};

/// Keeps a journal as PATH.unread too, where nothing takes its place but another that cannot be read; that is
/// PATH.unread.1 then, and so on to 3. It stays at its place. Returns the name. Errors: bad_config.
Result<std::string> keep_unread(const std::string& path);

/// Moves a journal out of its place: it is kept as PATH.1, and those before it one number on. Errors: bad_config.
Status keep_journal(const std::string& path);

}  // namespace pagoda::io
