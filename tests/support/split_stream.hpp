#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/support/split_memory_device.hpp"

namespace pagoda::test {

/// A stream of SplitMemoryDevice; its behaviour is described there.
class SplitStream final : public kernels::Stream {
 public:
  using Op = std::function<Status(kernels::Stream&)>;

  SplitStream(SplitMemoryDevice& device, std::string name, std::unique_ptr<kernels::Stream> queue)
      : device_(device), name_(std::move(name)), queue_(std::move(queue)) {}

  void submit(std::function<void()> issue) override;
  Status replay(std::uint64_t key, const std::function<Status()>& issue) override;
  void on_complete(std::function<void()> callback) override;
  Status status() const override;
  std::shared_ptr<kernels::Event> record() override { return queue_->record(); }
  void wait(std::shared_ptr<kernels::Event> event) override { queue_->wait(std::move(event)); }
  void synchronize() override { queue_->synchronize(); }

  /// Queues one op. `may_record`: whether the op, when it runs, reads only the memory that its pointers point to.
  Status enqueue(Op op, bool may_record);

 private:
  void run_later(Op op);

  SplitMemoryDevice& device_;
  std::string name_;
  std::atomic<bool> broken_{false};
  std::unique_ptr<kernels::Stream> queue_;
  bool submitting_ = false;
  std::vector<Op>* recording_ = nullptr;
  std::unordered_map<std::uint64_t, std::vector<Op>> records_;
};

}  // namespace pagoda::test
