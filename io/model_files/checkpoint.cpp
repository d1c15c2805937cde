#include "io/model_files/checkpoint.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <new>
#include <optional>
#include <span>
#include <system_error>
#include <utility>

#include "io/model_files/file_text.hpp"
#include "io/model_files/safetensors.hpp"
#include "io/model_files/tensor_names.hpp"
#include "io/model_files/torch/torch_file.hpp"

namespace pagoda::io {
namespace {

constexpr std::size_t kMaxIndexBytes = 100'000'000;
constexpr std::string_view kHeadWeight = "lm_head.weight";

/// Returns whether a shard is a plain file name: the index of a downloaded model must not make the engine read files
/// elsewhere.
bool is_plain_file_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find_first_of(std::string_view("/\\\0", 3)) == name.npos;
}

Status no_weights(const std::filesystem::path& folder) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored)) {
    return fail(ErrorCode::io_failed, folder.string() + ": no such model folder");
  }
  return fail(ErrorCode::io_failed,
              folder.string() + ": there is no model.safetensors, no pytorch_model.bin and no index.json of either");
}

}  // namespace

/// Names and parser of a format's files.
struct Checkpoint::Format {
  const char* name;
  const char* single;
  const char* index;
  Result<TensorEntries> (*parse)(std::span<const std::byte> file, std::string_view file_name);
};

Result<std::unique_ptr<Checkpoint>> Checkpoint::open(const std::filesystem::path& folder) {
  static constexpr std::array<Format, 2> kFormats{{
      {"safetensors", "model.safetensors", "model.safetensors.index.json",
       [](std::span<const std::byte> file, std::string_view file_name) -> Result<TensorEntries> {
         return parse_safetensors(file, file_name).map([](SafetensorsHeader&& header) {
           return std::move(header.tensors);
         });
       }},
      {"pytorch", "pytorch_model.bin", "pytorch_model.bin.index.json", parse_torch_file},
  }};
  std::unique_ptr<Checkpoint> checkpoint(new Checkpoint);
  for (const auto& format : kFormats) {
    checkpoint->format_ = format.name;
    if (has_entry(folder / format.single)) {
      auto tensors = checkpoint->map_file(folder / format.single, format);
      if (!tensors) return fail(std::move(tensors.error()));
      for (auto& [name, entry] : *tensors) checkpoint->tensors_.emplace(name, Location{0, std::move(entry), name});
    } else if (has_entry(folder / format.index)) {
      if (auto status = checkpoint->open_shards(folder, format); !status) return fail(std::move(status.error()));
    } else {
      continue;
    }
    if (auto status = checkpoint->rename_tensors(); !status) return fail(std::move(status.error()));
    checkpoint->share_head_with_embedding();
    return checkpoint;
  }
  return fail(no_weights(folder).error());
}

Result<TensorEntries> Checkpoint::map_file(const std::filesystem::path& path, const Format& format) {
  auto file = MappedFile::open(path);
  if (!file) return fail(std::move(file.error()));
  auto tensors = format.parse(file->bytes(), file->path());
  if (tensors) files_.push_back(std::move(*file));
  return tensors;
}

Status Checkpoint::open_shards(const std::filesystem::path& folder, const Format& format) {
  const std::filesystem::path index = folder / format.index;
  const auto bad = [&](const std::string& reason) { return fail(ErrorCode::bad_file, index.string() + ": " + reason); };
  const auto root = read_json_file(index, kMaxIndexBytes, ErrorCode::bad_file);
  if (!root) return fail(root.error());
  if (!root->is_object() || !root->contains("weight_map") || !root->at("weight_map").is_object()) {
    return bad("\"weight_map\" is missing or not an object");
  }
  std::map<std::string, std::vector<std::string>> tensors_of_shard;
  for (const auto& [name, shard] : root->at("weight_map").items()) {
    if (!shard.is_string()) return bad("tensor " + quote(name) + ": the shard must be a string");
    const auto& shard_name = shard.get_ref<const std::string&>();
    if (!is_plain_file_name(shard_name)) {
      return bad("tensor " + quote(name) + ": shard " + quote(shard_name) + " is not a file name within the folder");
    }
    tensors_of_shard[shard_name].push_back(name);
  }
  for (const auto& [shard, names] : tensors_of_shard) {
    if (!has_entry(folder / shard)) {
      return bad("tensor " + quote(names.front()) + ": shard " + quote(shard) + " does not exist");
    }
    auto tensors = map_file(folder / shard, format);
    if (!tensors) return fail(std::move(tensors.error()));
    for (const auto& name : names) {
      const auto entry = tensors->find(name);
      if (entry == tensors->end()) {
        return bad("tensor " + quote(name) + ": shard " + quote(shard) + " does not hold it");
      }
      tensors_.emplace(name, Location{files_.size() - 1, std::move(entry->second), name});
    }
  }
  return {};
}

