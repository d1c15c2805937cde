#include "io/packed_cache/packed_cache.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <map>
#include <random>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "io/model_files/part_file.hpp"
#include "io/model_files/safetensors_file.hpp"

namespace pagoda::io {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEnding = ".packed";
constexpr const char* kIdentity = "identity";
constexpr const char* kModel = "model";
constexpr std::string_view kChecksum = "checksum ";  // begins the key of a copy's checksum
/// Time without a write after which the writer of an unfinished file has certainly ended.
constexpr auto kUnfinishedAge = std::chrono::minutes(10);

std::string hex(std::uint64_t hash) {
  return fmt::format("{:016x}", hash);
}

std::string checksum_of(std::span<const std::uint64_t> chunks) {
  return hex(XXH3_64bits(chunks.data(), chunks.size_bytes()));
}

std::string checksum_of(std::span<const std::byte> bytes) {
  std::vector<std::uint64_t> chunks;
  for (std::size_t from = 0; from < bytes.size(); from += PackedFile::kChunkBytes) {
    chunks.push_back(chunk_hash(bytes.subspan(from, std::min(PackedFile::kChunkBytes, bytes.size() - from))));
  }
  return checksum_of(chunks);
}

/// Returns the files of a folder, as far as it can be read.
std::vector<fs::directory_entry> files_in(const fs::path& folder) {
  std::vector<fs::directory_entry> files;
  std::error_code error;
  for (fs::directory_iterator file(folder, error); !error && file != fs::directory_iterator(); file.increment(error)) {
    files.push_back(*file);
  }
  return files;
}

/// Removes files that processes have left unfinished.
void remove_unfinished(const fs::path& folder) {
  const auto now = fs::file_time_type::clock::now();
  for (const auto& file : files_in(folder)) {
    std::error_code ignored;
    const bool is_part = file.path().extension() == PartFile::kEnding && file.path().stem().extension() == kEnding;
    if (is_part && now - file.last_write_time(ignored) > kUnfinishedAge) fs::remove(file.path(), ignored);
  }
}

/// Returns whether only this user (or root) can have written the file or folder, which is no link.
bool is_own(const fs::path& path, mode_t type) {
  struct stat facts {};
  if (::lstat(path.c_str(), &facts) != 0 || (facts.st_mode & S_IFMT) != type) return false;
  const bool has_owner = facts.st_uid == ::geteuid() || facts.st_uid == 0;
  return has_owner && (facts.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

/// Returns the path without links of an existing folder of a cache. Errors: bad_config.
Result<fs::path> own_folder(const fs::path& folder) {
  std::error_code error;
  auto real = fs::canonical(folder, error);
  if (!error && is_own(real, S_IFDIR)) return real;
  return fail(ErrorCode::bad_config,
              "packed_cache: " + folder.string() +
                  " must be a folder of this user that no other user may write: its files are used as weights",
              "packed_cache");
}

tl::unexpected<Error> cannot_make(const fs::path& folder, const std::error_code& error) {
  return fail(ErrorCode::io_failed, "packed_cache: cannot make " + folder.string() + ": " + error.message(),
              "packed_cache");
}

}  // namespace

Result<PackedFile> PackedFile::open(const fs::path& path) {
  if (!is_own(path, S_IFREG)) {
    return fail(ErrorCode::io_failed, path.string() + ": another user may have written this file");
  }
  auto file = MappedFile::open(path);
  if (!file) return fail(std::move(file.error()));
  auto header = parse_safetensors(file->bytes(), path.string());
  if (!header) return fail(std::move(header.error()));
  return PackedFile(std::move(*file), std::move(*header));
}

std::vector<std::pair<std::string, std::size_t>> PackedFile::copies() const {
  std::vector<std::pair<std::string, std::size_t>> all;
  for (const auto& [name, tensor] : header_.tensors) all.emplace_back(name, tensor.end - tensor.begin);
  return all;
}

std::span<const std::byte> PackedFile::find(std::string_view name, std::size_t bytes) const {
  const auto found = header_.tensors.find(name);
  if (found == header_.tensors.end() || found->second.end - found->second.begin != bytes) return {};
  return file_.bytes().subspan(found->second.begin, bytes);
}

bool PackedFile::has_hashes(std::string_view name, std::span<const std::uint64_t> chunks) const {
  return metadata(std::string(kChecksum) + std::string(name)) == checksum_of(chunks);
}

PackedModel PackedFile::model() const {
  return {metadata(kModel), metadata(kIdentity)};
}

std::string PackedFile::metadata(const std::string& key) const {
  const auto found = header_.metadata.find(key);
  return found == header_.metadata.end() ? std::string() : found->second;
}

std::string packed_identity(std::string_view facts) {
  const XXH128_hash_t hash = XXH3_128bits(facts.data(), facts.size());
  return hex(hash.high64) + hex(hash.low64);
}

std::uint64_t chunk_hash(std::span<const std::byte> chunk) {
  return XXH3_64bits(chunk.data(), chunk.size());
}

Result<std::shared_ptr<const PackedCache>> PackedCache::open(const fs::path& folder, std::int64_t max_bytes) {
  std::error_code error;
  const fs::path own = folder.has_filename() ? folder : folder.parent_path();
  if (own.has_parent_path()) fs::create_directories(own.parent_path(), error);
  // It has its permissions from the beginning, since another process may open it meanwhile.
  if (!error && ::mkdir(own.c_str(), S_IRWXU) != 0 && errno != EEXIST) error = {errno, std::generic_category()};
  if (error) return cannot_make(folder, error);
  auto real = own_folder(folder);
  if (!real) return fail(std::move(real.error()));
  remove_unfinished(*real);
  return std::shared_ptr<const PackedCache>(new PackedCache(std::move(*real), max_bytes));
}

Status PackedCache::check(const fs::path& folder) {
  std::error_code error;
  if (fs::exists(folder, error)) {
    const auto real = own_folder(folder);
    return real ? Status() : fail(real.error());
  }
  fs::path parent = folder;
  while (parent.has_relative_path() && !fs::exists(fs::symlink_status(parent, error))) parent = parent.parent_path();
  if (!fs::is_directory(parent, error)) return cannot_make(folder, std::make_error_code(std::errc::not_a_directory));
  if (::faccessat(AT_FDCWD, parent.c_str(), W_OK | X_OK, AT_EACCESS) == 0) return {};
  return cannot_make(folder, std::error_code(errno, std::generic_category()));
}

fs::path PackedCache::file_of(const PackedModel& model) const {
  return folder_ / (hex(XXH3_64bits(model.identity.data(), model.identity.size())) + std::string(kEnding));
}

std::optional<PackedFile> PackedCache::find(const PackedModel& model) const {
  const fs::path path = file_of(model);
  auto file = PackedFile::open(path);
  if (!file || file->model().identity != model.identity) return std::nullopt;
  std::error_code error;
  fs::last_write_time(path, fs::file_time_type::clock::now(), error);  // if it fails, the file is removed earlier
  return std::move(*file);
}

Status PackedCache::write(const PackedModel& model, const std::vector<PackedCopy>& copies,
                          const std::stop_token& stop) const {
  const auto stopped = [] { return fail(ErrorCode::io_failed, "the process ends before they are written"); };
  std::map<std::string, std::string> metadata{{kIdentity, model.identity}, {kModel, model.name}};
  std::vector<SafetensorsTensor> tensors;
  std::int64_t bytes = 0;
  for (const PackedCopy& copy : copies) {
    if (stop.stop_requested()) return stopped();
    tensors.push_back({copy.name, "U8", {static_cast<std::int64_t>(copy.bytes.size())}, copy.bytes.size()});
    metadata.emplace(std::string(kChecksum) + copy.name, checksum_of(copy.bytes));
    bytes += static_cast<std::int64_t>(copy.bytes.size());
  }
  if (bytes > max_bytes_) {
    return fail(ErrorCode::io_failed,
                fmt::format("{} MiB are more than the limit of {} MiB", bytes >> 20, max_bytes_ >> 20));
  }
  if (Status fits = make_room(bytes); !fits) return fits;
  std::error_code error;
  const fs::path path = file_of(model);
  // Several processes and threads may write the same file.
  const fs::path own = folder_ / fmt::format("{}.{:08x}{}", path.stem().string(), std::random_device()(), kEnding);
  auto file = create_safetensors_file(own, std::move(tensors), metadata);
  if (!file) return fail(std::move(file.error()));
  fs::permissions(file->part(), fs::perms::owner_read | fs::perms::owner_write, error);
  for (const PackedCopy& copy : copies) {
    if (stop.stop_requested()) return stopped();
    if (Status status = file->write(copy.name, copy.bytes); !status) return status;
  }
  if (Status status = file->finish(); !status) return status;
  fs::rename(own, path, error);
  if (!error) return {};
  std::error_code ignored;
  fs::remove(own, ignored);
  return fail(ErrorCode::io_failed, "cannot rename " + own.string() + ": " + error.message());
}

std::vector<PackedCache::Entry> PackedCache::list() const {
  std::vector<Entry> entries;
  std::error_code error;
  for (const auto& file : files_in(folder_)) {
    if (file.path().extension() != kEnding || !file.is_regular_file(error)) continue;
    Entry entry{file.path(), {}, static_cast<std::int64_t>(file.file_size(error)), file.last_write_time(error)};
    if (error) continue;  // it has gone meanwhile
    if (const auto opened = PackedFile::open(file.path())) entry.model = opened->model().name;
    entries.push_back(std::move(entry));
  }
  std::ranges::sort(entries, [](const Entry& a, const Entry& b) { return a.last_used > b.last_used; });
  return entries;
}

Result<std::int64_t> PackedCache::clear() const {
  std::int64_t freed = 0;
  for (const Entry& entry : list()) {
    std::error_code error;
    if (fs::remove(entry.file, error)) freed += entry.bytes;
    if (error) return fail(ErrorCode::io_failed, "cannot remove " + entry.file.string() + ": " + error.message());
  }
  return freed;
}

Status PackedCache::make_room(std::int64_t bytes) const {
  std::vector<Entry> entries = list();
  std::int64_t total = bytes;
  std::int64_t removable = 0;
  for (const Entry& entry : entries) {
    total += entry.bytes;
    removable += entry.bytes;
  }
  std::error_code error;
  const auto free_bytes = static_cast<std::int64_t>(fs::space(folder_, error).available);
  const std::int64_t removed = std::min(removable, std::max<std::int64_t>(0, total - max_bytes_));
  if (!error && (free_bytes + removed) / 2 < bytes) {
    return fail(ErrorCode::io_failed, fmt::format("the disk of {} has {} MiB left, and the file takes {} MiB",
                                                  folder_.string(), free_bytes >> 20, bytes >> 20));
  }
  for (; total > max_bytes_ && !entries.empty(); entries.pop_back()) {
    if (fs::remove(entries.back().file, error)) total -= entries.back().bytes;
  }
  return {};
}

}  // namespace pagoda::io
