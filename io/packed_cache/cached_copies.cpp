#include "io/packed_cache/cached_copies.hpp"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <exception>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <spdlog/spdlog.h>

#include "engine/weights/run_on_device.hpp"
#include "engine/weights/weight_memory.hpp"
#include "kernels/ops.hpp"

namespace pagoda::io {
namespace {

/// Time that the end of an engine leaves for copies to be written.
constexpr auto kWriteTime = std::chrono::seconds(5);

class CachedCopies final : public weights::KeptCopies {
 public:
  CachedCopies(std::shared_ptr<const PackedCache> cache, PackedModel model, std::int64_t min_bytes,
               std::shared_ptr<kernels::Device> device, std::shared_ptr<weights::KeptCopies> kept)
      : cache_(std::move(cache)),
        model_(std::move(model)),
        min_bytes_(min_bytes),
        device_(std::move(device)),
        kept_(std::move(kept)),
        memory_(device_),
        file_(cache_->find(model_)) {}

  ~CachedCopies() override {
    if (written_.valid()) written_.wait_for(kWriteTime);
    writer_.request_stop();
  }
  CachedCopies(const CachedCopies&) = delete;
  CachedCopies& operator=(const CachedCopies&) = delete;

  std::optional<CopyMemory> find(std::string_view key, std::size_t bytes, weights::CopyKind kind) override {
    const bool is_cached = kind == weights::CopyKind::quantized;
    std::optional<CopyMemory> place;
    if (kept_ != nullptr) {
      place = kept_->find(key, bytes, kind);
    } else if (is_cached) {
      if (auto memory = memory_.allocate(bytes)) place = CopyMemory{std::move(*memory)};
    }
    if (!place || place->is_filled || !is_cached) return place;
    const std::lock_guard lock(mutex_);
    if (is_complete_) return place;
    const auto copy = std::make_shared<const kernels::Buffer>(std::move(place->memory));
    place->memory = kernels::Buffer(copy->data(), bytes, [copy](void*, std::size_t) {});
    place->is_filled = file_ && read(key, *copy);
    if (!place->is_filled) has_new_ = true;
    copies_.insert_or_assign(std::string(key), copy);
    return place;
  }

  std::int64_t filled_bytes() const override { return kept_ != nullptr ? kept_->filled_bytes() : 0; }

  void mark_complete() override {
    if (kept_ != nullptr) kept_->mark_complete();
    const std::lock_guard lock(mutex_);
    if (std::exchange(is_complete_, true)) return;
    if (file_ && !has_new_ && !copies_.empty())
      spdlog::debug("{}: packed weights were read from {}", model_.name, file_->path());
    file_.reset();
    auto copies = std::exchange(copies_, {});
    std::int64_t bytes = 0;
    for (const auto& [name, copy] : copies) bytes += static_cast<std::int64_t>(copy->bytes());
    if (has_new_ && bytes >= min_bytes_) {
      std::promise<void> written;
      written_ = written.get_future();
      writer_ = std::jthread(
          [this, copies = std::move(copies), written = std::move(written)](const std::stop_token& stop) mutable {
            write(copies, stop);
            written.set_value();
          });
    }
  }

 private:
  /// The copies of this load, by name.
  using Copies = std::map<std::string, std::shared_ptr<const kernels::Buffer>, std::less<>>;

  /// Reads a copy. Returns false, with zeros in `to`, if the file does not have it as it was written.
  bool read(std::string_view name, const kernels::Buffer& to) const {
    const std::span<const std::byte> from = file_->find(name, to.bytes());
    if (from.empty()) return false;
    constexpr std::size_t kChunk = PackedFile::kChunkBytes;
    std::vector<std::uint64_t> hashes((from.size() + kChunk - 1) / kChunk);
    const auto read_chunk = [&](std::int64_t i) {
      const std::size_t begin = static_cast<std::size_t>(i) * kChunk;
      const std::size_t size = std::min(kChunk, from.size() - begin);
      std::byte* const chunk = to.as<std::byte>() + begin;
      std::memcpy(chunk, from.data() + begin, size);
      hashes[static_cast<std::size_t>(i)] = chunk_hash({chunk, size});  // of what is used, not of what the file has
    };
    const Status status = weights::run_on_device(*device_, [&](kernels::Stream& stream) {
      return device_->ops().host_work(stream,
                                      {.num_tasks = static_cast<std::int64_t>(hashes.size()), .run = read_chunk});
    });
    file_->drop_pages(from);
    if (status && file_->has_hashes(name, hashes)) return true;
    spdlog::warn("{}: \"{}\" is damaged; it is made anew", file_->path(), name);
    std::memset(to.data(), 0, to.bytes());
    return false;
  }

  void write(const Copies& copies, const std::stop_token& stop) const {
    Status written;
    try {
      std::vector<PackedCopy> packed;
      for (const auto& [name, copy] : copies) packed.push_back({name, {copy->as<const std::byte>(), copy->bytes()}});
      written = cache_->write(model_, packed, stop);
    } catch (const std::exception& problem) {  // no memory, or a folder that cannot be read to its end
      written = fail(ErrorCode::io_failed, problem.what());
    }
    if (written) {
      spdlog::debug("{}: packed weights are kept in {}", model_.name, cache_->folder().string());
    } else if (!stop.stop_requested()) {
      spdlog::warn("{}: packed weights are not kept: {}", model_.name, written.error().message);
    }
  }

  const std::shared_ptr<const PackedCache> cache_;
  const PackedModel model_;
  const std::int64_t min_bytes_;
  const std::shared_ptr<kernels::Device> device_;
  const std::shared_ptr<weights::KeptCopies> kept_;
  weights::WeightMemory memory_;
  std::mutex mutex_;                // guards the fields below
  std::optional<PackedFile> file_;  // until the copies are complete
  Copies copies_;                   // until then
  bool has_new_ = false;            // whether a copy was not in the file
  bool is_complete_ = false;
  std::future<void> written_;  // set while writer_ writes
  std::jthread writer_;        // last, because it uses the fields above
};

}  // namespace

std::shared_ptr<weights::KeptCopies> cached_copies(std::shared_ptr<const PackedCache> cache, PackedModel model,
                                                   std::int64_t min_bytes, std::shared_ptr<kernels::Device> device,
                                                   std::shared_ptr<weights::KeptCopies> kept) {
  return std::make_shared<CachedCopies>(std::move(cache), std::move(model), min_bytes, std::move(device),
                                        std::move(kept));
}

}  // namespace pagoda::io