Status Checkpoint::rename_tensors() {
  const auto names = canonical_tensor_names(tensor_names());
  std::map<std::string, Location, std::less<>> renamed;
  std::size_t i = 0;
  for (auto& [stored, location] : tensors_) {
    const auto [other, is_new] = renamed.try_emplace(names[i++], std::move(location));
    if (is_new) continue;
    return fail(ErrorCode::bad_file, path_of(stored) + ": tensors " + quote(other->second.stored_name) + " and " +
                                         quote(stored) + " differ only in their prefixes");
  }
  tensors_ = std::move(renamed);
  return {};
}

void Checkpoint::share_head_with_embedding() {
  struct Names {
    std::string_view embedding;
    std::string_view layers;
  };
  constexpr std::array<Names, 3> kNames{{{"model.embed_tokens.weight", "model.layers."},
                                         {"transformer.wte.weight", "transformer.h."},
                                         {"model.decoder.embed_tokens.weight", "model.decoder.layers."}}};
  const auto head = tensors_.find(kHeadWeight);
  // A draft head (models::Eagle3) has a tensor fc, and uses the embedding of its model.
  if (head == tensors_.end() || tensors_.contains("fc.weight")) return;
  for (const auto& [embedding, layers] : kNames) {
    const auto layer = tensors_.lower_bound(layers);
    if (layer == tensors_.end() || !layer->first.starts_with(layers) || tensors_.contains(embedding)) continue;
    embedding_is_head_ = true;
    tensors_.emplace(embedding, head->second);
    return;
  }
}

bool Checkpoint::same_bytes(std::string_view one, std::string_view other) const {
  const auto a = tensors_.find(one);
  const auto b = tensors_.find(other);
  if (a == tensors_.end() || b == tensors_.end()) return false;
  const TensorEntry& first = a->second.entry;
  const TensorEntry& second = b->second.entry;
  if (first.dtype != second.dtype || first.shape != second.shape || first.strides != second.strides) return false;
  const auto bytes = bytes_of(a->second);
  const auto others = bytes_of(b->second);
  return bytes.data() == others.data() ||
         (bytes.size() == others.size() && std::memcmp(bytes.data(), others.data(), bytes.size()) == 0);
}

std::span<const std::byte> Checkpoint::bytes_of(const Location& location) const {
  return files_[location.file].bytes().subspan(location.entry.begin, location.entry.end - location.entry.begin);
}

std::string_view Checkpoint::stored_name(std::string_view name) const {
  const auto found = tensors_.find(name);
  PAGODA_ASSERT(found != tensors_.end(), "the tensor is there");
  return found->second.stored_name;
}

bool Checkpoint::is_zero_bias(std::string_view name, const Location& location) const {
  if (!name.ends_with(".bias")) return false;
  return std::ranges::all_of(bytes_of(location), [](std::byte byte) { return byte == std::byte{0}; });
}

Status Checkpoint::check_all_used(const models::ModelSpec& spec) const {
  const std::lock_guard lock(mutex_);
  std::int64_t num_left = 0;
  const std::string* first = nullptr;
  for (const auto& [name, location] : tensors_) {
    if (used_.contains(name) || is_computed_buffer(name) || is_beside_language_model(name)) continue;
    if ((spec.tie_word_embeddings && name == kHeadWeight) || is_zero_bias(name, location)) continue;
    if (spec.draft_head && is_vocabulary_map(name)) continue;
    if (first == nullptr) first = &name;
    ++num_left;
  }
  if (num_left == 0) return {};
  const MappedFile& file = files_[tensors_.at(*first).file];
  return fail(ErrorCode::bad_file,
              file.path() + ": tensor " + quote(stored_name(*first)) +
                  (num_left > 1 ? " and " + std::to_string(num_left - 1) + " more are" : " is") + " not used by " +
                  spec.architecture +
                  " as config.json describes it: the weights and config.json do not belong together");
}

