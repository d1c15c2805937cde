#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "engine/types.hpp"
#include "kernels/device.hpp"
#include "kernels/ops.hpp"
#include "kernels/sample.hpp"

namespace pagoda::execution {

/// The numbers of results in one step.
struct ResultShape {
  std::int64_t num_samples = 0;
  std::int64_t max_sample_top = 0;  ///< maximum number of likeliest tokens that a sample lists
  std::int64_t num_reports = 0;     ///< number of prompt tokens that are reported on
  std::int64_t max_report_top = 0;  ///< maximum number of likeliest tokens that a report lists
  std::int64_t num_drafts = 0;      ///< number of drafts that the draft model makes

  std::size_t bytes() const;
};

/// The results of a step at one base address: where the device writes them, or where the host reads them.
class StepResults {
 public:
  /// `base`: ResultShape::bytes() bytes.
  StepResults(std::byte* base, const ResultShape& shape);

  kernels::SampleOutput* samples;  ///< [num_samples]
  kernels::SampleOutput* reports;  ///< [num_reports]
  kernels::SampleOutput* drafts;   ///< [num_drafts]: those of the first run of the draft model, then of the second, ...
  std::int32_t* sample_top_tokens;  ///< [num_samples, max_sample_top]
  float* sample_top_logprobs;       ///< [num_samples, max_sample_top]
  std::int32_t* report_top_tokens;  ///< [num_reports, max_report_top]
  float* report_top_logprobs;       ///< [num_reports, max_report_top]
};

/// The memory that one step needs from its issue until its results are read: memory that the host writes and the device
/// reads, and memory in the other direction. On a device that shares the host's memory one piece serves both.
class StepMemory {
 public:
  /// Errors: out_of_memory.
  static Result<std::unique_ptr<StepMemory>> create(kernels::Device& device, std::size_t input_bytes);

  std::byte* inputs() const { return inputs_.as<std::byte>(); }  ///< host memory
  std::size_t input_bytes() const { return inputs_.bytes(); }
  /// Returns host memory for the tokens of new rows. Errors: out_of_memory.
  Result<std::int32_t*> tokens(std::size_t count);
  /// Allocates room for the results. Errors: out_of_memory.
  Status reserve_results(std::size_t bytes);
  std::byte* results() const { return results_.as<std::byte>(); }  ///< host memory
  std::byte* results_on_device() const {
    return device_.shares_host_memory() ? results() : device_results_.as<std::byte>();
  }
  /// Copies the first `bytes` of the results to the host.
  Status download_results(kernels::Stream& stream, std::size_t bytes) const;

  /// Time when the draft model had made the drafts of the step; 0 = it makes none. A thread of the device may set it.
  std::atomic<TimeUs> drafts_made_us = 0;

 private:
  explicit StepMemory(kernels::Device& device) : device_(device) {}
  Status grow(kernels::Buffer& buffer, std::size_t bytes, kernels::MemoryKind kind);

  kernels::Device& device_;
  kernels::Buffer inputs_;
  kernels::Buffer tokens_;
  kernels::Buffer results_;
  kernels::Buffer device_results_;
};

/// The memory of steps that are not in flight. Thread-safe: different threads issue and collect steps.
class StepMemoryPool {
 public:
  void put(std::unique_ptr<StepMemory> memory);
  /// Returns null when all of the memory is in flight.
  std::unique_ptr<StepMemory> take();

 private:
  std::mutex mutex_;
  std::vector<std::unique_ptr<StepMemory>> free_;
};

}  // namespace pagoda::execution
