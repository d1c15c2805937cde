#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/result.hpp"

namespace pagoda::io {

class JournalLock;

/// The segments of a journal, oldest first.
struct JournalContents {
  struct Segment {
    std::uint64_t number = 0;
    /// Whether records are missing between the segment before and this one: that one is not there, or is damaged.
    bool is_behind_gap = true;
    /// The setup, the states that cores had at the segment's beginning, then all else in the order in which it was
    /// recorded.
    std::vector<std::span<const std::byte>> records;
  };
  /// What stands at the beginning of a segment.
  struct Setup {
    std::string config;
    std::string model;
  };
  std::span<const std::byte> bytes;                 ///< of the file
  std::vector<std::shared_ptr<const void>> memory;  ///< holds `bytes`, and states that were written in pieces
  std::string version;                              ///< of the program that wrote it
  std::vector<Segment> segments;
  std::int64_t num_damaged = 0;  ///< segments that end before their end, at a record that is not whole
};

/// Of the last segment; nothing when there is none, or it is damaged.
std::optional<JournalContents::Setup> setup_of(const JournalContents& journal);

/// Whether the file begins as journals of all versions do.
bool is_journal(const std::string& path);

/// What is wanted of a journal: a build reads the records of another where all that are wanted have its own layout.
/// Records of cores that are not wanted are left out.
enum class Records : std::uint8_t { all, of_resumable_requests };

/// Maps a journal, or reads it where a server still writes it. One whose header is not written yet has no segments.
/// `lock`: the caller's own lock of this journal; null: the caller has none.
/// Errors: io_failed; bad_file (no journal; one of another format or layout: with the version that wrote it; a damaged
/// header).
Result<JournalContents> read_journal(const std::string& path, Records wanted = Records::all,
                                     const JournalLock* lock = nullptr);
/// The same of bytes; `path` names them in errors.
Result<JournalContents> parse_journal(std::vector<std::byte> bytes, const std::string& path,
                                      Records wanted = Records::all);

}  // namespace pagoda::io
