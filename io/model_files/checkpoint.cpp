#include "io/model_files/checkpoint.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <system_error>
#include <utility>

#include "io/model_files/file_text.hpp"

namespace pagoda::io {
namespace {

constexpr const char* kSingleFile = "model.safetensors";
constexpr const char* kIndexFile = "model.safetensors.index.json";
constexpr std::size_t kMaxIndexBytes = 100'000'000;

std::optional<DType> weight_dtype(std::string_view name) {
  if (name == "F32") return DType::f32;
  if (name == "F16") return DType::f16;
  if (name == "BF16") return DType::bf16;
  return std::nullopt;
}

std::string shape_text(const std::vector<std::int64_t>& shape) {
  std::string text = "[";
  for (const auto dimension : shape) text += (text.size() > 1 ? ", " : "") + std::to_string(dimension);
  return text + "]";
}

/// A shard must be a plain file name: the index of a downloaded model must not make us read elsewhere.
bool is_plain_file_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." && name.find_first_of(std::string_view("/\\\0", 3)) == name.npos;
}

bool file_exists(const std::filesystem::path& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

Status no_weights(const std::filesystem::path& folder) {
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored)) {
    return fail(ErrorCode::io_failed, folder.string() + ": no such model folder");
  }
  std::string message = folder.string() + ": no " + kSingleFile + " and no " + kIndexFile;
  if (file_exists(folder / "pytorch_model.bin") || file_exists(folder / "pytorch_model.bin.index.json")) {
    message += " (pytorch_model.bin is not read: convert it to safetensors)";
  }
  return fail(ErrorCode::io_failed, std::move(message));
}

/// Constants that older versions of transformers wrote beside the weights: rotary frequencies, causal masks, positions.
bool is_buffer(std::string_view name) {
  constexpr std::array kEndings{".inv_freq", ".attn.bias", ".masked_bias", ".position_ids"};
  return std::ranges::any_of(kEndings, [&](const char* ending) { return name.ends_with(ending); });
}

}  // namespace

Result<std::unique_ptr<Checkpoint>> Checkpoint::open(const std::filesystem::path& folder) {
  std::unique_ptr<Checkpoint> checkpoint(new Checkpoint);
  if (file_exists(folder / kSingleFile)) {
    auto header = checkpoint->map_file(folder / kSingleFile);
    if (!header) return fail(std::move(header.error()));
    for (auto& [name, entry] : header->tensors) checkpoint->tensors_.emplace(name, Location{0, std::move(entry)});
    return checkpoint;
  }
  const auto status =
      file_exists(folder / kIndexFile) ? checkpoint->open_shards(folder, folder / kIndexFile) : no_weights(folder);
  if (!status) return fail(status.error());
  return checkpoint;
}

Result<SafetensorsHeader> Checkpoint::map_file(const std::filesystem::path& path) {
  auto file = MappedFile::open(path);
  if (!file) return fail(std::move(file.error()));
  auto header = parse_safetensors(file->bytes(), file->path());
  if (header) files_.push_back(std::move(*file));
  return header;
}

Status Checkpoint::open_shards(const std::filesystem::path& folder, const std::filesystem::path& index) {
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
    if (!file_exists(folder / shard)) {
      return bad("tensor " + quote(names.front()) + ": shard " + quote(shard) + " does not exist");
    }
    auto header = map_file(folder / shard);
    if (!header) return fail(std::move(header.error()));
    for (const auto& name : names) {
      const auto entry = header->tensors.find(name);
      if (entry == header->tensors.end()) {
        return bad("tensor " + quote(name) + ": shard " + quote(shard) + " does not hold it");
      }
      tensors_.emplace(name, Location{files_.size() - 1, std::move(entry->second)});
    }
  }
  return {};
}

