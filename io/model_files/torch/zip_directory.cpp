#include "io/model_files/torch/zip_directory.hpp"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "io/model_files/file_text.hpp"
#include "io/model_files/little_endian.hpp"

namespace pagoda::io {
namespace {

constexpr std::uint64_t kLocalSignature = 0x04034b50;
constexpr std::uint64_t kCentralSignature = 0x02014b50;
constexpr std::uint64_t kEndSignature = 0x06054b50;
constexpr std::uint64_t kEnd64Signature = 0x06064b50;
constexpr std::uint64_t kLocator64Signature = 0x07064b50;
constexpr std::uint64_t kLocalBytes = 30;
constexpr std::uint64_t kCentralBytes = 46;
constexpr std::uint64_t kEndBytes = 22;
constexpr std::uint64_t kEnd64Bytes = 56;
constexpr std::uint64_t kLocator64Bytes = 20;

constexpr std::uint64_t kFull16 = 0xffff;      // "see zip64"
constexpr std::uint64_t kFull32 = 0xffffffff;  // "see zip64"
constexpr std::uint64_t kSizesFollow = 1U << 3;
constexpr std::uint64_t kNamesAreUtf8 = 1U << 11;
constexpr std::uint64_t kLevelHints = 3U << 1;

/// A central or local header of an entry; `offset` is set for central headers only.
struct EntryHeader {
  std::string_view name;
  std::uint64_t flags = 0;
  std::uint64_t method = 0;
  std::uint64_t stored_bytes = 0;
  std::uint64_t bytes = 0;
  std::uint64_t offset = 0;
  std::uint64_t header_bytes = 0;
};

/// Range of an entry in the file, header included.
struct Extent {
  std::string_view name;
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

class ZipReader {
 public:
  ZipReader(std::span<const std::byte> file, std::string_view file_name) : file_(file), file_name_(file_name) {}

  Result<ZipDirectory> read() {
    if (auto status = find_directory(); !status) return fail(std::move(status.error()));
    ZipDirectory entries;
    std::vector<Extent> extents;
    std::uint64_t at = directory_begin_;
    for (std::uint64_t i = 0; i < num_entries_; ++i) {
      const auto central = central_header(at);
      if (!central) return fail(central.error());
      at += central->header_bytes;
      const auto data_begin = local_data(*central);
      if (!data_begin) return fail(data_begin.error());
      const std::uint64_t data_end = *data_begin + central->bytes;
      if (!entries.emplace(central->name, ZipEntry{*data_begin, data_end}).second) {
        return bad("entry " + quote(central->name) + " is in the zip directory twice");
      }
      extents.push_back({central->name, central->offset, data_end});
    }
    if (at != directory_end_) return bad("the zip directory is longer than its entries");
    if (auto status = check_overlaps(extents); !status) return fail(std::move(status.error()));
    return entries;
  }

 private:
  tl::unexpected<Error> bad(const std::string& reason) const {
    return fail(ErrorCode::bad_file, std::string(file_name_) + ": " + reason);
  }

  /// Returns a number. The caller must have checked that the field lies in the file.
  std::uint64_t field(std::uint64_t at, std::uint64_t bytes) const { return little_endian(file_.subspan(at, bytes)); }

  std::string_view text(std::uint64_t at, std::uint64_t bytes) const {
    return {reinterpret_cast<const char*>(file_.data() + at), bytes};
  }

  Status find_directory() {
    if (file_.size() < kEndBytes || field(file_.size() - kEndBytes, 4) != kEndSignature) {
      return bad("no zip directory at the end: truncated, or not a file of torch.save");
    }
    const std::uint64_t end = file_.size() - kEndBytes;
    if (field(end + 4, 2) != 0 || field(end + 6, 2) != 0) return bad("the zip file is a part of several");
    if (field(end + 20, 2) != 0) return bad("the zip file is truncated or ends with a comment");
    num_entries_ = field(end + 10, 2);
    std::uint64_t bytes = field(end + 12, 4);
    directory_begin_ = field(end + 16, 4);
    directory_end_ = end;
    const bool has_64 = end >= kLocator64Bytes + kEnd64Bytes && field(end - kLocator64Bytes, 4) == kLocator64Signature;
    if (has_64) {
      const std::uint64_t end_64 = end - kLocator64Bytes - kEnd64Bytes;
      if (field(end - kLocator64Bytes + 8, 8) != end_64 || field(end_64, 4) != kEnd64Signature ||
          field(end_64 + 4, 8) != kEnd64Bytes - 12) {
        return bad("the end of the zip64 directory is not at its recorded position");
      }
      const auto agrees = [](std::uint64_t narrow, std::uint64_t full, std::uint64_t wide) {
        return narrow == full || narrow == wide;
      };
      if (!agrees(num_entries_, kFull16, field(end_64 + 32, 8)) || !agrees(bytes, kFull32, field(end_64 + 40, 8)) ||
          !agrees(directory_begin_, kFull32, field(end_64 + 48, 8))) {
        return bad("the two ends of the zip directory contradict each other");
      }
      num_entries_ = field(end_64 + 32, 8);
      bytes = field(end_64 + 40, 8);
      directory_begin_ = field(end_64 + 48, 8);
      directory_end_ = end_64;
    }
    if (directory_begin_ > directory_end_ || directory_end_ - directory_begin_ != bytes) {
      return bad("the zip directory is not at its recorded position");
    }
    if (num_entries_ > kMaxZipEntries) {
      return bad(std::to_string(num_entries_) + " zip entries are more than the limit of " +
                 std::to_string(kMaxZipEntries));
    }
    return {};
  }

