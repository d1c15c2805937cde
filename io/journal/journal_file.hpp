#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "engine/journal/journal.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// A journal in a file of fixed size: a ring of segments, of which the oldest is overwritten. The file is mapped, so a
/// record is a copy in memory, and what was recorded outlives the process however that ends (but not the machine: the
/// system writes to the disk when it likes). Nobody else may cut the file while it is written. Little-endian:
///
///   file:    header of 4096 bytes (magic "PAGODA-J", u32 format, u32 number of segments, u64 bytes of a segment, u64
///            layout of records, u32 length and text of the version that wrote it; at 296 u64 layout of the records of
///            resumable requests, 0 where it is not known), then the segments
///   segment: u64 number (0 = empty; the next is one more, or two when records before it are missing), then records,
///            each at a multiple of 8
///   record:  u32 length (0 = end of the segment), u32 checksum (XXH3 of the bytes, the segment's number the seed),
///            the bytes
///
/// Where the state of what runs takes most of a segment, recording pauses: see kLeastRecords.
class JournalFile final : public journal::Journal {
 public:
  using Key = std::array<std::uint64_t, 2>;

  struct Options {
    std::optional<Key> token_key = std::nullopt;  ///< prompts and outputs stay out of it; the key is never written
    std::string model = {};  ///< what tells the served model from others; begins every segment, as the setup does
    /// The file is made beside its place, with kLaterSuffix behind its name, until take_place is called: what is at its
    /// place stays there, and counts.
    bool takes_place_later = false;
  };
  static constexpr const char* kLaterSuffix = ".recovering";

  /// Makes the file, of about `bytes` bytes. One that is there already is kept as PATH.1, that as PATH.2, and that as
  /// PATH.3: what a crashed process has left is not lost when the next begins. `setup` begins every segment.
  /// Errors: bad_config (it cannot be made there, or `bytes` is too few), out_of_memory (the disk is full).
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
  void begin_segment_if_full() override;
  std::optional<Key> token_key() const override { return options_.token_key; }

  /// From now on it is at its place, and what was there is kept. Once. Errors: bad_config.
  Status take_place();

 private:
  JournalFile(std::string path, std::span<std::byte> file, std::size_t segment_bytes, std::string setup,
              Options options);
  void begin_segment();
  bool write(std::span<const std::byte> record);
  std::span<std::byte> current() const;

  std::string path_;
  std::span<std::byte> file_;
  std::size_t segment_bytes_;
  std::string setup_;
  Options options_;
  mutable std::mutex mutex_;  ///< of what follows, and of the file
  std::uint64_t segment_ = 0;
  std::size_t used_ = 0;            ///< bytes of the segment
  std::int64_t num_records_ = 0;    ///< of the segment
  bool is_torn_ = false;            ///< a record did not fit: nothing more comes into this segment
  std::uint64_t last_skipped_ = 0;  ///< the segment that it paused in
  std::int64_t num_to_skip_ = 0;    ///< records, until it is tried again whether the state fits
  bool has_warned_ = false;
};

/// The segments of a journal, oldest first.
struct JournalContents {
  struct Segment {
    std::uint64_t number = 0;
    std::vector<std::span<const std::byte>> records;
  };
  /// What stands at the beginning of a segment.
  struct Setup {
    std::string config;
    std::string model;
  };
  std::vector<std::byte> bytes;
  std::string version;  ///< of the program that wrote it
  std::vector<Segment> segments;
  std::int64_t num_damaged = 0;  ///< segments that end before their end, at a record that is not whole
};

/// Of the last segment; nothing when there is none, or it is damaged.
std::optional<JournalContents::Setup> setup_of(const JournalContents& journal);

/// Whether the file begins as journals of all versions do.
bool is_journal(const std::string& path);

/// Keeps a journal as PATH.unread too, where nothing takes its place but another that cannot be read; that is
/// PATH.unread.1 then, and so on to 3. It stays at its place. Returns the name. Errors: bad_config.
Result<std::string> keep_unread(const std::string& path);

/// Moves a journal out of its place: it is kept as PATH.1, and those before it one number on. Errors: bad_config.
Status keep_journal(const std::string& path);

/// What is wanted of a journal: a build reads the records of another where all that are wanted have its own layout.
enum class Records : std::uint8_t { all, of_resumable_requests };

/// Reads a journal, also while it is written. One whose header is not written yet has no segments. Errors: io_failed;
/// bad_file (no journal; one of another format or layout: with the version that wrote it; a damaged header).
Result<JournalContents> read_journal(const std::string& path, Records wanted = Records::all);
/// The same of bytes; `path` names them in errors.
Result<JournalContents> parse_journal(std::vector<std::byte> bytes, const std::string& path,
                                      Records wanted = Records::all);

}  // namespace pagoda::io
