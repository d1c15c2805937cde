#include "io/journal/journal_file.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <pthread.h>
#include <spdlog/spdlog.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "io/journal/journal_format.hpp"
#include "io/journal/record_layout.hpp"
#include "io/version.hpp"

namespace pagoda::io {
namespace {

using namespace journal_format;

constexpr int kKeptJournals = 3;
constexpr std::size_t kStatePieceBytes = 64 << 10;  ///< size of a piece of a state; the lock is free between two pieces
constexpr std::size_t kBatchBytes = 256 << 10;      ///< size of a batch of records for the follower
/// Maximum number of bytes of records that wait for the follower. Above it, no core is followed any more (follow_none).
constexpr std::size_t kMaxQueueBytes = 128U << 20U;
constexpr std::size_t kQueueHeaderBytes = 12;
constexpr std::size_t kMaxSpareBatches = 16;
constexpr int kFollowerNice = 5;

std::size_t segment_bytes_of(std::int64_t bytes) {
  return static_cast<std::size_t>(bytes) / kNumSegments / 4096 * 4096;
}

/// Returns the number of used bytes at which a segment counts as full.
std::size_t full_at(std::size_t segment_bytes) {
  return segment_bytes / 4 * 3;
}

/// Returns the offset that states may reach. They leave an eighth of a segment for records that arrive while the states
/// are written, and another eighth for the records after them.
std::size_t states_end_at(std::size_t segment_bytes) {
  return segment_bytes / 8 * 5;
}

tl::unexpected<Error> refused(const char* what, const std::string& path, int error) {
  const ErrorCode code = error == ENOSPC || error == EFBIG ? ErrorCode::out_of_memory : ErrorCode::bad_config;
  return fail(code, std::string("journal: cannot ") + what + " " + path + ": " + std::strerror(error), "journal");
}

std::string kept_name(const std::string& path, int i) {
  return i == 0 ? path : path + "." + std::to_string(i);
}

/// Renames each kept journal from number `first` on to the next number; the last one is overwritten.
Status shift_kept(const std::string& path, int first) {
  for (int i = kKeptJournals; i > first; --i) {
    if (std::rename(kept_name(path, i - 1).c_str(), kept_name(path, i).c_str()) != 0 && errno != ENOENT) {
      return refused("keep the earlier journal as", kept_name(path, i), errno);
    }
  }
  return {};
}

}  // namespace

Status keep_journal(const std::string& path) {
  return shift_kept(path, 0);
}

Result<std::string> keep_unreadable(const std::string& path) {
  std::string name = path + ".unread";
  std::error_code error;
  if (std::filesystem::equivalent(path, name, error) && !error) return name;
  if (const Status kept = shift_kept(name, 0); !kept) return fail(kept.error());
  if (::link(path.c_str(), name.c_str()) == 0) return name;
  std::filesystem::copy_file(path, name, error);  // on a file system without hard links
  if (!error) return name;
  return fail(ErrorCode::bad_config, "journal: cannot keep " + path + " as " + name + ": " + error.message(),
              "journal");
}

Result<std::shared_ptr<JournalFile>> JournalFile::create(const std::string& place, std::int64_t bytes,
                                                         std::string setup, const Options& options) {
  const std::string path = options.takes_place_later ? place + kLaterSuffix : place;
  const std::size_t segment_bytes = segment_bytes_of(bytes);
  if (segment_bytes < kMinSegmentBytes) {
    return fail(ErrorCode::bad_config, "journal_mib is too small for a journal", "journal_mib");
  }
  Options all = options;
  if (all.lock == nullptr) {
    auto lock = JournalLock::take(place);
    if (!lock) return fail(std::move(lock.error()));
    all.lock = std::move(*lock);
  }
  struct stat before {};
  if (::stat(path.c_str(), &before) == 0) {
    if (!S_ISREG(before.st_mode)) return fail(ErrorCode::bad_config, "journal: " + path + " is not a file", "journal");
    if (options.takes_place_later) {  // left by a process that died before take_place()
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
    return refused("reserve disk space for", path, error);
  }
  if (data == MAP_FAILED) {
    ::unlink(path.c_str());
    return refused("map", path, map_error);
  }
  const std::span<std::byte> map(static_cast<std::byte*>(data), size);
  put(map, kFormatAt, kFormat);
  put(map, kNumSegmentsAt, kNumSegments);
  put(map, kSegmentBytesAt, static_cast<std::uint64_t>(segment_bytes));
  put(map, kLayoutAt, layout_of_records());
  const std::string_view program = version().substr(0, kMaxVersionBytes);
  put(map, kVersionAt, static_cast<std::uint32_t>(program.size()));
  std::memcpy(map.data() + kVersionAt + 4, program.data(), program.size());
  put(map, kResumableLayoutAt, layout_of_resumable_requests());
  // The magic is written last: if the process dies before, the file is blank and holds no segments.
  std::atomic_signal_fence(std::memory_order_seq_cst);
  std::memcpy(map.data(), kMagic.data(), kMagic.size());
  return std::shared_ptr<JournalFile>(new JournalFile(place, map, segment_bytes, std::move(setup), std::move(all)));
}

JournalFile::JournalFile(std::string path, std::span<std::byte> file, std::size_t segment_bytes, std::string setup,
                         Options options)
    : path_(std::move(path)),
      file_(file),
      segment_bytes_(segment_bytes),
      setup_(std::move(setup)),
      options_(std::move(options)) {
  begin_segment();
  if (options_.follows) follower_ = std::thread([this] { follow(); });
}

Status JournalFile::take_place() {
  PAGODA_ASSERT(options_.takes_place_later, "the file is not at its place yet");
  // PATH always has a journal. If the process dies here, PATH has either the old journal or the new one.
  if (const Status kept = shift_kept(path_, 1); !kept) return kept;
  const std::string before = kept_name(path_, 1);
  ::unlink(before.c_str());
  if (::link(path_.c_str(), before.c_str()) != 0 && errno != ENOENT) {  // a file system without hard links
    if (const Status kept = shift_kept(path_, 0); !kept) return kept;
  }
  if (std::rename((path_ + kLaterSuffix).c_str(), path_.c_str()) != 0) return refused("make", path_, errno);
  return {};
}

JournalFile::~JournalFile() {
  if (follower_.joinable()) {
    {
      const std::lock_guard lock(mutex_);
      ends_ = true;
    }
    work_.notify_one();
    follower_.join();
  }
  ::munmap(file_.data(), file_.size());
}

std::span<std::byte> JournalFile::current() const {
  const std::size_t index = static_cast<std::size_t>((segment_ - 1) % kNumSegments);
  return file_.subspan(kHeaderBytes + index * segment_bytes_, segment_bytes_);
}

/// Begins the next segment. If the follower has not written the output core's state in time, the core writes its state
/// itself at the beginning of this segment. So the newest state to recover requests from is at most one segment back.
/// The core does so also after a record that did not fit: the records of the next segment are useless without a state.
void JournalFile::begin_segment() {
  FollowedCore& output = cores_[journal::Source::output];
  if (is_torn_ || output.with_state != segment_) output.is_followed = false;
  segment_ += is_torn_ ? 2 : 1;
  const std::span<std::byte> segment = current();
  // Ends the old records of the segment before its number changes.
  put(segment, kSegmentHeaderBytes, std::uint32_t{0});
  std::atomic_signal_fence(std::memory_order_seq_cst);
  put(segment, 0, segment_);
  used_ = kSegmentHeaderBytes;
  is_torn_ = false;
  std::vector<std::byte> record = journal::header_of(journal::Source::setup, journal::kState);
  Encoder out(record);
  out.put(setup_);
  out.put(options_.model);
  write(record);
}

/// Writes a record into the current segment. Returns whether there was room. The length is written last and makes the
/// record valid, so the process may die at any point of this function.
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
  return true;
}

std::uint64_t JournalFile::segment() const {
  const std::lock_guard lock(mutex_);
  return segment_;
}

bool JournalFile::append(std::uint64_t segment, std::span<const std::byte> record) {
  PAGODA_ASSERT(!record.empty(), "a record of length 0 would be the end");
  const std::lock_guard lock(mutex_);
  if (segment != segment_) return false;
  if (const auto header = journal::read_header(record)) {
    FollowedCore& its = cores_[header->core];
    if (its.is_followed) queue(its, record);
  }
  if (!is_torn_) is_torn_ = !write(record);
  return true;
}

bool JournalFile::append_state(std::uint64_t segment, std::span<const std::byte> record) {
  const std::lock_guard lock(mutex_);
  const auto header = journal::read_header(record);
  PAGODA_ASSERT(header, "a state is of a core");
  const journal::CoreId& core = header->core;
  FollowedCore& its = cores_[core];
  if (segment != segment_) return false;
  its.is_followed = options_.follows && journal::StateFollower::can_follow(core) &&
                    (core != journal::Source::output || options_.tokenizer != nullptr);
  if (its.is_followed) queue(its, record);
  if (!is_torn_ && used_ + record.size() <= states_end_at(segment_bytes_) && write(record)) its.with_state = segment;
  return true;
}

bool JournalFile::follows(const journal::CoreId& core) const {
  const std::lock_guard lock(mutex_);
  const auto found = cores_.find(core);
  return found != cores_.end() && found->second.is_followed;
}

void JournalFile::begin_segment_if_full() {
  const std::lock_guard lock(mutex_);
  if (is_torn_ || used_ >= full_at(segment_bytes_)) begin_segment();
}

void JournalFile::on_diverged(const journal::CoreId& core) {
  spdlog::warn(
      "journal: the {} is no longer recorded, because its copy without tokens differs from it (journal_tokens is off); "
      "restart the server to record it again",
      journal::to_string(core));
}

std::size_t JournalFile::max_state_bytes(std::int64_t bytes) {
  return states_end_at(segment_bytes_of(bytes));
}

/// Returns a quarter of a segment. All states together have 5/8 of a segment (states_end_at), so 3/8 are left for the
/// live requests and for the other cores.
std::size_t JournalFile::max_ended_bytes(std::int64_t bytes) {
  return segment_bytes_of(bytes) / 4;
}

std::int64_t JournalFile::mib_for_states(std::size_t bytes) {
  constexpr std::size_t kMiB = std::size_t{1} << 20U;
  return static_cast<std::int64_t>((bytes / 5 * 8 * kNumSegments + 2 * kMiB - 1) / kMiB);
}

/// Call with the lock. Wakes the follower only for the first record of a segment or when a batch is full, so steps
/// seldom wake it. A batch does not outgrow its reserved memory, so that no step copies waiting records; a larger
/// record gets a batch of its own.
void JournalFile::queue(FollowedCore& its, std::span<const std::byte> record) {
  const std::size_t bytes = kQueueHeaderBytes + record.size();
  if (queue_bytes_ + bytes > kMaxQueueBytes) return follow_none();
  if (queue_.empty() || queue_.back().size() + bytes > kBatchBytes) {
    queue_.emplace_back();
    if (!spare_batches_.empty()) {
      queue_.back().swap(spare_batches_.back());
      spare_batches_.pop_back();
    }
    queue_.back().reserve(std::max(kBatchBytes, bytes));
  }
  std::vector<std::byte>& batch = queue_.back();
  const std::size_t at = batch.size();
  batch.resize(at + kQueueHeaderBytes);
  put(batch, at, segment_);
  put(batch, at + 8, static_cast<std::uint32_t>(record.size()));
  batch.insert(batch.end(), record.begin(), record.end());
  queue_bytes_ += bytes;
  const bool is_first = std::exchange(its.segment, segment_) != segment_;
  if ((!is_first && queue_bytes_ < kBatchBytes) || std::exchange(has_work_, true)) return;
  work_.notify_one();
}

/// Call with the lock. Stops following. Each core writes its next state itself and is followed again from that state.
void JournalFile::follow_none() {
  for (auto& [core, its] : cores_) its.is_followed = false;
  queue_.clear();
  queue_bytes_ = 0;
}

void JournalFile::follow() {
  ::pthread_setname_np(::pthread_self(), "pagoda-journal");
  ::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kFollowerNice);  // no thread waits for it
  try {
    journal::StateFollower follower(*this, options_.tokenizer);
    std::deque<std::vector<std::byte>> batches;
    for (;;) {
      if (batches.size() > kMaxSpareBatches) batches.resize(kMaxSpareBatches);
      {
        std::unique_lock lock(mutex_);
        for (; !batches.empty() && spare_batches_.size() < kMaxSpareBatches; batches.pop_front()) {
          if (batches.front().capacity() > kBatchBytes) continue;  // it was made for one large state
          batches.front().clear();
          spare_batches_.push_back(std::move(batches.front()));
        }
        work_.wait(lock, [this] { return has_work_ || ends_; });
        if (ends_) return;
        has_work_ = false;
        batches.clear();
        batches.swap(queue_);
        queue_bytes_ = 0;
      }
      for (const std::vector<std::byte>& batch : batches) {
        for (std::size_t at = 0; at < batch.size();) {
          const auto segment = get<std::uint64_t>(batch, at);
          const auto length = get<std::uint32_t>(batch, at + 8);
          follower.record(segment, std::span(batch).subspan(at + kQueueHeaderBytes, length));
          at += kQueueHeaderBytes + length;
        }
      }
    }
  } catch (const std::exception& error) {
    spdlog::warn("journal: the thread that follows the cores has failed, so steps write the states from now on: {}",
                 error.what());
    const std::lock_guard lock(mutex_);
    options_.follows = false;
    follow_none();
  }
}