  /// Replaces each of `fields` that refers to zip64 by the number in the extra field [at, at + bytes), in the order
  /// that the format defines. Returns false when a number is missing.
  bool widen(std::uint64_t at, std::uint64_t bytes, std::initializer_list<std::uint64_t*> fields) const {
    std::uint64_t wide_at = 0;
    std::uint64_t wide_end = 0;
    for (std::uint64_t end = at + bytes; at + 4 <= end;) {
      const std::uint64_t part_end = at + 4 + field(at + 2, 2);
      if (part_end > end) break;
      if (field(at, 2) == 1) {
        wide_at = at + 4;
        wide_end = part_end;
        break;
      }
      at = part_end;
    }
    for (auto* narrow : fields) {
      if (*narrow != kFull32) continue;
      if (wide_at + 8 > wide_end) return false;
      *narrow = field(wide_at, 8);
      wide_at += 8;
    }
    return true;
  }

  /// Reads the central header at `at`.
  Result<EntryHeader> central_header(std::uint64_t at) const {
    if (directory_end_ - at < kCentralBytes || field(at, 4) != kCentralSignature) {
      return bad("the zip directory is damaged at byte " + std::to_string(at));
    }
    EntryHeader header;
    header.flags = field(at + 8, 2);
    header.method = field(at + 10, 2);
    header.stored_bytes = field(at + 20, 4);
    header.bytes = field(at + 24, 4);
    header.offset = field(at + 42, 4);
    const std::uint64_t name_bytes = field(at + 28, 2);
    const std::uint64_t extra_bytes = field(at + 30, 2);
    header.header_bytes = kCentralBytes + name_bytes + extra_bytes + field(at + 32, 2);
    if (directory_end_ - at < header.header_bytes) {
      return bad("the zip directory is damaged at byte " + std::to_string(at));
    }
    header.name = text(at + kCentralBytes, name_bytes);
    if (auto status = check_stored(header); !status) return fail(std::move(status.error()));
    if (!widen(at + kCentralBytes + name_bytes, extra_bytes, {&header.bytes, &header.stored_bytes, &header.offset})) {
      return bad("entry " + quote(header.name) + ": its zip64 sizes are missing");
    }
    if (header.stored_bytes != header.bytes) {
      return bad("entry " + quote(header.name) +
                 ": its stored size differs from the size of its content, although it is not compressed");
    }
    return header;
  }

  Status check_stored(const EntryHeader& header) const {
    const auto unsupported = [&](const std::string& reason) {
      return fail(ErrorCode::unsupported, std::string(file_name_) + ": entry " + quote(header.name) + " " + reason);
    };
    if (header.method != 0)
      return unsupported("is compressed, but torch.save does not compress: save the file again with torch.save");
    if ((header.flags & ~(kSizesFollow | kNamesAreUtf8 | kLevelHints)) != 0) {
      return unsupported("is encrypted or patched (flags " + std::to_string(header.flags) + ")");
    }
    return {};
  }

  /// Returns the offset of the entry's data, after its local header.
  Result<std::uint64_t> local_data(const EntryHeader& central) const {
    const auto bad_entry = [&](const std::string& reason) {
      return bad("entry " + quote(central.name) + ": " + reason);
    };
    if (central.offset > directory_begin_ || directory_begin_ - central.offset < kLocalBytes) {
      return bad_entry("its header lies outside the file's entries");
    }
    const std::uint64_t at = central.offset;
    if (field(at, 4) != kLocalSignature) return bad_entry("there is no header at its recorded position");
    const std::uint64_t name_bytes = field(at + 26, 2);
    const std::uint64_t extra_bytes = field(at + 28, 2);
    const std::uint64_t header_bytes = kLocalBytes + name_bytes + extra_bytes;
    const std::uint64_t room = directory_begin_ - at;
    if (header_bytes > room || central.bytes > room - header_bytes) {
      return bad_entry("reaches beyond the end of the file's entries");
    }
    EntryHeader local;
    local.flags = field(at + 6, 2);
    local.method = field(at + 8, 2);
    local.stored_bytes = field(at + 18, 4);
    local.bytes = field(at + 22, 4);
    local.name = text(at + kLocalBytes, name_bytes);
    const bool sizes_follow = (local.flags & kSizesFollow) != 0 && local.stored_bytes == 0 && local.bytes == 0;
    const bool widened = widen(at + kLocalBytes + name_bytes, extra_bytes, {&local.bytes, &local.stored_bytes});
    const bool sizes_agree =
        sizes_follow || (widened && local.bytes == central.bytes && local.stored_bytes == central.bytes);
    if (local.name != central.name || local.method != central.method || local.flags != central.flags || !sizes_agree) {
      return bad_entry("its header contradicts the zip directory");
    }
    return at + header_bytes;
  }

  Status check_overlaps(std::vector<Extent>& extents) const {
    std::ranges::sort(extents, {}, &Extent::begin);
    for (std::size_t i = 1; i < extents.size(); ++i) {
      if (extents[i].begin < extents[i - 1].end) {
        return bad("entry " + quote(extents[i].name) + " overlaps entry " + quote(extents[i - 1].name));
      }
    }
    return {};
  }

  std::span<const std::byte> file_;
  std::string_view file_name_;
  std::uint64_t num_entries_ = 0;
  std::uint64_t directory_begin_ = 0;
  std::uint64_t directory_end_ = 0;
};

}  // namespace

Result<ZipDirectory> parse_zip(std::span<const std::byte> file, std::string_view file_name) {
  return ZipReader(file, file_name).read();
}

}  // namespace pagoda::io
