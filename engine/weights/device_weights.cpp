#include "engine/weights/device_weights.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "kernels/ops.hpp"

namespace pagoda::weights {
namespace {

constexpr std::int64_t kAlignment = 256;
/// Bytes beyond the expected bytes, for gaps between weights.
constexpr std::int64_t kSlackBytes = std::int64_t{1} << 20;
/// Size of each further piece of memory, when the first piece is too small.
constexpr std::int64_t kFurtherBytes = std::int64_t{64} << 20;

std::int64_t aligned(std::int64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

std::int64_t bytes_of(const kernels::WeightMatrix& matrix) {
  return matrix.rows * matrix.columns * static_cast<std::int64_t>(size_of(matrix.dtype));
}

}  // namespace

/// Copies host memory to the device in pieces. While one piece is copied, the next is read from its file.
class DeviceWeights::Uploader {
 public:
  static Result<std::unique_ptr<Uploader>> create(kernels::Device& device) {
    auto uploader = std::make_unique<Uploader>(device);
    auto stream = device.create_stream("load");
    if (!stream) return fail(std::move(stream.error()));
    uploader->stream_ = std::move(*stream);
    for (Piece& piece : uploader->pieces_) {
      auto memory = device.allocate(kPieceBytes, kernels::MemoryKind::host);
      if (!memory) return fail(std::move(memory.error()));
      piece.memory = std::move(*memory);
    }
    return uploader;
  }

  explicit Uploader(kernels::Device& device) : device_(device) {}
  ~Uploader() {
    if (stream_) stream_->synchronize();  // copies on the stream read the pieces
  }
  Uploader(const Uploader&) = delete;
  Uploader& operator=(const Uploader&) = delete;

  Status upload(const std::byte* from, std::byte* to, std::size_t bytes, const std::function<void(std::size_t)>& done) {
    for (std::size_t first = 0; first < bytes; first += kPieceBytes) {
      const std::size_t count = std::min(kPieceBytes, bytes - first);
      Piece& piece = pieces_[next_++ % pieces_.size()];
      if (piece.copied != nullptr) piece.copied->synchronize();
      std::memcpy(piece.memory.data(), from + first, count);
      Status status;
      stream_->submit([&, source = piece.memory.data()] {
        const kernels::CopyParams copy{.from = source, .to = to + first, .bytes = count};
        status = device_.ops().copy(*stream_, copy);
      });
      piece.copied = stream_->record();
      if (!status) return status;
      done(count);
    }
    return {};
  }

 private:
  static constexpr std::size_t kPieceBytes = std::size_t{16} << 20;
  struct Piece {
    kernels::Buffer memory;
    std::shared_ptr<kernels::Event> copied;  ///< passed when the piece may be filled again
  };

  kernels::Device& device_;
  std::array<Piece, 2> pieces_;
  std::size_t next_ = 0;
  std::unique_ptr<kernels::Stream> stream_;
};

DeviceWeights::DeviceWeights(const LoadedWeights& host, std::shared_ptr<kernels::Device> device,
                             std::int64_t expected_bytes, Progress progress)
    : host_(host),
      device_(std::move(device)),
      expected_bytes_(std::max<std::int64_t>(1, expected_bytes)),
      progress_(std::move(progress)) {}

DeviceWeights::~DeviceWeights() = default;

Result<const std::byte*> DeviceWeights::upload(const void* from, std::int64_t bytes) const {
  const bool fits = !memory_.empty() && used_of_last_ + bytes <= static_cast<std::int64_t>(memory_.back().bytes());
  if (!fits) {
    const std::int64_t wanted = memory_.empty() ? expected_bytes_ + kSlackBytes : kFurtherBytes;
    auto memory = device_->allocate(static_cast<std::size_t>(std::max(wanted, bytes)), kernels::MemoryKind::device);
    if (!memory) {
      memory.error().message =
          "weights of " + std::to_string(expected_bytes_ >> 20) + " MiB: " + memory.error().message;
      return fail(std::move(memory.error()));
    }
    memory_.push_back(std::move(*memory));
    used_of_last_ = 0;
  }
  if (uploader_ == nullptr) {
    auto uploader = Uploader::create(*device_);
    if (!uploader) return fail(std::move(uploader.error()));
    uploader_ = std::move(*uploader);
  }
  std::byte* const to = memory_.back().as<std::byte>() + used_of_last_;
  used_of_last_ += aligned(bytes);
  const auto count = [this](std::size_t piece) {
    uploaded_bytes_ += static_cast<std::int64_t>(piece);
    if (progress_) {
      progress_(std::min(1.0, static_cast<double>(uploaded_bytes_) / static_cast<double>(expected_bytes_)));
    }
  };
  const Status status =
      uploader_->upload(static_cast<const std::byte*>(from), to, static_cast<std::size_t>(bytes), count);
  if (!status) return fail(status.error());
  return to;
}

Result<WeightTensor> DeviceWeights::tensor(std::string_view name, const std::vector<std::int64_t>& shape) const {
  const std::lock_guard lock(mutex_);
  const auto found = tensors_.find(name);
  if (found != tensors_.end() && found->second.shape == shape) return found->second;
  auto tensor = host_.tensor(name, shape);
  if (!tensor) return tensor;
  const auto data = upload(tensor->data, tensor->elements() * static_cast<std::int64_t>(size_of(tensor->dtype)));
  host_.drop_copies();
  if (!data) return fail(data.error());
  tensor->data = *data;
  tensors_.emplace(std::string(name), *tensor);
  return tensor;
}

Result<LinearWeight> DeviceWeights::linear(std::string_view module, std::int64_t rows, std::int64_t columns) const {
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = linears_.find(module); found != linears_.end()) return found->second;
    const auto weight = host_.linear(module, rows, columns);
    if (!weight) return weight;
    if (weight->quantized != nullptr) return upload_quantized(module, *weight->quantized);
    if (weight->plain.scales != nullptr) return upload_plain(module, weight->plain);
  }
  return WeightSource::linear(module, rows, columns);
}

