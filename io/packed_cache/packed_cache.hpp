#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "io/model_files/mapped_file.hpp"
#include "io/model_files/safetensors.hpp"
#include "kernels/result.hpp"

namespace pagoda::io {

/// Identifies the packed weights of a model.
struct PackedModel {
  std::string name;      ///< path of the model, for lists
  std::string identity;  ///< see packed_identity
};
/// Returns a digest of `facts`: the files, formats and rank of a model. Two models have equal digests only if their
/// copies would be equal.
std::string packed_identity(std::string_view facts);

/// A copy of a weight, with the name that LoadedWeights gives it.
struct PackedCopy {
  std::string name;
  std::span<const std::byte> bytes;
};

/// The packed weights of one model in its file. The file may be removed meanwhile, but must not be changed in place.
/// Thread-safe.
class PackedFile {
 public:
  /// A part of a copy that is read at once, so that several threads can read one copy.
  static constexpr std::size_t kChunkBytes = std::size_t{1} << 20;

  /// Errors: io_failed, bad_file; io_failed also if another user may have written the file.
  static Result<PackedFile> open(const std::filesystem::path& path);

  /// Returns the names of the copies and their bytes.
  std::vector<std::pair<std::string, std::size_t>> copies() const;
  /// Returns the copy `name`, not checked yet; empty if the file has none of this size.
  std::span<const std::byte> find(std::string_view name, std::size_t bytes) const;
  /// Returns the memory of the file's pages that lie wholly in `copy` to the system; they may be read again.
  void drop_pages(std::span<const std::byte> copy) const { file_.drop_pages(copy); }
  /// Returns whether the copy had these hashes (chunk_hash), of its chunks in order, when it was written.
  bool has_hashes(std::string_view name, std::span<const std::uint64_t> chunks) const;
  /// Returns the model whose copies these are; its texts are empty if the file has none.
  PackedModel model() const;
  const std::string& path() const { return file_.path(); }

 private:
  PackedFile(MappedFile file, SafetensorsHeader header) : file_(std::move(file)), header_(std::move(header)) {}
  std::string metadata(const std::string& key) const;

  MappedFile file_;
  SafetensorsHeader header_;
};

/// Returns the hash of a chunk of a copy.
std::uint64_t chunk_hash(std::span<const std::byte> chunk);

/// A folder that keeps packed and quantised weights, so that the next process reads them in place of making them. Each
/// model has a file *.packed, in safetensors format: a tensor of bytes for each copy; the metadata have the identity of
/// the model and a checksum of each copy. Other files in the folder are left alone. Files of other users, and files
/// that others may write, are not read. A new file takes the place of those that were used least recently if the folder
/// would grow beyond its limit. Several processes may use a folder. Thread-safe.
class PackedCache {
 public:
  /// Opens the folder, and makes it if there is none (readable by its owner only). Removes files that a process has
  /// left unfinished. `max_bytes`: limit on all files. Errors: io_failed; bad_config if others may write the folder, or
  /// it is another user's.
  static Result<std::shared_ptr<const PackedCache>> open(const std::filesystem::path& folder,
                                                         std::int64_t max_bytes = std::int64_t{1} << 62);

  /// Returns whether open() can succeed, without making the folder or its parents. Errors: as open().
  static Status check(const std::filesystem::path& folder);

  /// Returns the file of the model, and marks it as used; none if there is none that may be read.
  std::optional<PackedFile> find(const PackedModel& model) const;

  /// Writes the file of the model; an existing one is replaced. Errors: io_failed, also if the disk would be left with
  /// less free space than the file takes, or if `stop` is requested before the end.
  Status write(const PackedModel& model, const std::vector<PackedCopy>& copies, const std::stop_token& stop = {}) const;

  struct Entry {
    std::filesystem::path file;
    std::string model;  ///< PackedModel::name; empty if the file cannot be read
    std::int64_t bytes = 0;
    std::filesystem::file_time_type last_used;
  };
  /// Returns the files, those used last first.
  std::vector<Entry> list() const;
  /// Removes all files. Processes that use them are not affected. Returns the bytes that were freed. Errors: io_failed.
  Result<std::int64_t> clear() const;

  const std::filesystem::path& folder() const { return folder_; }

 private:
  PackedCache(std::filesystem::path folder, std::int64_t max_bytes)
      : folder_(std::move(folder)), max_bytes_(max_bytes) {}
  std::filesystem::path file_of(const PackedModel& model) const;
  /// Removes files until there is room for one of `bytes`. Errors: io_failed if the disk has too little even then; then
  /// no file is removed.
  Status make_room(std::int64_t bytes) const;

  std::filesystem::path folder_;
  std::int64_t max_bytes_;
};

}  // namespace pagoda::io
