#include "io/model_files/gguf/gguf_file.hpp"

#include <array>
#include <cstdio>
#include <type_traits>
#include <utility>

#include "io/model_files/file_text.hpp"
#include "io/model_files/gguf/gguf_parse.hpp"

namespace pagoda::io {
namespace {

using Metadata = std::map<std::string, GgufValue, std::less<>>;

/// Limit on split.count.
constexpr std::int64_t kMaxParts = 1024;

constexpr std::string_view kAlignment = "general.alignment";
constexpr std::string_view kSplitNo = "split.no";
constexpr std::string_view kSplitCount = "split.count";
constexpr std::string_view kSplitTensors = "split.tensors.count";

tl::unexpected<Error> bad_key(std::string_view file, std::string_view key, std::string_view reason,
                              ErrorCode code = ErrorCode::bad_file) {
  // In a hostile file a key may hold any characters.
  const std::string shown = quote(key);
  const bool is_plain = shown.size() == key.size() + 2;
  return fail(code, std::string(file) + ": " + (is_plain ? std::string(key) : shown) + " " + std::string(reason),
              std::string(key));
}

/// Names of GgufValue's alternatives, in their order.
constexpr std::array<std::string_view, std::variant_size_v<GgufValue>> kTypeNames = {
    "a boolean",           "an integer",         "a number", "a string", "an array of booleans", "an array of integers",
    "an array of numbers", "an array of strings"};

template <class T>
Result<std::optional<T>> get_value(const Metadata& metadata, std::string_view key, std::string_view file) {
  const auto entry = metadata.find(key);
  if (entry == metadata.end()) return std::nullopt;
  if (const auto* value = std::get_if<T>(&entry->second)) return *value;
  if constexpr (std::is_same_v<T, double>) {
    if (const auto* value = std::get_if<std::int64_t>(&entry->second)) return static_cast<double>(*value);
  }
  if constexpr (std::is_same_v<T, std::vector<double>>) {
    if (const auto* values = std::get_if<std::vector<std::int64_t>>(&entry->second)) {
      return T(values->begin(), values->end());
    }
  }
  const auto wanted = kTypeNames[GgufValue(T()).index()];
  const auto is = kTypeNames[entry->second.index()];
  return bad_key(file, key, std::string("must be ").append(wanted).append(", not ").append(is));
}

/// A file's metadata about its place in a split file.
struct Split {
  std::int64_t no = 0;                  ///< index of this part, from 0
  std::int64_t count = 1;               ///< number of parts
  std::optional<std::int64_t> tensors;  ///< number of tensors in all parts together
};

Result<Split> read_split(const Metadata& metadata, std::string_view file) {
  const auto no = get_value<std::int64_t>(metadata, kSplitNo, file);
  if (!no) return fail(no.error());
  const auto count = get_value<std::int64_t>(metadata, kSplitCount, file);
  if (!count) return fail(count.error());
  const auto tensors = get_value<std::int64_t>(metadata, kSplitTensors, file);
  if (!tensors) return fail(tensors.error());
  // Files that were merged from parts have a count of 0.
  const std::int64_t parts = count->value_or(1);
  if (parts < 0 || parts > kMaxParts) {
    return bad_key(file, kSplitCount,
                   "must be from 0 to " + std::to_string(kMaxParts) + ", not " + std::to_string(parts));
  }
  if (parts <= 1) return Split{};
  if (!*no) return bad_key(file, kSplitNo, "is missing in a file of " + std::to_string(parts) + " parts");
  if (**no < 0 || **no >= parts) {
    return bad_key(file, kSplitNo, "must be from 0 to " + std::to_string(parts - 1) + ", not " + std::to_string(**no));
  }
  return Split{**no, parts, *tensors};
}

/// Returns the end of a part's name: "-00002-of-00003.gguf" for `no` = 1.
std::string part_ending(std::int64_t no, std::int64_t count) {
  std::array<char, 64> text{};
  std::snprintf(text.data(), text.size(), "-%05lld-of-%05lld.gguf", static_cast<long long>(no + 1),
                static_cast<long long>(count));
  return text.data();
}

/// Returns `name` without the end of a part's name; nothing when `name` ends differently.
std::optional<std::string> split_stem(const std::string& name, const Split& split) {
  const std::string ending = part_ending(split.no, split.count);
  if (!name.ends_with(ending)) return std::nullopt;
  return name.substr(0, name.size() - ending.size());
}

std::string part_of(std::int64_t no, std::int64_t count) {
  return "part " + std::to_string(no + 1) + " of " + std::to_string(count);
}

/// One part of a split file, or a whole file.
struct Part {
  MappedFile file;
  GgufContents contents;  // points into `file`
};

Result<Part> read_part(const std::filesystem::path& path) {
  auto file = MappedFile::open(path);
  if (!file) return fail(std::move(file.error()));
  auto contents = parse_gguf(file->bytes(), file->path());
  if (!contents) return fail(std::move(contents.error()));
  return Part{std::move(*file), std::move(*contents)};
}

/// Checks that `part` is number `no` of the file whose first part, `first_path`, has `split` and the metadata `first`.
Status check_part(const Part& part, std::int64_t no, const Split& split, const Metadata& first,
                  const std::string& first_path) {
  const std::string& path = part.file.path();
  const auto own = read_split(part.contents.metadata, path);
  if (!own) return fail(own.error());
  if (own->count != split.count || own->no != no) {
    return bad_key(
        path, kSplitNo,
        "is that of " + part_of(own->no, own->count) + ", but the file name is that of " + part_of(no, split.count));
  }
  for (const auto& [key, value] : part.contents.metadata) {
    if (key == kSplitNo || key == kAlignment) continue;
    const auto entry = first.find(key);
    if (entry != first.end() && entry->second != value) {
      return fail(ErrorCode::bad_file,
                  path + ": key " + quote(key) + " differs from " + first_path + ": parts of different files?", key);
    }
  }
  return {};
}

}  // namespace

Result<std::shared_ptr<const GgufFile>> GgufFile::open(const std::filesystem::path& path) {
  auto part = read_part(path);
  if (!part) return fail(std::move(part.error()));
  const std::shared_ptr<GgufFile> file(new GgufFile());
  file->metadata_ = std::move(part->contents.metadata);
  file->entries_ = std::move(part->contents.entries);
  if (auto added = file->add_part(std::move(part->file), std::move(part->contents.tensors)); !added) {
    return fail(std::move(added.error()));
  }
  if (auto added = file->add_other_parts(path); !added) return fail(std::move(added.error()));
  return file;
}

Status GgufFile::add_part(MappedFile file, std::map<std::string, GgufTensor, std::less<>> tensors) {
  files_.push_back(std::move(file));
  for (auto& [name, tensor] : tensors) {
    tensor.file = files_.size() - 1;
    const auto [entry, is_new] = tensors_.try_emplace(name, std::move(tensor));
    if (!is_new) {
      return fail(ErrorCode::bad_file,
                  files_.back().path() + ": tensor " + quote(name) + " is in " + path_of(entry->second) + " too");
    }
  }
  return {};
}

Status GgufFile::add_other_parts(const std::filesystem::path& first) {
  const auto split = read_split(metadata_, path());
  if (!split) return fail(split.error());
  if (split->count <= 1) return {};
  const auto stem = split_stem(first.filename().string(), *split);
  if (split->no != 0) {
    return bad(kSplitNo, "is that of " + part_of(split->no, split->count) + ": open the first part, " +
                             stem.value_or("NAME") + part_ending(0, split->count));
  }
  if (!stem) {
    return bad(kSplitCount, "is " + std::to_string(split->count) + ": the name of the first part must end with " +
                                part_ending(0, split->count) +
                                ", since the names of the other parts are derived from it");
  }
  for (std::int64_t no = 1; no < split->count; ++no) {
    auto part = read_part(first.parent_path() / (*stem + part_ending(no, split->count)));
    if (!part) {
      Error error = std::move(part.error());
      if (error.code == ErrorCode::io_failed) error.message += " (" + part_of(no, split->count) + ")";
      return fail(std::move(error));
    }
    if (auto belongs = check_part(*part, no, *split, metadata_, path()); !belongs) return belongs;
    if (auto added = add_part(std::move(part->file), std::move(part->contents.tensors)); !added) return added;
  }
  if (split->tensors && std::cmp_not_equal(*split->tensors, tensors_.size())) {
    return bad(kSplitTensors, "is " + std::to_string(*split->tensors) + ", but the parts have " +
                                  std::to_string(tensors_.size()) + " tensors");
  }
  return {};
}

const GgufValue* GgufFile::find(std::string_view key) const {
  const auto entry = metadata_.find(key);
  return entry == metadata_.end() ? nullptr : &entry->second;
}

template <class T>
Result<std::optional<T>> GgufFile::get(std::string_view key) const {
  return get_value<T>(metadata_, key, path());
}

template Result<std::optional<bool>> GgufFile::get(std::string_view) const;
template Result<std::optional<std::int64_t>> GgufFile::get(std::string_view) const;
template Result<std::optional<double>> GgufFile::get(std::string_view) const;
template Result<std::optional<std::string_view>> GgufFile::get(std::string_view) const;
template Result<std::optional<std::vector<bool>>> GgufFile::get(std::string_view) const;
template Result<std::optional<std::vector<std::int64_t>>> GgufFile::get(std::string_view) const;
template Result<std::optional<std::vector<double>>> GgufFile::get(std::string_view) const;
template Result<std::optional<std::vector<std::string_view>>> GgufFile::get(std::string_view) const;

tl::unexpected<Error> GgufFile::bad(std::string_view key, std::string_view reason, ErrorCode code) const {
  return bad_key(path(), key, reason, code);
}

const GgufTensor* GgufFile::tensor(std::string_view name) const {
  const auto entry = tensors_.find(name);
  return entry == tensors_.end() ? nullptr : &entry->second;
}

void GgufFile::drop_pages(const GgufTensor& tensor) const {
  files_[tensor.file].drop_pages(tensor.data);
}

}  // namespace pagoda::io
