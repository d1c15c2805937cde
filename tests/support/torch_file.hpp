#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace pagoda::test {

/// Returns `value` in this many bytes, little-endian.
inline std::string little(std::uint64_t value, unsigned bytes) {
  std::string text;
  for (unsigned i = 0; i < bytes; ++i, value >>= 8) text.push_back(static_cast<char>(value & 0xff));
  return text;
}

struct ZipContent {
  std::string name;
  std::string content;
  unsigned method = 0;
  unsigned flags = 0;
};

/// Returns a zip file that stores the contents of these entries unchanged, whatever their method field is. Each entry
/// is aligned to `alignment` bytes, as torch.save aligns it.
inline std::string zip_file(const std::vector<ZipContent>& entries, std::size_t alignment = 1) {
  std::string file;
  std::string directory;
  for (const auto& entry : entries) {
    const std::string sizes = little(entry.content.size(), 4) + little(entry.content.size(), 4);
    const std::string middle =
        little(entry.flags, 2) + little(entry.method, 2) + little(0, 8) + sizes + little(entry.name.size(), 2);
    directory += "PK\x01\x02" + little(0, 4) + middle + little(0, 12) + little(file.size(), 4) + entry.name;
    const std::size_t unpadded = file.size() + 30 + entry.name.size() + 4;
    const std::size_t padding = (alignment - unpadded % alignment) % alignment;
    file += "PK\x03\x04" + little(0, 2) + middle + little(4 + padding, 2) + entry.name;
    file += "FB" + little(padding, 2) + std::string(padding, 'Z') + entry.content;
  }
  const std::string end = "PK\x05\x06" + little(0, 4) + little(entries.size(), 2) + little(entries.size(), 2) +
                          little(directory.size(), 4) + little(file.size(), 4) + little(0, 2);
  return file + directory + end;
}

// ---- instructions of pickle, protocol 2 ----

inline std::string pickle_text(std::string_view text) {
  return "X" + little(text.size(), 4) + std::string(text);
}

inline std::string pickle_int(std::int64_t value) {
  return "\x8a\x08" + little(static_cast<std::uint64_t>(value), 8);
}

inline std::string pickle_ints(const std::vector<std::int64_t>& values) {
  std::string text = "(";
  for (const auto value : values) text += pickle_int(value);
  return text + "t";
}

/// A tensor as torch describes it. Shape, strides, offset and storage size count elements.
struct TensorPickle {
  std::vector<std::int64_t> shape;
  std::vector<std::int64_t> strides;
  std::int64_t offset = 0;
  std::string storage = "0";
  std::int64_t storage_size = 6;
  std::string storage_class = "FloatStorage";
};

inline std::string pickle_storage(const TensorPickle& tensor) {
  return "(" + pickle_text("storage") + "ctorch\n" + tensor.storage_class + "\n" + pickle_text(tensor.storage) +
         pickle_text("cpu") + pickle_int(tensor.storage_size) + "tQ";
}

inline std::string pickle_tensor(const TensorPickle& tensor) {
  return "ctorch._utils\n_rebuild_tensor_v2\n(" + pickle_storage(tensor) + pickle_int(tensor.offset) +
         pickle_ints(tensor.shape) + pickle_ints(tensor.strides) + "\x89" + "ccollections\nOrderedDict\n)RtR";
}

/// Returns a complete pickle of a dict with these items; the values are pickle instructions.
inline std::string pickle_dict(const std::vector<std::pair<std::string, std::string>>& items) {
  std::string text = "\x80\x02}(";
  for (const auto& [name, value] : items) text += pickle_text(name) + value;
  return text + "u.";
}

/// Returns a file as torch.save writes it, with this pickle and the storages "0", "1" and so on.
inline std::string torch_file(const std::string& pickle, const std::vector<std::string>& storages) {
  std::vector<ZipContent> entries{{"w/data.pkl", pickle}, {"w/byteorder", "little"}};
  for (std::size_t i = 0; i < storages.size(); ++i) {
    entries.push_back({"w/data/" + std::to_string(i), storages[i]});
  }
  return zip_file(entries, 64);
}

}  // namespace pagoda::test
