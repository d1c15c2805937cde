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
    /// Whether records are missing before this segment: the previous segment is absent or damaged.
    bool follows_gap = true;
    /// The setup, then the states of the cores at the segment's beginning, then all other records in the order in which
    /// they were recorded.
    std::vector<std::span<const std::byte>> records;
  };
  /// Contents of the setup record, the first record of a segment.
  struct Setup {
    std::string config;
    std::string model;
  };
  std::span<const std::byte> bytes;                 ///< bytes of the file
  std::vector<std::shared_ptr<const void>> memory;  ///< owns `bytes`, and states that are joined from pieces
  std::string version;                              ///< version of the program that wrote the journal
  std::vector<Segment> segments;
  std::int64_t num_damaged = 0;  ///< number of segments that stop at an incomplete or damaged record
};

/// Returns the setup of the last segment; nothing if there is no segment, or its setup is damaged.
std::optional<JournalContents::Setup> setup_of(const JournalContents& journal);

/// Returns whether the file begins with the magic of a journal, of any version.
bool is_journal(const std::string& path);

/// Records to read from a journal. A build can read the journal of another build if the wanted records have the same
/// layout in both builds. Records of other cores are left out.
enum class Records : std::uint8_t { all, of_resumable_requests };

/// Maps a journal, or reads it into memory if a server still writes it. A journal whose header is not written yet has
/// no segments. `lock`: the caller's own lock of this journal; null: the caller has none. Errors: io_failed; bad_file
/// (not a journal; another format or layout, with the version that wrote it in the message; a damaged header).
Result<JournalContents> read_journal(const std::string& path, Records wanted = Records::all,
                                     const JournalLock* lock = nullptr);
/// Like read_journal, for bytes in memory; `path` names the bytes in errors.
Result<JournalContents> parse_journal(std::vector<std::byte> bytes, const std::string& path,
                                      Records wanted = Records::all);

}  // namespace pagoda::io
