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

#include "io/model_files/file_text.hpp"
#include "io/model_files/model_files.hpp"
#include "tests/support/temporary_folder.hpp"

namespace pagoda::io {
namespace {

using adapters::AdapterMatrix;
using ::testing::HasSubstr;

const std::filesystem::path kData = std::filesystem::path(PAGODA_SOURCE_DIR) / "tests" / "data";

std::vector<std::string> adapter_names() {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(kData / "adapters")) {
    names.push_back(entry.path().filename().string());
  }
  std::ranges::sort(names);
  return names;
}

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

class ReadAdapter : public ::testing::TestWithParam<std::string> {
 protected:
  const std::filesystem::path folder_ = kData / "adapters" / GetParam();
  const std::filesystem::path gguf_ = folder_ / "adapter.gguf";

  Result<adapters::Adapter> read(const nlohmann::json& golden) const {
    const auto base = open_model_files(kData / "models" / golden.at("base").get<std::string>()).value();
    const auto head_dim = base->spec().value().decoder.attention_of(0).head_dim;
    return read_adapter(std::filesystem::exists(gguf_) ? gguf_ : folder_, head_dim);
  }
};

TEST_P(ReadAdapter, HasTheMatricesAndScalesOfPeft) {
  const auto golden = read_json_file(folder_ / "golden.json", 10'000'000, ErrorCode::bad_file).value();
  const auto adapter = read(golden);
  ASSERT_TRUE(adapter) << adapter.error().message;
  const auto& modules = golden.at("modules");
  ASSERT_EQ(adapter->changes.size(), modules.size());
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

INSTANTIATE_TEST_SUITE_P(Goldens, ReadAdapter, ::testing::ValuesIn(adapter_names()), [](const auto& name) {
  std::string text = name.param;
  std::ranges::replace(text, '-', '_');
  return text;
});

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
