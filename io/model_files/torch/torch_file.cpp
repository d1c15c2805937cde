#include "io/model_files/torch/torch_file.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "io/model_files/file_text.hpp"
#include "io/model_files/torch/torch_pickle.hpp"
#include "io/model_files/torch/zip_directory.hpp"

namespace pagoda::io {
namespace {

/// Limit on the elements of one tensor; so low that no sum over the tensors of a checkpoint overflows.
constexpr std::int64_t kMaxElements = std::int64_t{1} << 38;

/// Returns the elements of a tensor of this shape; nothing for a negative or too large shape.
std::optional<std::int64_t> elements_of(const std::vector<std::int64_t>& shape) {
  std::int64_t elements = 1;
  bool empty = false;
  for (const auto dimension : shape) {
    if (dimension < 0) return std::nullopt;
    empty = empty || dimension == 0;
    if (dimension != 0 && elements > kMaxElements / dimension) return std::nullopt;
    if (dimension != 0) elements *= dimension;
  }
  return empty ? 0 : elements;
}

/// Returns whether the tensor is row-major. The stride of a dimension with one element does not count.
bool is_row_major(const PickledTensor& tensor) {
  std::int64_t expected = 1;
  for (std::size_t i = tensor.shape.size(); i-- > 0;) {
    if (tensor.shape[i] == 1) continue;
    if (tensor.strides[i] != expected) return false;
    expected *= tensor.shape[i];
  }
  return true;
}

/// Returns the number of elements from the first to the last of a non-empty tensor; nothing when it exceeds `limit`.
std::optional<std::int64_t> span_of(const PickledTensor& tensor, std::int64_t limit) {
  std::int64_t last = 0;
  for (std::size_t i = 0; i < tensor.shape.size(); ++i) {
    const std::int64_t steps = tensor.shape[i] - 1;
    const std::int64_t stride = tensor.strides[i];
    if (steps == 0 || stride == 0) continue;
    if (stride > (limit - last) / steps) return std::nullopt;
    last += steps * stride;
  }
  if (last >= limit) return std::nullopt;
  return last + 1;
}

class TorchFile {
 public:
  TorchFile(std::span<const std::byte> file, std::string_view file_name) : file_(file), file_name_(file_name) {}

  Result<TensorEntries> read() {
    if (!file_.empty() && file_[0] == std::byte{0x80}) {
      return unsupported(
          "a bare pickle, as PyTorch wrote before 1.6: load and save it again with a newer one, or convert it to "
          "safetensors");
    }
    auto directory = parse_zip(file_, file_name_);
    if (!directory) return fail(std::move(directory.error()));
    directory_ = std::move(*directory);
    if (auto status = find_folder(); !status) return fail(std::move(status.error()));
    const auto pickle = entry("data.pkl");
    const auto tensors = read_torch_pickle(file_.subspan(pickle->begin, pickle->end - pickle->begin), file_name_);
    if (!tensors) return fail(tensors.error());
    TensorEntries entries;
    for (const auto& [name, tensor] : *tensors) {
      auto made = make_entry(name, tensor);
      if (!made) return fail(std::move(made.error()));
      entries.emplace(name, std::move(*made));
    }
    return entries;
  }

 private:
  tl::unexpected<Error> bad(const std::string& reason) const {
    return fail(ErrorCode::bad_file, std::string(file_name_) + ": " + reason);
  }
  tl::unexpected<Error> unsupported(const std::string& reason) const {
    return fail(ErrorCode::unsupported, std::string(file_name_) + ": " + reason);
  }

  std::optional<ZipEntry> entry(std::string_view name) const {
    const auto found = directory_.find(folder_ + std::string(name));
    return found == directory_.end() ? std::nullopt : std::optional(found->second);
  }

  /// Finds the folder of all entries, which has the name that the file had when it was saved.
  Status find_folder() {
    for (const auto& [name, where] : directory_) {
      const auto slash = name.find('/');
      if (slash == name.npos || name.substr(slash + 1) != "data.pkl") continue;
      if (!folder_.empty()) return bad("two folders hold a data.pkl");
      folder_ = name.substr(0, slash + 1);
    }
    if (folder_.empty()) return bad("a zip file without a data.pkl: not a file of torch.save");
    const auto order = entry("byteorder");  // PyTorch before 2.1 does not write it
    if (!order) return {};
    const std::string_view text(reinterpret_cast<const char*>(file_.data() + order->begin), order->end - order->begin);
    if (text != "little") return unsupported("its byte order is " + quote(text) + ", only \"little\" is read");
    return {};
  }

  Result<TensorEntry> make_entry(std::string_view name, const PickledTensor& tensor) {
    const auto bad_tensor = [&](const std::string& reason) { return bad("tensor " + quote(name) + ": " + reason); };
    const auto storage = entry("data/" + std::string(tensor.storage));
    if (!storage) return bad_tensor("its storage " + quote(tensor.storage) + " is missing");
    const auto storage_bytes = static_cast<std::int64_t>(storage->end - storage->begin);
    if (tensor.storage_size < 0 || tensor.storage_size > storage_bytes / tensor.storage_element_bytes) {
      return bad_tensor("its storage " + quote(tensor.storage) + " of " + std::to_string(tensor.storage_size) + " x " +
                        std::to_string(tensor.storage_element_bytes) + " bytes is longer than the entry of " +
                        std::to_string(storage_bytes));
    }
    const std::int64_t available = tensor.storage_size * tensor.storage_element_bytes / tensor.element_bytes;
    if (tensor.shape.size() != tensor.strides.size()) return bad_tensor("size and stride have different lengths");
    const auto elements = elements_of(tensor.shape);
    if (!elements) return bad_tensor("a dimension is negative or the size is too large");
    for (const auto stride : tensor.strides) {
      if (stride < 0) return bad_tensor("a stride is negative");
    }
    if (tensor.offset < 0 || tensor.offset > available) return bad_tensor("it begins outside its storage");
    const auto span = *elements == 0 ? 0 : span_of(tensor, available - tensor.offset);
    if (!span) return bad_tensor("it reaches beyond the end of its storage");

    TensorEntry made;
    made.dtype = tensor.dtype;
    made.shape = tensor.shape;
    made.begin = storage->begin + static_cast<std::size_t>(tensor.offset * tensor.element_bytes);
    made.end = made.begin + static_cast<std::size_t>(*span * tensor.element_bytes);
    if (*elements == 0 || is_row_major(tensor)) return made;
    made.strides = tensor.strides;
    if (*elements > *span) return made;  // an expanded view, which is not copied: using it is an error
    copied_bytes_ += static_cast<std::size_t>(*elements * tensor.element_bytes);
    if (copied_bytes_ / kMaxCopiedTimesFile > file_.size()) {
      return bad_tensor("the tensors that are not row-major are many times larger than the file");
    }
    return made;
  }

  std::span<const std::byte> file_;
  std::string_view file_name_;
  ZipDirectory directory_;
  std::string folder_;  // with its slash
  std::size_t copied_bytes_ = 0;
};

}  // namespace

Result<TensorEntries> parse_torch_file(std::span<const std::byte> file, std::string_view file_name) {
  return TorchFile(file, file_name).read();
}

}  // namespace pagoda::io
