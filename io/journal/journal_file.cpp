#include "io/journal/journal_file.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <utility>

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "io/version.hpp"

namespace pagoda::io {
namespace {

constexpr std::string_view kMagic = "PAGODA-J";
constexpr std::uint32_t kFormat = 1;
constexpr std::size_t kHeaderBytes = 4096;
constexpr std::size_t kMaxVersionBytes = 256;
constexpr std::uint32_t kNumSegments = 4;
constexpr std::size_t kSegmentHeaderBytes = 8;
constexpr std::size_t kRecordHeaderBytes = 8;
constexpr std::size_t kLeastSegmentBytes = 64 << 10;
/// A segment that holds fewer records than this beside the states it began with would have the engine write states
/// most of the time.
constexpr std::int64_t kLeastRecords = 64;

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

}  // namespace

Result<std::shared_ptr<JournalFile>> JournalFile::create(const std::string& path, std::int64_t bytes, std::string setup,
                                                         bool keeps_tokens) {
  const std::size_t segment_bytes = static_cast<std::size_t>(bytes) / kNumSegments / 4096 * 4096;
  if (segment_bytes < kLeastSegmentBytes) {
    return fail(ErrorCode::bad_config, "journal_mib is too small for a journal", "journal_mib");
  }
  struct stat before {};
  if (::stat(path.c_str(), &before) == 0 && S_ISREG(before.st_mode) && before.st_size > 0) {
    if (std::rename(path.c_str(), (path + ".1").c_str()) != 0) return refused("keep the journal before,", path, errno);
  }
  const int file = ::open(path.c_str(), O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (file < 0) return refused("make", path, errno);
  const std::size_t size = kHeaderBytes + kNumSegments * segment_bytes;
  const int error = ::posix_fallocate(file, 0, static_cast<off_t>(size));
  void* data = error == 0 ? ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
  const int map_error = errno;
  ::close(file);
  if (error != 0) {
    ::unlink(path.c_str());
    return refused("take room for", path, error);
  }
  if (data == MAP_FAILED) return refused("map", path, map_error);
  const std::span<std::byte> map(static_cast<std::byte*>(data), size);
  std::memcpy(map.data(), kMagic.data(), kMagic.size());
  put(map, 8, kFormat);
  put(map, 12, kNumSegments);
  put(map, 16, static_cast<std::uint64_t>(segment_bytes));
  const std::string_view program = version().substr(0, kMaxVersionBytes);
  put(map, 24, static_cast<std::uint32_t>(program.size()));
  std::memcpy(map.data() + 28, program.data(), program.size());
  std::optional<std::array<std::uint64_t, 2>> token_key;
  if (!keeps_tokens) {
    std::random_device random;
    const auto word = [&] { return (std::uint64_t{random()} << 32U) | random(); };
    token_key = {word(), word()};
  }
  return std::shared_ptr<JournalFile>(new JournalFile(map, segment_bytes, std::move(setup), token_key));
}

JournalFile::JournalFile(std::span<std::byte> file, std::size_t segment_bytes, std::string setup,
                         std::optional<std::array<std::uint64_t, 2>> token_key)
    : file_(file), segment_bytes_(segment_bytes), setup_(std::move(setup)), token_key_(token_key) {
  begin_segment();
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
  const std::lock_guard lock(mutex_);
  if (is_over_) return true;
  if (segment != segment_) return false;
  if (!is_torn_) is_torn_ = !write(record);
  return true;
}

void JournalFile::begin_segment_if_full() {
  const std::lock_guard lock(mutex_);
  if (is_over_ || (!is_torn_ && used_ < segment_bytes_ / 4 * 3)) return;
  if (num_records_ < kLeastRecords) {
    is_over_ = true;
    spdlog::warn(
        "journal: a segment of {} MiB does not hold the state of what runs; nothing more is recorded; raise "
        "journal_mib",
        segment_bytes_ >> 20U);
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

}  // namespace

Result<JournalContents> parse_journal(std::vector<std::byte> bytes, const std::string& path) {
  const auto bad = [&](const std::string& what) { return fail(ErrorCode::bad_file, path + " " + what); };
  JournalContents contents;
  contents.bytes = std::move(bytes);
  const std::span<const std::byte> file(contents.bytes);
  if (file.size() < kHeaderBytes || std::memcmp(file.data(), kMagic.data(), kMagic.size()) != 0) {
    return bad("is not a journal");
  }
  if (const auto format = get<std::uint32_t>(file, 8); format != kFormat) {
    return bad("is a journal of format " + std::to_string(format) + ", this program reads " + std::to_string(kFormat));
  }
  const auto num_segments = get<std::uint32_t>(file, 12);
  const auto segment_bytes = get<std::uint64_t>(file, 16);
  const auto version_bytes = get<std::uint32_t>(file, 24);
  if (version_bytes > kMaxVersionBytes || segment_bytes < kLeastSegmentBytes ||
      segment_bytes > (file.size() - kHeaderBytes) || num_segments > (file.size() - kHeaderBytes) / segment_bytes) {
    return bad("is cut short, or its header is damaged");
  }
  contents.version.assign(reinterpret_cast<const char*>(file.data() + 28), version_bytes);
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

Result<JournalContents> read_journal(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return fail(ErrorCode::io_failed, "cannot read " + path + ": " + std::strerror(errno));
  const std::vector<char> text{std::istreambuf_iterator<char>(file), {}};
  const auto bytes = std::as_bytes(std::span(text));
  return parse_journal({bytes.begin(), bytes.end()}, path);
}

}  // namespace pagoda::io
