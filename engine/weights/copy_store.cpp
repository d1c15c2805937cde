#include "engine/weights/copy_store.hpp"

#include <algorithm>
#include <optional>
#include <utility>

namespace pagoda::weights {

CopyStore::ModelCopies::ModelCopies(std::shared_ptr<CopyStore> store, std::size_t model, std::int64_t bytes,
                                    std::shared_ptr<kernels::Device> device, std::shared_ptr<Contents> copies)
    : store_(std::move(store)), model_(model), bytes_(bytes), device_(std::move(device)), copies_(std::move(copies)) {
  const std::lock_guard lock(store_->mutex_);
  store_->in_use_ += bytes_;
}

CopyStore::ModelCopies::~ModelCopies() {
  store_->end(*this);
}

std::optional<KeptCopies::CopyMemory> CopyStore::ModelCopies::find(std::string_view key, std::size_t bytes,
                                                                   CopyKind /*kind*/) {
  const std::lock_guard lock(store_->mutex_);
  auto found = copies_->by_key.find(key);
  if (found == copies_->by_key.end() && !copies_->are_complete) {
    auto memory = device_->allocate(bytes, kernels::MemoryKind::device);
    if (!memory) return std::nullopt;
    found = copies_->by_key.emplace(key, std::move(*memory)).first;
    copies_->bytes += static_cast<std::int64_t>(bytes);
  }
  if (found == copies_->by_key.end() || found->second.bytes() != bytes) return std::nullopt;
  return CopyMemory{kernels::Buffer(found->second.data(), bytes, [self = shared_from_this()](void*, std::size_t) {}),
                    copies_->are_complete};
}

std::int64_t CopyStore::ModelCopies::filled_bytes() const {
  const std::lock_guard lock(store_->mutex_);
  return copies_->are_complete ? copies_->bytes : 0;
}

void CopyStore::ModelCopies::mark_complete() {
  const std::lock_guard lock(store_->mutex_);
  copies_->are_complete = true;
}

std::shared_ptr<CopyStore::ModelCopies> CopyStore::use(std::size_t model, std::int64_t bytes, std::string version,
                                                       std::shared_ptr<kernels::Device> device) {
  std::shared_ptr<ModelCopies::Contents> copies;
  {
    const std::lock_guard lock(mutex_);
    if (auto kept = kept_.extract(model)) {
      kept_bytes_ -= kept.mapped()->bytes;
      if (kept.mapped()->version == version) copies = std::move(kept.mapped());
    }
  }
  if (copies == nullptr) {
    copies = std::make_shared<ModelCopies::Contents>();
    copies->version = std::move(version);
  }
  std::shared_ptr<ModelCopies> use(
      new ModelCopies(shared_from_this(), model, bytes, std::move(device), std::move(copies)));
  const std::lock_guard lock(mutex_);
  make_room();
  return use;
}

std::int64_t CopyStore::kept_bytes() const {
  const std::lock_guard lock(mutex_);
  return kept_bytes_;
}

void CopyStore::make_room() {
  while (kept_bytes_ > std::min(max_kept_, bytes_ - in_use_) && !kept_.empty()) {
    const auto oldest = std::ranges::min_element(
        kept_, [](const auto& one, const auto& other) { return one.second->last_used < other.second->last_used; });
    kept_bytes_ -= oldest->second->bytes;
    kept_.erase(oldest);
  }
}

void CopyStore::end(const ModelCopies& use) {
  const std::lock_guard lock(mutex_);
  in_use_ -= use.bytes_;
  if (use.copies_->are_complete && use.copies_->bytes > 0) {
    use.copies_->last_used = ++clock_;
    auto& kept = kept_[use.model_];
    if (kept != nullptr) kept_bytes_ -= kept->bytes;
    kept_bytes_ += use.copies_->bytes;
    kept = use.copies_;
  }
  make_room();
}

}  // namespace pagoda::weights
