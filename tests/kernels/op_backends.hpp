#pragma once

/// The devices that every op is tested on, and the copying of a test's arrays to them.

#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu/isa.hpp"
#include "kernels/device.hpp"
#include "kernels/ops.hpp"
#include "tests/kernels/op_arrays.hpp"

namespace pagoda::kernels::testing_support {

inline constexpr const char* kEmulatedCuda = "emulated_cuda";
inline constexpr const char* kCuda = "cuda";

/// Returns the names of all backends: the instruction sets of this CPU, the CUDA backend on the emulator, and the CUDA
/// backend on a GPU.
std::vector<std::string> all_backends();
std::vector<std::string> cpu_backends();
bool is_cuda(const std::string& backend);

/// A device and a stream to issue ops on.
class OpRunner {
 public:
  explicit OpRunner(const std::string& backend, int num_threads = 2);
  explicit OpRunner(CpuIsa isa, int num_threads = 2);

  /// Returns the reason why the backend cannot be tested here, or "".
  const std::string& missing() const { return missing_; }

  /// Runs one op whose arrays are host memory. The arrays are copied to the device, each to its own address modulo 256,
  /// so that alignment is tested too, and written arrays are copied back. Arrays that overlap on the host overlap on
  /// the device.
  Status operator()(EmbeddingParams p) const { return run(&Ops::embedding, p); }
  Status operator()(RmsNormParams p) const { return run(&Ops::rms_norm, p); }
  Status operator()(LayerNormParams p) const { return run(&Ops::layer_norm, p); }
  Status operator()(LinearParams p) const { return run(&Ops::linear, p); }
  Status operator()(QuantizedLinearParams p) const { return run(&Ops::quantized_linear, p); }
  Status operator()(QuantizeWeightsParams p) const { return run(&Ops::quantize_weights, p); }
  Status operator()(LoraParams p) const { return run(&Ops::lora, p); }
  Status operator()(ConvertParams p) const { return run(&Ops::convert, p); }
  Status operator()(RotaryParams p) const { return run(&Ops::rotary, p); }
  Status operator()(StoreKvParams p) const { return run(&Ops::store_kv, p); }
  Status operator()(PagedAttentionParams p) const { return run(&Ops::paged_attention, p); }
  Status operator()(ActivationParams p) const { return run(&Ops::activation, p); }
  Status operator()(ScaleParams p) const { return run(&Ops::scale, p); }
  Status operator()(GatherRowsParams p) const { return run(&Ops::gather_rows, p); }
  Status operator()(GatherTokensParams p) const { return run(&Ops::gather_tokens, p); }
  Status operator()(ScatterTokensParams p) const { return run(&Ops::scatter_tokens, p); }
  Status operator()(CopyParams p) const { return run(&Ops::copy, p); }
  Status operator()(MoveBlocksParams p) const { return run(&Ops::move_blocks, p); }
  Status operator()(SampleParams p) const { return run(&Ops::sample, p); }

 private:
  /// One range of host memory and its place on the device.
  struct Range {
    const std::byte* first;
    const std::byte* end;
    Buffer buffer;
    std::byte* device = nullptr;
  };
  class Collector;
  class Rewriter;

  template <class P>
  Status run(Status (Ops::*op)(Stream&, const P&) const, P& params) const;
  Status issue(const std::function<Status()>& op) const;
  Status copy(void* to, const void* from, std::size_t bytes) const;

  std::shared_ptr<Device> device_;
  std::unique_ptr<Stream> stream_;
  std::string missing_;
};

/// A test that runs on each backend: the first part of its parameter, or all of it, is the backend's name.
template <class Param>
class OpTest : public ::testing::TestWithParam<Param> {
 protected:
  void SetUp() override {
    if (!runner_.missing().empty()) GTEST_SKIP() << runner_.missing();
  }

  static const std::string& backend_of(const std::string& param) { return param; }
  template <class... Rest>
  static const std::string& backend_of(const std::tuple<std::string, Rest...>& param) {
    return std::get<0>(param);
  }
  const std::string& backend() const { return backend_of(::testing::TestWithParam<Param>::GetParam()); }
  bool on_cuda() const { return is_cuda(backend()); }
  /// Returns whether inputs are rounded to bfloat16 where they are multiplied with bfloat16 weights, keys and values.
  bool rounds_to_bf16() const {
    return backend() == to_string(CpuIsa::avx512_bf16) || backend() == to_string(CpuIsa::avx512_amx);
  }

  template <class P>
  void run(const P& params) const {
    const Status status = runner_(params);
    ASSERT_TRUE(status.has_value()) << status.error().message;
  }

  OpRunner runner_{backend()};
};

}  // namespace pagoda::kernels::testing_support
