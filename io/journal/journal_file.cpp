#include "io/journal/journal_file.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "io/journal/record_layout.hpp"
#include "io/version.hpp"

namespace pagoda::io {
namespace {

constexpr std::string_view kMagic = "PAGODA-J";
constexpr std::uint32_t kFormat = 2;
constexpr std::size_t kHeaderBytes = 4096;
// Where things stand in it:
constexpr std::size_t kFormatAt = 8;
constexpr std::size_t kNumSegmentsAt = 12;
constexpr std::size_t kSegmentBytesAt = 16;
constexpr std::size_t kLayoutAt = 24;
constexpr std::size_t kVersionAt = 32;
constexpr std::size_t kMaxVersionBytes = 256;
constexpr std::size_t kResumableLayoutAt = 296;
constexpr std::uint32_t kNumSegments = 4;
constexpr std::size_t kSegmentHeaderBytes = 8;
constexpr std::size_t kRecordHeaderBytes = 8;
constexpr std::size_t kLeastSegmentBytes = 64 << 10;
/// A segment that was full with fewer records than this held little but states, and the engine would write states most
/// of the time: then so many records are left out.
constexpr std::int64_t kLeastRecords = 64;
constexpr std::int64_t kSkippedRecords = 10'000;
constexpr int kKeptJournals = 3;

std::size_t aligned(std::size_t bytes) {
  return (bytes + 7) & ~std::size_t{7};
}

template <class T>
void put(std::span<std::byte> to, std::size_t at, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) to[at + i] = static_cast<std::byte>(value >> (8 * i));
}

template <class T>
T get(std::span<const std::byte> from, std::size_t at) {
  T value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) value |= static_cast<T>(static_cast<T>(from[at + i]) << (8 * i));
  return value;
}

std::uint32_t checksum(std::span<const std::byte> bytes, std::uint64_t segment) {
  return static_cast<std::uint32_t>(XXH3_64bits_withSeed(bytes.data(), bytes.size(), segment));
}

tl::unexpected<Error> refused(const char* what, const std::string& path, int error) {
  const ErrorCode code = error == ENOSPC || error == EFBIG ? ErrorCode::out_of_memory : ErrorCode::bad_config;
  return fail(code, std::string("journal: cannot ") + what + " " + path + ": " + std::strerror(error), "journal");
}

std::string kept_name(const std::string& path, int i) {
  return i == 0 ? path : path + "." + std::to_string(i);
}

/// Each of the kept journals from the i-th on has the name of the next; the last one goes.
Status shift_kept(const std::string& path, int first) {
  for (int i = kKeptJournals; i > first; --i) {
    if (std::rename(kept_name(path, i - 1).c_str(), kept_name(path, i).c_str()) != 0 && errno != ENOENT) {
      return refused("keep the journal before,", kept_name(path, i), errno);
    }
  }
  return {};
}

}  // namespace

Status keep_journal(const std::string& path) {
  return shift_kept(path, 0);
}

Result<std::string> keep_unread(const std::string& path) {
  std::string name = path + ".unread";
  std::error_code error;
  if (std::filesystem::equivalent(path, name, error) && !error) return name;
  if (const Status kept = shift_kept(name, 0); !kept) return fail(kept.error());
  if (::link(path.c_str(), name.c_str()) == 0) return name;
  std::filesystem::copy_file(path, name, error);  // on a file system without links
  if (!error) return name;
  return fail(ErrorCode::bad_config, "journal: cannot keep " + path + " as " + name + ": " + error.message());
}

bool is_journal(const std::string& path) {
  std::array<char, kMagic.size()> begin{};
  std::ifstream(path, std::ios::binary).read(begin.data(), begin.size());
  return std::string_view(begin.data(), begin.size()) == kMagic;
}

