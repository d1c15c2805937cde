#include "io/model_files/safetensors.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "io/model_files/file_text.hpp"
#include "io/model_files/little_endian.hpp"

namespace pagoda::io {
namespace {

/// Returns the bits per element of a dtype of the format; nothing for an unknown dtype.
std::optional<std::uint64_t> bits_of(std::string_view dtype) {
  static constexpr std::array<std::pair<std::string_view, std::uint64_t>, 22> kBits{{
      {"BOOL", 8},    {"U8", 8},      {"I8", 8},          {"F8_E5M2", 8},     {"F8_E4M3", 8}, {"F8_E8M0", 8},
      {"I16", 16},    {"U16", 16},    {"F16", 16},        {"BF16", 16},       {"I32", 32},    {"U32", 32},
      {"F32", 32},    {"I64", 64},    {"U64", 64},        {"F64", 64},        {"C64", 64},    {"F4", 4},
      {"F6_E2M3", 6}, {"F6_E3M2", 6}, {"F8_E4M3FNUZ", 8}, {"F8_E5M2FNUZ", 8},
  }};
  for (const auto& [name, bits] : kBits) {
    if (name == dtype) return bits;
  }
  return std::nullopt;
}

/// A tensor's fields while the JSON is being read; offsets are relative to the data part.
struct RawEntry {
  std::optional<std::string> dtype;
  std::optional<std::vector<std::uint64_t>> shape;
  std::optional<std::vector<std::uint64_t>> offsets;
};

/// Reads the header's JSON event by event, so that repeated keys are detected (a DOM would hide them) and only the
/// expected form is ever stored.
class HeaderReader {
 public:
  using json = nlohmann::json;

  std::map<std::string, RawEntry, std::less<>> entries;
  std::map<std::string, std::string, std::less<>> metadata;
  /// The first error.
  std::string error;

  bool null() { return unexpected("null"); }
  bool boolean(bool) { return unexpected("a boolean"); }
  bool number_integer(json::number_integer_t) { return unexpected("a negative number"); }
  bool number_float(json::number_float_t, const json::string_t&) {
    return unexpected("a number that is not an integer");
  }
  bool binary(json::binary_t&) { return unexpected("binary data"); }

  bool number_unsigned(json::number_unsigned_t value) {
    if (place_ != Place::list) return unexpected("a number");
    if (list_->size() >= kMaxTensorRank)
      return stop(where() + " has more than " + std::to_string(kMaxTensorRank) + " entries");
    list_->push_back(value);
    return true;
  }

  bool string(json::string_t& value) {
    if (place_ == Place::metadata) {
      metadata[key_] = std::move(value);
      return true;
    }
    if (place_ != Place::tensor || key_ != "dtype") return unexpected("a string");
    entry_->dtype = std::move(value);
    return true;
  }

  bool start_object(std::size_t) {
    switch (place_) {
      case Place::start:
        place_ = Place::header;
        return true;
      case Place::header:
        place_ = tensor_ == "__metadata__" ? Place::metadata : Place::tensor;
        return true;
      default:
        return unexpected("an object");
    }
  }

  bool key(json::string_t& value) {
    if (place_ == Place::header) return start_entry(value);
    key_ = std::move(value);
    if (place_ == Place::metadata)
      return !metadata.contains(key_) || stop("__metadata__ has " + quote(key_) + " twice");
    const bool twice = (key_ == "dtype" && entry_->dtype) || (key_ == "shape" && entry_->shape) ||
                       (key_ == "data_offsets" && entry_->offsets);
    if (twice) return stop(where() + " is given twice");
    if (key_ != "dtype" && key_ != "shape" && key_ != "data_offsets")
      return stop(where() + " is not a key of a tensor");
    return true;
  }

  bool end_object() {
    place_ = place_ == Place::header ? Place::end : Place::header;
    return true;
  }

  bool start_array(std::size_t) {
    if (place_ != Place::tensor || key_ == "dtype") return unexpected("an array");
    auto& target = key_ == "shape" ? entry_->shape : entry_->offsets;
    list_ = &target.emplace();
    place_ = Place::list;
    return true;
  }

  bool end_array() {
    place_ = Place::tensor;
    return true;
  }

  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception&) {
    return stop("the header is not valid JSON at byte " + std::to_string(position));
  }

 private:
  enum class Place { start, header, tensor, metadata, list, end };

  bool start_entry(std::string& name) {
    tensor_ = std::move(name);
    if (tensor_ == "__metadata__") {
      return !std::exchange(has_metadata_, true) || stop("the header has \"__metadata__\" twice");
    }
    const auto [position, is_new] = entries.try_emplace(tensor_);
    entry_ = &position->second;
    return is_new || stop("tensor " + quote(tensor_) + " is in the header twice");
  }

  bool stop(std::string reason) {
    error = std::move(reason);
    return false;
  }

  bool unexpected(const char* what) { return stop(where() + " must not be " + what); }

  std::string where() const {
    switch (place_) {
      case Place::start:
      case Place::end:
        return "the header";
      case Place::header:
        return tensor_ == "__metadata__" ? tensor_ : "tensor " + quote(tensor_);
      case Place::metadata:
        return "__metadata__ " + quote(key_);
      case Place::tensor:
        return "tensor " + quote(tensor_) + ": " + quote(key_);
      case Place::list:
        return "tensor " + quote(tensor_) + ": an entry of " + quote(key_);
    }
    return "the header";
  }

