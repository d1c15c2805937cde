#include "io/journal/journal_contents.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <set>
#include <system_error>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "engine/journal/journal.hpp"
#include "io/journal/journal_format.hpp"
#include "io/journal/journal_lock.hpp"
#include "io/journal/record_layout.hpp"
#include "io/model_files/mapped_file.hpp"
#include "io/version.hpp"

namespace pagoda::io {

std::uint32_t journal_format::checksum(std::span<const std::byte> record, std::uint64_t segment) {
  return static_cast<std::uint32_t>(XXH3_64bits_withSeed(record.data(), record.size(), segment));
}

namespace {

using namespace journal_format;

/// Collects the records of one segment, joins states from their pieces, and leaves out records that are not wanted.
class SegmentRecords {
 public:
  explicit SegmentRecords(Records wanted) : wanted_(wanted) {}

  void add(std::span<const std::byte> record) {
    if (is_setup(record)) {
      front_.push_back(record);  // it was written before every state
    } else if (!is_wanted(record)) {
      return;
    } else if (record.size() >= kPieceHeaderBytes && record[1] == kStatePiece) {
      add_piece(record);
    } else {
      others_.push_back(record);
    }
  }

  void take(JournalContents::Segment& segment, JournalContents& contents) {
    segment.records = std::move(front_);
    segment.records.insert(segment.records.end(), others_.begin(), others_.end());
    std::ranges::move(states_, std::back_inserter(contents.memory));
  }

 private:
  static bool is_setup(std::span<const std::byte> record) {
    return record[0] == static_cast<std::byte>(journal::Source::setup);
  }

  bool is_wanted(std::span<const std::byte> record) const {
    if (wanted_ == Records::all) return true;
    const auto source = static_cast<journal::Source>(record[0]);
    return source == journal::Source::output || source > last_value(journal::Source{});
  }

  void add_piece(std::span<const std::byte> piece) {
    const auto header = journal::read_header(piece);
    if (!header) return;
    const std::byte flags = piece[kPieceFlagsAt];
    auto& state = unfinished_[header->core];
    if ((flags & kFirstPiece) != std::byte{0}) {
      const bool is_for_recovery = (flags & kForRecovery) != std::byte{0};
      state = journal::header_of(header->core, is_for_recovery ? journal::kRecoveryState : journal::kState);
    }
    if (state.empty()) return;
    const auto bytes = piece.subspan(kPieceHeaderBytes);
    state.insert(state.end(), bytes.begin(), bytes.end());
    if ((flags & kLastPiece) == std::byte{0}) return;
    const auto whole = std::make_shared<const std::vector<std::byte>>(std::exchange(state, {}));
    front_.emplace_back(*whole);
    states_.push_back(whole);
  }