Status Checkpoint::check_all_taken(const models::ModelSpec& spec) const {
  const std::lock_guard lock(mutex_);
  std::int64_t num_left = 0;
  const std::string* first = nullptr;
  for (const auto& [name, location] : tensors_) {
    if (taken_.contains(name) || is_buffer(name) || (spec.tie_word_embeddings && name == "lm_head.weight")) continue;
    if (first == nullptr) first = &name;
    ++num_left;
  }
  if (num_left == 0) return {};
  const MappedFile& file = files_[tensors_.at(*first).file];
  return fail(ErrorCode::bad_file, file.path() + ": tensor " + quote(*first) +
                                       (num_left > 1 ? " and " + std::to_string(num_left - 1) + " more are" : " is") +
                                       " of no use to " + spec.architecture +
                                       " as config.json describes it: the two do not belong together");
}

Result<weights::WeightTensor> Checkpoint::describe(std::string_view name,
                                                   const std::vector<std::int64_t>& shape) const {
  const auto found = tensors_.find(name);
  if (found == tensors_.end()) {
    const std::string& where = files_.empty() ? std::string("checkpoint") : files_.front().path();
    return fail(ErrorCode::bad_file,
                where + (files_.size() > 1 ? " and the other shards" : "") + ": tensor " + quote(name) + " is missing");
  }
  const auto& [file_index, entry] = found->second;
  const auto bad = [&, &file = files_[file_index]](const std::string& reason) {
    return fail(ErrorCode::bad_file, file.path() + ": tensor " + quote(name) + ": " + reason);
  };
  const auto dtype = weight_dtype(entry.dtype);
  if (!dtype) return bad("dtype " + entry.dtype + " cannot be used for weights (F32, F16 and BF16 can)");
  if (entry.shape != shape) {
    return bad("shape " + shape_text(entry.shape) + " does not fit the config, which asks for " + shape_text(shape));
  }
  return weights::WeightTensor{std::string(name), *dtype, entry.shape, nullptr};
}

Result<weights::WeightTensor> Checkpoint::tensor(std::string_view name, const std::vector<std::int64_t>& shape) const {
  auto tensor = describe(name, shape);
  if (!tensor) return tensor;
  {
    const std::lock_guard lock(mutex_);
    taken_.emplace(name);
  }
  const auto& [file_index, entry] = tensors_.find(name)->second;
  const auto* data = files_[file_index].bytes().data() + entry.begin;
  tensor->data = aligned(name, data, entry.end - entry.begin, size_of(tensor->dtype));
  return tensor;
}

const void* Checkpoint::aligned(std::string_view name, const std::byte* data, std::size_t bytes,
                                std::size_t alignment) const {
  if (reinterpret_cast<std::uintptr_t>(data) % alignment == 0) return data;
  const std::lock_guard lock(mutex_);
  auto& copy = copies_[std::string(name)];
  if (copy == nullptr) {
    copy = std::make_unique_for_overwrite<std::byte[]>(bytes);
    std::memcpy(copy.get(), data, bytes);
  }
  return copy.get();
}

CheckpointFacts Checkpoint::facts() const {
  CheckpointFacts facts;
  facts.num_files = static_cast<std::int64_t>(files_.size());
  facts.num_tensors = static_cast<std::int64_t>(tensors_.size());
  for (const auto& [name, location] : tensors_) {
    std::int64_t elements = 1;
    for (const auto dimension : location.entry.shape) elements *= dimension;
    facts.num_parameters += elements;
    facts.weight_bytes += static_cast<std::int64_t>(location.entry.end - location.entry.begin);
  }
  return facts;
}

void Checkpoint::copied(const weights::WeightTensor& tensor) const {
  const auto found = tensors_.find(tensor.name);
  if (found == tensors_.end()) return;
  const auto& [file_index, entry] = found->second;
  files_[file_index].drop_pages(files_[file_index].bytes().subspan(entry.begin, entry.end - entry.begin));
}

std::vector<std::string> Checkpoint::tensor_names() const {
  std::vector<std::string> names;
  names.reserve(tensors_.size());
  for (const auto& [name, location] : tensors_) names.push_back(name);
  return names;
}

}  // namespace pagoda::io