Result<weights::WeightTensor> Checkpoint::describe(std::string_view name,
                                                   const std::vector<std::int64_t>& shape) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    const std::string& where = files_.empty() ? std::string("checkpoint") : files_.front().path();
    return fail(ErrorCode::bad_file,
                where + (files_.size() > 1 ? " and the other shards" : "") + ": tensor " + quote(name) + " is missing");
  }
  const auto& [file_index, entry, stored] = found->second;
  const auto bad = [&, &file = files_[file_index], &file_name = stored](const std::string& reason) {
    return fail(ErrorCode::bad_file, file.path() + ": tensor " + quote(file_name) + ": " + reason);
  };
  const auto dtype = weight_dtype(entry.dtype);
  if (!dtype) return bad("dtype " + entry.dtype + " cannot be used for weights (F32, F16 and BF16 can)");
  if (entry.shape != shape) {
    return bad("shape " + shape_text(entry.shape) + " does not fit the config, which asks for " + shape_text(shape));
  }
  const std::size_t bytes = static_cast<std::size_t>(num_elements(shape)) * size_of(*dtype);
  if (bytes > entry.end - entry.begin)
    return bad("it is an expanded view, which shows the same elements several times");
  return weights::WeightTensor{std::string(name), *dtype, entry.shape, nullptr};
}

Result<weights::WeightTensor> Checkpoint::tensor(std::string_view name, const std::vector<std::int64_t>& shape) const {
  auto tensor = describe(name, shape);
  if (!tensor) return tensor;
  {
    const std::lock_guard lock(mutex_);
    used_.emplace(name);
  }
  const auto data = elements_of(name, tensors_.find(name)->second, size_of(tensor->dtype));
  if (!data) return fail(data.error());
  tensor->data = *data;
  return tensor;
}

Result<const void*> Checkpoint::elements_of(std::string_view name, const Location& location,
                                            std::size_t element_bytes) const {
  const auto& [file_index, entry, stored] = location;
  const std::byte* data = files_[file_index].bytes().data() + entry.begin;
  const bool aligned = reinterpret_cast<std::uintptr_t>(data) % element_bytes == 0;
  if (aligned && entry.strides.empty()) return data;
  const std::lock_guard lock(mutex_);
  auto& copy = copies_[std::string(name)];
  if (copy != nullptr) return copy.get();
  const std::size_t bytes = static_cast<std::size_t>(num_elements(entry.shape)) * element_bytes;
  copy.reset(new (std::nothrow) std::byte[bytes]);
  if (copy == nullptr) {
    return fail(ErrorCode::out_of_memory, files_[file_index].path() + ": tensor " + quote(name) + ": no memory for " +
                                              std::to_string(bytes) + " bytes, its copy in row-major order");
  }
  copy_elements(entry, data, element_bytes, copy.get());
  return copy.get();
}

std::optional<StoredTensor> Checkpoint::stored(std::string_view name) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) return std::nullopt;
  const TensorEntry& entry = found->second.entry;
  if (!entry.strides.empty()) return std::nullopt;
  return StoredTensor{entry.dtype, entry.shape, bytes_of(found->second)};
}

std::string Checkpoint::first_strided() const {
  const auto found = std::ranges::find_if(tensors_, [](const auto& t) { return !t.second.entry.strides.empty(); });
  return found == tensors_.end() ? std::string() : found->first;
}

void Checkpoint::mark_used(std::string_view name) const {
  if (!contains(name)) return;
  const std::lock_guard lock(mutex_);
  used_.emplace(name);
}

const std::string& Checkpoint::path_of(std::string_view name) const {
  const auto found = tensors_.find(name);
  return files_[found == tensors_.end() ? 0 : found->second.file].path();
}

CheckpointFacts Checkpoint::facts() const {
  CheckpointFacts facts;
  facts.format = format_;
  facts.num_files = static_cast<std::int64_t>(files_.size());
  facts.num_tensors = static_cast<std::int64_t>(tensors_.size());
  for (const auto& [name, location] : tensors_) {
    facts.num_parameters += num_elements(location.entry.shape);
    facts.weight_bytes += static_cast<std::int64_t>(location.entry.end - location.entry.begin);
  }
  return facts;
}

void Checkpoint::release_pages(const weights::WeightTensor& tensor) const {
  const auto found = tensors_.find(tensor.name);
  if (found == tensors_.end()) return;
  files_[found->second.file].drop_pages(bytes_of(found->second));
}

std::vector<std::string> Checkpoint::tensor_names() const {
  std::vector<std::string> names;
  names.reserve(tensors_.size());
  for (const auto& [name, location] : tensors_) names.push_back(name);
  return names;
}

}  // namespace pagoda::io