  Records wanted_;
  std::vector<std::span<const std::byte>> front_;
  std::vector<std::span<const std::byte>> others_;
  std::map<journal::CoreId, std::vector<std::byte>> unfinished_;
  std::vector<std::shared_ptr<const void>> states_;
};

/// Adds the records of a segment up to its end. Stops at the first incomplete or damaged record and then returns false.
bool read_segment(std::span<const std::byte> bytes, std::uint64_t number, SegmentRecords& records) {
  std::size_t at = kSegmentHeaderBytes;
  while (at + kRecordHeaderBytes <= bytes.size()) {
    const auto length = get<std::uint32_t>(bytes, at);
    if (length == 0) return true;
    if (length > bytes.size() - at - kRecordHeaderBytes) return false;
    const auto record = bytes.subspan(at + kRecordHeaderBytes, length);
    if (get<std::uint32_t>(bytes, at + 4) != checksum(record, number)) return false;
    records.add(record);
    at += aligned(kRecordHeaderBytes + length);
  }
  return true;
}

/// Returns the version of the program that wrote the file, without characters that no version has.
std::string version_in(std::span<const std::byte> header) {
  const auto length = std::min<std::size_t>(get<std::uint32_t>(header, kVersionAt), kMaxVersionBytes);
  std::string name(reinterpret_cast<const char*>(header.data() + kVersionAt + 4), length);
  std::erase_if(name, [](char c) { return c < '!' || c > '~'; });
  return name;
}

std::string writer_of(std::span<const std::byte> header) {
  const std::string name = version_in(header);
  return name.empty() ? "of unknown version" : "of version " + name;
}

/// Returns whether the magic is not written yet, as after a crash before the header was complete.
bool is_blank(std::span<const std::byte> file) {
  return std::ranges::all_of(file.first(std::min(file.size(), kMagic.size())),
                             [](std::byte byte) { return byte == std::byte{0}; });
}

/// Returns whether the wanted records have this build's layout. Older builds left the second digest 0.
bool has_layout(std::span<const std::byte> header, Records wanted) {
  const auto of_resumable = get<std::uint64_t>(header, kResumableLayoutAt);
  if (wanted == Records::of_resumable_requests && of_resumable != 0) {
    return of_resumable == layout_of_resumable_requests();
  }
  return get<std::uint64_t>(header, kLayoutAt) == layout_of_records();
}

Result<JournalContents> parse(std::shared_ptr<const void> memory, std::span<const std::byte> file,
                              const std::string& path, Records wanted) {
  const auto bad = [&](const std::string& what) { return fail(ErrorCode::bad_file, path + " " + what); };
  JournalContents contents;
  contents.bytes = file;
  contents.memory.push_back(std::move(memory));
  if (is_blank(file)) return contents;
  if (file.size() < kHeaderBytes || std::memcmp(file.data(), kMagic.data(), kMagic.size()) != 0) {
    return bad("is not a journal");
  }
  const std::string by_another =
      "it was written by a program " + writer_of(file) + ", but this program is version " + std::string(version());
  if (const auto format = get<std::uint32_t>(file, kFormatAt); format != kFormat) {
    return bad("is a journal of format " + std::to_string(format) + ", but this program reads format " +
               std::to_string(kFormat) + ": " + by_another);
  }
  const auto num_segments = get<std::uint32_t>(file, kNumSegmentsAt);
  const auto segment_bytes = get<std::uint64_t>(file, kSegmentBytesAt);
  const auto version_bytes = get<std::uint32_t>(file, kVersionAt);
  if (version_bytes > kMaxVersionBytes || segment_bytes < kMinSegmentBytes ||
      segment_bytes > (file.size() - kHeaderBytes) || num_segments > (file.size() - kHeaderBytes) / segment_bytes) {
    return bad("is truncated, or its header is damaged");
  }
  contents.version = version_in(file);
  if (!has_layout(file, wanted)) {
    return bad("has records of another layout: " + by_another + "; read it with the program that wrote it");
  }
  std::set<std::uint64_t> whole;
  for (std::uint32_t i = 0; i < num_segments; ++i) {
    const auto part = file.subspan(kHeaderBytes + i * segment_bytes, segment_bytes);
    JournalContents::Segment segment;
    segment.number = get<std::uint64_t>(part, 0);
    if (segment.number == 0) continue;
    SegmentRecords records(wanted);
    if (read_segment(part, segment.number, records)) {
      whole.insert(segment.number);
    } else {
      ++contents.num_damaged;
    }
    records.take(segment, contents);
    if (!segment.records.empty()) contents.segments.push_back(std::move(segment));
  }
  std::ranges::sort(contents.segments, {}, &JournalContents::Segment::number);
  for (auto& segment : contents.segments) segment.follows_gap = !whole.contains(segment.number - 1);
  return contents;
}

}  // namespace

Result<JournalContents> parse_journal(std::vector<std::byte> bytes, const std::string& path, Records wanted) {
  const auto memory = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  return parse(memory, *memory, path, wanted);
}

bool is_journal(const std::string& path) {
  std::array<char, kMagic.size()> begin{};
  std::ifstream(path, std::ios::binary).read(begin.data(), begin.size());
  return std::string_view(begin.data(), begin.size()) == kMagic;
}

std::optional<JournalContents::Setup> setup_of(const JournalContents& journal) {
  if (journal.segments.empty()) return std::nullopt;
  const std::span<const std::byte> first = journal.segments.back().records.front();
  const auto header = journal::read_header(first);
  if (!header || header->core != journal::Source::setup || header->what != journal::kState) return std::nullopt;
  Decoder in(first.subspan(journal::kRecordHeaderBytes));
  JournalContents::Setup setup;
  if (!in.get(setup.config) || !in.get(setup.model) || in.num_left() > 0) return std::nullopt;
  return setup;
}

Result<JournalContents> read_journal(const std::string& path, Records wanted, const JournalLock* lock) {
  constexpr std::uintmax_t kMaxBytes = kHeaderBytes + (std::uintmax_t{1} << 40U);  // EngineConfig::journal_mib
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  if (error) return fail(ErrorCode::io_failed, "cannot read " + path + ": " + error.message());
  if (size > kMaxBytes) return fail(ErrorCode::bad_file, path + " is not a journal");
  if (lock != nullptr || !JournalLock::is_held(path)) {
    auto map = MappedFile::open(path);
    if (!map) return fail(std::move(map.error()));
    const auto memory = std::make_shared<const MappedFile>(std::move(*map));
    return parse(memory, memory->bytes(), path, wanted);
  }
  // A copy: a running server may overwrite the file meanwhile.
  std::vector<std::byte> bytes(size);
  std::ifstream file(path, std::ios::binary);
  if (!file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size))) {
    return fail(ErrorCode::io_failed, "cannot read " + path + ": " + std::strerror(errno));
  }
  return parse_journal(std::move(bytes), path, wanted);
}

}  // namespace pagoda::io
