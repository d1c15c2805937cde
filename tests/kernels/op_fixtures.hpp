#pragma once

/// Random inputs and comparisons for the tests of ops.

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cpu/isa.hpp"
#include "kernels/device.hpp"
#include "kernels/ops.hpp"
#include "tests/kernels/op_backends.hpp"

namespace pagoda::kernels::testing_support {

inline std::vector<float> random_floats(std::int64_t count, std::uint32_t seed, float scale = 1.0F) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal(0.0F, scale);
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = normal(generator);
  return values;
}

/// An array of `dtype` that begins `offset_bytes` behind an aligned address, as tensors in a mapped file do.
class TypedArray {
 public:
  TypedArray(const std::vector<float>& values, DType dtype, std::size_t offset_bytes = 0)
      : dtype_(dtype), offset_(offset_bytes), bytes_(values.size() * size_of(dtype) + offset_bytes) {
    for (std::size_t i = 0; i < values.size(); ++i) set(i, values[i]);
  }

  const void* data() const { return bytes_.data() + offset_; }
  DType dtype() const { return dtype_; }

 private:
  void set(std::size_t i, float value) {
    std::byte* at = bytes_.data() + offset_ + i * size_of(dtype_);
    switch (dtype_) {
      case DType::f32:
        std::memcpy(at, &value, sizeof(value));
        return;
      case DType::f16: {
        const Float16 half = to_f16(value);
        std::memcpy(at, &half, sizeof(half));
        return;
      }
      case DType::bf16: {
        const BFloat16 half = to_bf16(value);
        std::memcpy(at, &half, sizeof(half));
        return;
      }
      case DType::fp8_e4m3:
        *at = std::byte{to_fp8_e4m3(value).bits};
        return;
      case DType::int8:
        *at = static_cast<std::byte>(static_cast<std::int8_t>(std::nearbyint(value)));
        return;
    }
  }

  DType dtype_;
  std::size_t offset_;
  std::vector<std::byte> bytes_;
};

/// Returns the values after rounding to a type.
inline std::vector<float> rounded_to(DType dtype, std::vector<float> values) {
  for (float& value : values) {
    if (dtype == DType::f16) value = to_float(to_f16(value));
    if (dtype == DType::bf16) value = to_float(to_bf16(value));
  }
  return values;
}

/// Expects |actual - expected| <= absolute + relative * |expected| for each value.
inline void expect_close(const std::vector<float>& actual, const std::vector<float>& expected, double absolute,
                         double relative) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const double error = std::abs(double{actual[i]} - expected[i]);
    ASSERT_LE(error, absolute + relative * std::abs(double{expected[i]}))
        << "at " << i << ": " << actual[i] << " instead of " << expected[i];
  }
}

inline const auto kAllDTypes = ::testing::Values(DType::f32, DType::f16, DType::bf16);
inline const auto kAllKvDTypes = ::testing::Values(DType::f32, DType::f16, DType::bf16, DType::fp8_e4m3, DType::int8);

using BackendAndDType = std::tuple<std::string, DType>;

inline std::string backend_name(const ::testing::TestParamInfo<std::string>& info) {
  return info.param;
}

inline std::string backend_and_dtype_name(const ::testing::TestParamInfo<BackendAndDType>& info) {
  return std::get<0>(info.param) + "_" + std::string(to_string(std::get<1>(info.param)));
}

}  // namespace pagoda::kernels::testing_support