Result<std::shared_ptr<JournalFile>> JournalFile::create(const std::string& place, std::int64_t bytes,
                                                         std::string setup, const Options& options) {
  const std::string path = options.takes_place_later ? place + kLaterSuffix : place;
  const std::size_t segment_bytes = static_cast<std::size_t>(bytes) / kNumSegments / 4096 * 4096;
  if (segment_bytes < kLeastSegmentBytes) {
    return fail(ErrorCode::bad_config, "journal_mib is too small for a journal", "journal_mib");
  }
  struct stat before {};
  if (::stat(path.c_str(), &before) == 0) {
    if (!S_ISREG(before.st_mode)) return fail(ErrorCode::bad_config, "journal: " + path + " is no file", "journal");
    if (options.takes_place_later) {  // of one that died before it had taken over what the other holds
      ::unlink(path.c_str());
    } else if (const Status kept = keep_journal(path); !kept) {
      return fail(kept.error());
    }
  }
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (file < 0) return refused("make", path, errno);
  const std::size_t size = kHeaderBytes + kNumSegments * segment_bytes;
  const int error = ::posix_fallocate(file, 0, static_cast<off_t>(size));
  void* data =
      error == 0 ? ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file, 0) : MAP_FAILED;
  const int map_error = errno;
  ::close(file);
  if (error != 0) {
    ::unlink(path.c_str());
    return refused("take room for", path, error);
  }
  if (data == MAP_FAILED) return refused("map", path, map_error);
  const std::span<std::byte> map(static_cast<std::byte*>(data), size);
  put(map, kFormatAt, kFormat);
  put(map, kNumSegmentsAt, kNumSegments);
  put(map, kSegmentBytesAt, static_cast<std::uint64_t>(segment_bytes));
  put(map, kLayoutAt, layout_of_records());
  const std::string_view program = version().substr(0, kMaxVersionBytes);
  put(map, kVersionAt, static_cast<std::uint32_t>(program.size()));
  std::memcpy(map.data() + kVersionAt + 4, program.data(), program.size());
  put(map, kResumableLayoutAt, layout_of_resumable_requests());
  // Last: who dies before it leaves a file of which nothing is said.
  std::atomic_signal_fence(std::memory_order_seq_cst);
  std::memcpy(map.data(), kMagic.data(), kMagic.size());
  return std::shared_ptr<JournalFile>(new JournalFile(place, map, segment_bytes, std::move(setup), options));
}

JournalFile::JournalFile(std::string path, std::span<std::byte> file, std::size_t segment_bytes, std::string setup,
                         Options options)
    : path_(std::move(path)),
      file_(file),
      segment_bytes_(segment_bytes),
      setup_(std::move(setup)),
      options_(std::move(options)) {
  begin_segment();
}

Status JournalFile::take_place() {
  PAGODA_ASSERT(options_.takes_place_later, "it is there already");
  // At no time is there no journal of the name: who dies here leaves what it has come from, or what it has recovered.
  if (const Status kept = shift_kept(path_, 1); !kept) return kept;
  const std::string before = kept_name(path_, 1);
  ::unlink(before.c_str());
  if (::link(path_.c_str(), before.c_str()) != 0 && errno != ENOENT) {  // a file system without links
    if (const Status kept = shift_kept(path_, 0); !kept) return kept;
  }
  if (std::rename((path_ + kLaterSuffix).c_str(), path_.c_str()) != 0) return refused("make", path_, errno);
  return {};
}

JournalFile::~JournalFile() {
  ::munmap(file_.data(), file_.size());
}

std::span<std::byte> JournalFile::current() const {
  const std::size_t index = static_cast<std::size_t>((segment_ - 1) % kNumSegments);
  return file_.subspan(kHeaderBytes + index * segment_bytes_, segment_bytes_);
}