  Place place_ = Place::start;
  std::string tensor_;
  std::string key_;
  RawEntry* entry_ = nullptr;
  std::vector<std::uint64_t>* list_ = nullptr;
  bool has_metadata_ = false;
};

/// Returns the bytes of `shape`; nothing when the number does not fit 63 bits or is no whole number of bytes.
std::optional<std::uint64_t> tensor_bytes(const std::vector<std::uint64_t>& shape, std::uint64_t bits) {
  constexpr auto kMax = static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
  std::uint64_t total = bits;
  for (const auto dimension : shape) {
    if (dimension > kMax || (dimension != 0 && total > kMax / dimension)) return std::nullopt;
    total *= dimension;
  }
  if (total % 8 != 0) return std::nullopt;
  return total / 8;
}

/// Checks one tensor by itself. `data_bytes` is the length of the data part. Returns the error, if any.
std::optional<std::string> check_entry(const RawEntry& raw, std::uint64_t data_bytes) {
  if (!raw.dtype) return "\"dtype\" is missing";
  if (!raw.shape) return "\"shape\" is missing";
  if (!raw.offsets) return "\"data_offsets\" is missing";
  const auto bits = bits_of(*raw.dtype);
  if (!bits) return "unknown dtype " + quote(*raw.dtype);
  if (raw.offsets->size() != 2) return "\"data_offsets\" must be [begin, end]";
  const auto begin = raw.offsets->at(0);
  const auto end = raw.offsets->at(1);
  const std::string range = "data_offsets [" + std::to_string(begin) + ", " + std::to_string(end) + "]";
  if (begin > end) return range + " end before they begin";
  if (end > data_bytes) {
    return range + " reach beyond the end of the file, which holds " + std::to_string(data_bytes) + " bytes of data";
  }
  const auto expected = tensor_bytes(*raw.shape, *bits);
  if (!expected) return "the shape is too large, or not a whole number of bytes of " + *raw.dtype;
  if (*expected != end - begin) {
    return range + " hold " + std::to_string(end - begin) + " bytes, but shape and dtype need " +
           std::to_string(*expected);
  }
  return std::nullopt;
}

/// Checks that the tensors follow each other without overlap and without a gap, from the first byte of the data to the
/// last. Returns the error, if any.
std::optional<std::string> check_cover(const SafetensorsHeader& header, std::size_t data_begin, std::size_t file_end) {
  std::vector<decltype(header.tensors)::const_iterator> by_offset;
  by_offset.reserve(header.tensors.size());
  for (auto it = header.tensors.begin(); it != header.tensors.end(); ++it) by_offset.push_back(it);
  std::ranges::sort(by_offset, {}, [](const auto& it) { return std::pair(it->second.begin, it->second.end); });
  std::size_t covered = data_begin;
  const std::string* previous = nullptr;
  for (const auto& it : by_offset) {
    const auto& [name, entry] = *it;
    if (entry.begin < covered) return "tensor " + quote(name) + " overlaps tensor " + quote(*previous);
    if (entry.begin > covered) {
      return std::to_string(entry.begin - covered) + " bytes before tensor " + quote(name) + " belong to no tensor";
    }
    covered = entry.end;
    previous = &name;
  }
  if (covered != file_end) {
    return std::to_string(file_end - covered) + " bytes at the end of the file belong to no tensor";
  }
  return std::nullopt;
}

}  // namespace

Result<SafetensorsHeader> parse_safetensors(std::span<const std::byte> file, std::string_view file_name) {
  const auto bad = [&](const std::string& reason) {
    return fail(ErrorCode::bad_file, std::string(file_name) + ": " + reason);
  };
  constexpr std::size_t kLengthBytes = 8;
  if (file.size() < kLengthBytes) {
    return bad("not a safetensors file: " + std::to_string(file.size()) + " bytes are too few for its header length");
  }
  const std::uint64_t header_bytes = little_endian(file.first(kLengthBytes));
  const std::size_t after_length = file.size() - kLengthBytes;
  if (header_bytes > after_length) {
    return bad("the declared length of the header is " + std::to_string(header_bytes) + " bytes, but only " +
               std::to_string(after_length) + " bytes follow: truncated, or not a safetensors file");
  }
  if (header_bytes > kMaxSafetensorsHeaderBytes) {
    return bad("the header is " + std::to_string(header_bytes) + " bytes long, more than the limit of " +
               std::to_string(kMaxSafetensorsHeaderBytes));
  }
  const auto* text = reinterpret_cast<const char*>(file.data() + kLengthBytes);
  if (header_bytes == 0 || *text != '{') return bad("the header is not a JSON object");

  HeaderReader reader;
  if (!nlohmann::json::sax_parse(text, text + header_bytes, &reader)) return bad(reader.error);

  SafetensorsHeader header;
  header.metadata = std::move(reader.metadata);
  const std::size_t data_begin = kLengthBytes + static_cast<std::size_t>(header_bytes);
  for (auto& [name, raw] : reader.entries) {
    if (const auto reason = check_entry(raw, file.size() - data_begin)) {
      return bad("tensor " + quote(name) + ": " + *reason);
    }
    TensorEntry entry;
    entry.dtype = std::move(*raw.dtype);
    entry.shape.assign(raw.shape->begin(), raw.shape->end());
    entry.begin = data_begin + static_cast<std::size_t>(raw.offsets->at(0));
    entry.end = data_begin + static_cast<std::size_t>(raw.offsets->at(1));
    header.tensors.emplace(name, std::move(entry));
  }
  if (const auto reason = check_cover(header, data_begin, file.size())) return bad(*reason);
  return header;
}

}  // namespace pagoda::io
