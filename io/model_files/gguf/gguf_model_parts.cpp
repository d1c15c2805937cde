#include "io/model_files/gguf/gguf_model_parts.hpp"

#include <algorithm>
#include <string>
#include <utility>

namespace pagoda::io {

Result<GgufModelParts> gguf_parts_of_file(const std::shared_ptr<const GgufFile>& file) {
  const auto architecture = find_gguf_architecture(*file);
  if (!architecture) return fail(architecture.error());
  const auto heads = read_gguf_heads(*file, **architecture);
  if (!heads) return fail(heads.error());
  const auto alignment = file->get<std::int64_t>("general.alignment");
  if (!alignment) return fail(alignment.error());
  GgufModelParts parts;
  parts.architecture = *architecture;
  parts.heads = *heads;
  parts.alignment = alignment->value_or(kDefaultGgufAlignment);
  for (const GgufEntry& entry : file->entries()) {
    if (!entry.key.starts_with("split.")) parts.metadata.copy(entry);
  }
  std::vector<const GgufTensor*> tensors;
  for (const auto& [name, tensor] : file->tensors()) tensors.push_back(&tensor);
  std::ranges::sort(tensors, {}, [](const GgufTensor* tensor) { return std::pair(tensor->file, tensor->data.data()); });
  for (const GgufTensor* tensor : tensors) {
    parts.tensors.push_back({{tensor->name, tensor->type, tensor->shape},
                             [file, tensor](std::vector<std::byte>&) { return tensor->data; }});
  }
  return parts;
}

}  // namespace pagoda::io