void JournalFile::begin_segment() {
  segment_ += is_torn_ ? 2 : 1;
  const std::span<std::byte> segment = current();
  // What was in its place ends before its number changes.
  put(segment, kSegmentHeaderBytes, std::uint32_t{0});
  std::atomic_signal_fence(std::memory_order_seq_cst);
  put(segment, 0, segment_);
  used_ = kSegmentHeaderBytes;
  num_records_ = 0;
  is_torn_ = false;
  std::vector<std::byte> record;
  Encoder out(record);
  out.put(journal::Source::setup);
  out.put(journal::kState);
  out.put(setup_);
  out.put(options_.model);
  write(record);
}

/// False when there is no room. A record counts once its length is there, which comes last: so a process may die at
/// any place of this.
bool JournalFile::write(std::span<const std::byte> record) {
  const std::span<std::byte> segment = current();
  const std::size_t end = used_ + aligned(kRecordHeaderBytes + record.size());
  if (end + sizeof(std::uint32_t) > segment.size()) return false;
  std::memcpy(segment.data() + used_ + kRecordHeaderBytes, record.data(), record.size());
  put(segment, used_ + 4, checksum(record, segment_));
  put(segment, end, std::uint32_t{0});
  std::atomic_signal_fence(std::memory_order_seq_cst);
  put(segment, used_, static_cast<std::uint32_t>(record.size()));
  used_ = end;
  ++num_records_;
  return true;
}

std::uint64_t JournalFile::segment() const {
  const std::lock_guard lock(mutex_);
  return segment_;
}

bool JournalFile::append(std::uint64_t segment, std::span<const std::byte> record) {
  PAGODA_ASSERT(!record.empty(), "a record of length 0 would be the end");
  const std::lock_guard lock(mutex_);
  if (num_to_skip_ > 0) {
    --num_to_skip_;
    return true;
  }
  if (segment != segment_) return false;
  if (!is_torn_) is_torn_ = !write(record);
  return true;
}

void JournalFile::begin_segment_if_full() {
  const std::lock_guard lock(mutex_);
  if (num_to_skip_ > 0 || (!is_torn_ && used_ < segment_bytes_ / 4 * 3)) return;
  if (num_records_ < kLeastRecords && segment_ != last_skipped_) {
    last_skipped_ = segment_;
    num_to_skip_ = kSkippedRecords;
    is_torn_ = true;
    if (!std::exchange(has_warned_, true)) {
      spdlog::warn(
          "journal: the state of what runs takes most of a segment of {} KiB, so much is left out; raise "
          "journal_mib",
          segment_bytes_ >> 10U);
    }
    return;
  }
  begin_segment();
}

namespace {

/// The records of a segment up to its end, or to the first that is not whole.
bool read_segment(std::span<const std::byte> bytes, JournalContents::Segment& segment) {
  std::size_t at = kSegmentHeaderBytes;
  while (at + kRecordHeaderBytes <= bytes.size()) {
    const auto length = get<std::uint32_t>(bytes, at);
    if (length == 0) return true;
    if (length > bytes.size() - at - kRecordHeaderBytes) return false;
    const auto record = bytes.subspan(at + kRecordHeaderBytes, length);
    if (get<std::uint32_t>(bytes, at + 4) != checksum(record, segment.number)) return false;
    segment.records.push_back(record);
    at += aligned(kRecordHeaderBytes + length);
  }
  return true;
}

/// What the header says of the program that wrote the file, for a message.
std::string writer_of(std::span<const std::byte> header) {
  const auto length = std::min<std::size_t>(get<std::uint32_t>(header, kVersionAt), kMaxVersionBytes);
  std::string name(reinterpret_cast<const char*>(header.data() + kVersionAt + 4), length);
  std::erase_if(name, [](char c) { return c < '!' || c > '~'; });
  return name.empty() ? "of unknown version" : "of version " + name;
}

/// What is left of a program that died before the header was written.
bool says_nothing(std::span<const std::byte> file) {
  return std::ranges::all_of(file.first(std::min(file.size(), kMagic.size())),
                             [](std::byte byte) { return byte == std::byte{0}; });
}

/// Whether the records that are wanted are this build's. Builds before the second digest left its place empty.
bool has_layout(std::span<const std::byte> header, Records wanted) {
  const auto of_resumable = get<std::uint64_t>(header, kResumableLayoutAt);
  if (wanted == Records::of_resumable_requests && of_resumable != 0) {
    return of_resumable == layout_of_resumable_requests();
  }
  return get<std::uint64_t>(header, kLayoutAt) == layout_of_records();
}

}  // namespace

