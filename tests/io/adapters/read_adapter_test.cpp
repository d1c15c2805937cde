// The adapters of tests/data/adapters: what is read from their files is what peft reads
// (tools/make_adapter_goldens.py).

#include "io/adapters/read_adapter.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/io/adapters/golden_adapters.hpp"
#include "tests/support/temporary_folder.hpp"

namespace pagoda::io {
namespace {

using adapters::AdapterMatrix;
using ::testing::HasSubstr;

double element(const AdapterMatrix& matrix, std::size_t index) {
  const std::byte* at = matrix.data.data() + index * size_of(matrix.dtype);
  if (matrix.dtype == DType::f32) {
    float value = 0.0F;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  std::uint16_t bits = 0;
  std::memcpy(&bits, at, sizeof bits);
  return matrix.dtype == DType::f16 ? to_float(Float16{bits}) : to_float(BFloat16{bits});
}

/// `expected`: null, or shape and digest of a tensor.
void expect_tensor(const AdapterMatrix* matrix, const nlohmann::json& module, const char* part) {
  SCOPED_TRACE(part);
  ASSERT_EQ(matrix != nullptr, module.contains(part));
  if (matrix == nullptr) return;
  const auto& expected = module.at(part);
  const bool is_vector = expected.at("shape").size() == 1;
  EXPECT_EQ(matrix->rows, expected.at("shape").front());
  EXPECT_EQ(matrix->columns, is_vector ? nlohmann::json(1) : expected.at("shape").back());
  const auto elements = static_cast<std::size_t>(matrix->rows * matrix->columns);
  ASSERT_EQ(matrix->data.size(), elements * size_of(matrix->dtype));
  double digest = 0.0;
  for (std::size_t i = 0; i < elements; ++i) digest += element(*matrix, i) * static_cast<double>(i % 7 + 1);
  const double expected_digest = expected.at("digest");
  EXPECT_NEAR(digest, expected_digest, 1e-9 * (1.0 + std::abs(expected_digest)));
}

template <class T>
const T* pointer_to(const std::optional<T>& value) {
  return value ? &*value : nullptr;
}

class ReadAdapter : public ::testing::TestWithParam<std::string> {};

TEST_P(ReadAdapter, HasTheMatricesAndScalesOfPeft) {
  const test::GoldenAdapter golden(GetParam());
  const auto adapter = golden.read();
  ASSERT_TRUE(adapter) << adapter.error().message;
  const auto& modules = golden.json().at("modules");
  ASSERT_EQ(adapter->changes.size(), modules.size());
  expect_tensor(adapter->prompt ? &adapter->prompt->rows : nullptr, golden.json(), "virtual_tokens");
  for (std::size_t i = 0; i < modules.size(); ++i) {
    const auto& change = adapter->changes[i];
    SCOPED_TRACE(change.module);
    EXPECT_EQ(change.module, modules[i].at("module"));
    expect_tensor(change.lora ? &change.lora->a : nullptr, modules[i], "a");
    expect_tensor(change.lora ? &change.lora->b : nullptr, modules[i], "b");
    expect_tensor(change.lora ? pointer_to(change.lora->magnitude) : nullptr, modules[i], "magnitude");
    expect_tensor(pointer_to(change.weight), modules[i], "weight");
    expect_tensor(pointer_to(change.bias), modules[i], "bias");
    if (change.lora) {
      EXPECT_FLOAT_EQ(change.lora->scale, modules[i].at("scale").get<float>());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Goldens, ReadAdapter, ::testing::ValuesIn(test::golden_adapter_names()),
                         [](const auto& name) { return test::test_name(name.param); });

TEST(ReadAdapterPath, MustBeAFolderOrAGgufFile) {
  const test::TemporaryFolder folder;
  const auto missing = read_adapter(folder.path() / "absent", 8);
  ASSERT_FALSE(missing);
  EXPECT_EQ(missing.error().code, ErrorCode::io_failed);
  EXPECT_THAT(missing.error().message, HasSubstr("absent: no such adapter"));
  const auto other = read_adapter(folder.write("adapter.bin", "x"), 8);
  ASSERT_FALSE(other);
  EXPECT_EQ(other.error().code, ErrorCode::unsupported);
  EXPECT_THAT(other.error().message, HasSubstr("a PEFT folder or a GGUF file"));
}

}  // namespace
}  // namespace pagoda::io