std::optional<std::size_t> JournalFile::room(std::uint64_t segment) const {
  const std::lock_guard lock(mutex_);
  if (segment != segment_ || is_torn_) return std::nullopt;
  const std::size_t end = states_end_at(segment_bytes_);
  return end - std::min(end, used_);
}

void JournalFile::put_first_state(std::uint64_t segment, std::span<const std::byte> record) {
  const auto header = journal::read_header(record);
  PAGODA_ASSERT(header, "a state is of a core");
  const bool is_for_recovery = header->what == journal::kRecoveryState;
  const std::byte kind = is_for_recovery ? kForRecovery : std::byte{0};
  auto left = record.subspan(journal::kRecordHeaderBytes);
  std::vector<std::byte> piece;
  for (bool is_first = true; is_first || !left.empty(); is_first = false) {
    const auto bytes = left.first(std::min(left.size(), kStatePieceBytes));
    left = left.subspan(bytes.size());
    const std::byte place = (is_first ? kFirstPiece : std::byte{0}) | (left.empty() ? kLastPiece : std::byte{0});
    piece = journal::header_of(header->core, std::to_integer<std::uint8_t>(kStatePiece));
    piece.push_back(place | kind);
    piece.insert(piece.end(), bytes.begin(), bytes.end());
    const std::lock_guard lock(mutex_);
    if (segment != segment_ || is_torn_ || !write(piece)) return;
    if (left.empty()) cores_[header->core].with_state = segment;
  }
}

bool JournalFile::has_state(std::uint64_t segment, const journal::CoreId& core) const {
  const std::lock_guard lock(mutex_);
  const auto found = cores_.find(core);
  return found != cores_.end() && found->second.with_state == segment;
}

void JournalFile::left_out(std::uint64_t segment, const journal::CoreId& core, std::size_t bytes) {
  {
    const std::lock_guard lock(mutex_);
    cores_[core].with_state = segment;
  }
  if (!has_warned_.insert(core).second) return;
  const bool is_output = core == journal::Source::output;
  spdlog::warn(
      "journal: the state of the {} takes {} KiB, but a segment has room for {} KiB of states: {}; raise journal_mib "
      "to {}",
      journal::to_string(core), bytes >> 10U, max_room() >> 10U,
      is_output ? "resumable requests may be lost if the server dies"
                : "pagoda replay cannot begin there, but resumable requests are still recovered",
      mib_for_states(bytes));
}

void JournalFile::lost(const journal::CoreId& core) {
  const std::lock_guard lock(mutex_);
  cores_[core].is_followed = false;
}

}  // namespace pagoda::io