Result<JournalContents> parse_journal(std::vector<std::byte> bytes, const std::string& path, Records wanted) {
  const auto bad = [&](const std::string& what) { return fail(ErrorCode::bad_file, path + " " + what); };
  JournalContents contents;
  contents.bytes = std::move(bytes);
  const std::span<const std::byte> file(contents.bytes);
  if (says_nothing(file)) return contents;
  if (file.size() < kHeaderBytes || std::memcmp(file.data(), kMagic.data(), kMagic.size()) != 0) {
    return bad("is not a journal");
  }
  const std::string by_another =
      "it was written by a build " + writer_of(file) + ", this one is of version " + std::string(version());
  if (const auto format = get<std::uint32_t>(file, kFormatAt); format != kFormat) {
    return bad("is a journal of format " + std::to_string(format) + ", this program reads " + std::to_string(kFormat) +
               ": " + by_another);
  }
  const auto num_segments = get<std::uint32_t>(file, kNumSegmentsAt);
  const auto segment_bytes = get<std::uint64_t>(file, kSegmentBytesAt);
  const auto version_bytes = get<std::uint32_t>(file, kVersionAt);
  if (version_bytes > kMaxVersionBytes || segment_bytes < kLeastSegmentBytes ||
      segment_bytes > (file.size() - kHeaderBytes) || num_segments > (file.size() - kHeaderBytes) / segment_bytes) {
    return bad("is cut short, or its header is damaged");
  }
  contents.version.assign(reinterpret_cast<const char*>(file.data() + kVersionAt + 4), version_bytes);
  if (!has_layout(file, wanted)) {
    return bad("has records of another layout: " + by_another + "; another build's journal is read by that one");
  }
  for (std::uint32_t i = 0; i < num_segments; ++i) {
    const auto part = file.subspan(kHeaderBytes + i * segment_bytes, segment_bytes);
    JournalContents::Segment segment{get<std::uint64_t>(part, 0), {}};
    if (segment.number == 0) continue;
    contents.num_damaged += read_segment(part, segment) ? 0 : 1;
    if (!segment.records.empty()) contents.segments.push_back(std::move(segment));
  }
  std::ranges::sort(contents.segments, {}, &JournalContents::Segment::number);
  return contents;
}

std::optional<JournalContents::Setup> setup_of(const JournalContents& journal) {
  if (journal.segments.empty()) return std::nullopt;
  Decoder in(journal.segments.back().records.front());
  journal::Source source{};
  std::uint8_t what = 0;
  JournalContents::Setup setup;
  const bool is_setup = in.get(source) && in.get(what) && source == journal::Source::setup && what == journal::kState;
  if (!is_setup || !in.get(setup.config) || !in.get(setup.model) || in.num_left() > 0) return std::nullopt;
  return setup;
}

Result<JournalContents> read_journal(const std::string& path, Records wanted) {
  constexpr std::uintmax_t kMostBytes = std::uintmax_t{1} << 36U;
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  if (error) return fail(ErrorCode::io_failed, "cannot read " + path + ": " + error.message());
  if (size > kMostBytes) return fail(ErrorCode::bad_file, path + " is not a journal");
  std::vector<std::byte> bytes(size);
  std::ifstream file(path, std::ios::binary);
  if (!file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size))) {
    return fail(ErrorCode::io_failed, "cannot read " + path + ": " + std::strerror(errno));
  }
  return parse_journal(std::move(bytes), path, wanted);
}

}  // namespace pagoda::io
