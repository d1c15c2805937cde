#include <cstring>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/reference/reference_ops.hpp"
#include "tests/kernels/op_fixtures.hpp"

namespace pagoda::kernels {
namespace {

using testing_support::OpRunner;
using testing_support::TypedArray;

class ConvertTest : public testing_support::OpTest<testing_support::BackendAndDType> {};

TEST_P(ConvertTest, GivesTheBitsOfTheReferenceForEveryType) {
  const OpRunner runner(std::get<0>(GetParam()), 2);
  for (const std::int64_t count : {0, 1, 17, 2048, 5001}) {
    std::vector<float> values = testing_support::random_floats(count, 3, 100.0F);
    if (count > 4) {
      values[1] = 1e30F;
      values[2] = -1e-42F;
      values[3] = -std::numeric_limits<float>::infinity();
    }
    const TypedArray from(values, std::get<1>(GetParam()));
    for (const DType to : {DType::f32, DType::f16, DType::bf16}) {
      std::vector<std::byte> actual(static_cast<std::size_t>(count) * size_of(to));
      std::vector<std::byte> expected(actual.size());
      ConvertParams params{from.data(), from.dtype(), actual.data(), to, count};
      const Status status = runner(params);
      ASSERT_TRUE(status.has_value()) << status.error().message;
      params.to = expected.data();
      reference::convert(params);
      EXPECT_EQ(actual, expected) << count << " values to " << to_string(to);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Devices, ConvertTest,
                         testing::Combine(testing::ValuesIn(testing_support::all_backends()),
                                          testing_support::kAllDTypes),
                         testing_support::backend_and_dtype_name);

}  // namespace
}  // namespace pagoda::kernels