Result<LinearWeight> DeviceWeights::embedding(std::string_view module, std::int64_t rows, std::int64_t columns) const {
  const std::string tensor = std::string(module) + ".weight";
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = linears_.find(tensor); found != linears_.end()) return found->second;
    if (!tensors_.contains(tensor)) {
      const auto weight = host_.embedding(module, rows, columns);
      if (!weight) return weight;
      if (weight->quantized != nullptr) return upload_quantized(tensor, *weight->quantized);
    }
  }
  return WeightSource::embedding(module, rows, columns);
}

Result<LinearWeight> DeviceWeights::tied_linear(std::string_view module, std::string_view tensor, std::int64_t rows,
                                                std::int64_t columns) const {
  const bool is_quantized_here = host_.policy().quantize.has_value();
  const std::string_view key = is_quantized_here ? module : tensor;
  {
    const std::lock_guard lock(mutex_);
    if (const auto found = linears_.find(key); found != linears_.end()) return found->second;
    if (is_quantized_here || !tensors_.contains(tensor)) {
      const auto weight = host_.tied_linear(module, tensor, rows, columns);
      if (!weight) return weight;
      if (weight->quantized != nullptr) return upload_quantized(key, *weight->quantized);
    }
  }
  return WeightSource::tied_linear(module, tensor, rows, columns);
}

Result<LinearWeight> DeviceWeights::derived_linear(std::string_view module, const DerivedWeight& weight) const {
  const std::lock_guard lock(mutex_);
  if (const auto found = linears_.find(module); found != linears_.end()) return found->second;
  auto derived = host_.derived_linear(module, weight);
  if (!derived) return derived;
  return derived->quantized != nullptr ? upload_quantized(module, *derived->quantized)
                                       : upload_plain(module, derived->plain);
}

Result<LinearWeight> DeviceWeights::upload_quantized(std::string_view module, const QuantizedWeights& weights) const {
  auto copy = std::make_shared<QuantizedWeights>();
  copy->matrix = weights.matrix;
  const auto data = upload(weights.matrix.data, weights.matrix.data_bytes());
  if (!data) return fail(data.error());
  const auto scales = upload(weights.matrix.scales, weights.matrix.scale_bytes());
  if (!scales) return fail(scales.error());
  if (weights.matrix.mins != nullptr) {
    const auto mins = upload(weights.matrix.mins, weights.matrix.min_bytes());
    if (!mins) return fail(mins.error());
    copy->matrix.mins = reinterpret_cast<const Float16*>(*mins);
  }
  if (weights.matrix.factors != nullptr) {
    const auto factors = upload(weights.matrix.factors, weights.matrix.factor_bytes());
    if (!factors) return fail(factors.error());
    copy->matrix.factors = reinterpret_cast<const std::int8_t*>(*factors);
  }
  if (weights.matrix.order != nullptr) {
    const auto order = upload(weights.matrix.order, weights.matrix.columns * std::int64_t{sizeof(std::int32_t)});
    if (!order) return fail(order.error());
    copy->matrix.order = reinterpret_cast<const std::int32_t*>(*order);
  }
  host_.drop_copies();
  copy->matrix.data = reinterpret_cast<const std::uint8_t*>(*data);
  copy->matrix.scales = reinterpret_cast<const Float16*>(*scales);
  return linears_.emplace(std::string(module), LinearWeight{.plain = {}, .quantized = std::move(copy)}).first->second;
}

Result<LinearWeight> DeviceWeights::upload_plain(std::string_view module, const kernels::WeightMatrix& matrix) const {
  kernels::WeightMatrix copy = matrix;
  const auto data = upload(matrix.data, bytes_of(matrix));
  if (!data) return fail(data.error());
  if (matrix.scales != nullptr) {
    const auto scales = upload(matrix.scales, matrix.scale_bytes());
    if (!scales) return fail(scales.error());
    copy.scales = reinterpret_cast<const float*>(*scales);
  }
  host_.drop_copies();
  copy.data = *data;
  return linears_.emplace(std::string(module), LinearWeight{.plain = copy}).first->second;
}

void DeviceWeights::finish() const {
  const std::lock_guard lock(mutex_);
  uploader_.reset();
}

std::int64_t DeviceWeights::uploaded_bytes() const {
  const std::lock_guard lock(mutex_);
  return uploaded_bytes_;
}

}  // namespace pagoda::weights
