#include <cstdint>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "kernels/cuda/sample_rows.hpp"
#include "kernels/random.hpp"

namespace pagoda::kernels::cuda {
namespace {

/// Rows; every third row changes its logits.
struct Batch {
  explicit Batch(std::size_t count) : rows(count) {
    for (std::size_t i = 0; i < count; i += 3) rows[i].banned_tokens = banned;
    params.vocab = 100;
    params.num_logit_rows = 1;
    params.logits = logits.data();
    params.rows = rows;
  }

  std::vector<std::int32_t> banned = {4, 5};
  std::vector<float> logits = std::vector<float>(100);
  std::vector<SampleRow> rows;
  SampleParams params;
};

TEST(SampleUpload, APassChangesNoMoreRowsThanItMay) {
  const Batch batch(10);  // rows 0, 3, 6 and 9 change their logits
  const SampleUpload upload(batch.params);
  EXPECT_EQ(upload.num_changed(), 4U);
  for (const std::size_t most : {1U, 2U, 3U, 4U, 9U}) {
    std::size_t row = 0;
    std::size_t changed = 0;
    for (const SampleUpload::Pass& pass : upload.passes(most)) {
      EXPECT_EQ(pass.first_row, row);
      EXPECT_EQ(pass.first_changed, changed);
      EXPECT_LE(pass.num_changed, most);
      std::size_t in_rows = 0;
      for (std::size_t i = 0; i < pass.num_rows; ++i) in_rows += (row + i) % 3 == 0 ? 1 : 0;
      EXPECT_EQ(in_rows, pass.num_changed);
      row += pass.num_rows;
      changed += pass.num_changed;
    }
    EXPECT_EQ(row, 10U);
    EXPECT_EQ(changed, 4U);
  }
  EXPECT_EQ(upload.passes(9).size(), 1U);
}

TEST(SampleUpload, RowsPointToTheirListsOnTheDevice) {
  Batch batch(4);
  batch.rows[2].seed = 77;
  batch.rows[2].position = 5;
  const std::vector<std::int32_t> bias_tokens = {1, 2, 3};
  const std::vector<float> bias_values = {0.5F, 1.5F, 2.5F};
  batch.rows[3].bias_tokens = bias_tokens;
  batch.rows[3].bias_values = bias_values;
  const SampleUpload upload(batch.params);
  std::vector<std::byte> memory(upload.bytes());
  std::vector<std::byte> changed(2 * changed_row_bytes(100));
  const auto passes = upload.passes(2);
  upload.write(memory.data(), memory.data(), passes, changed.data());  // the host memory stands for device memory

  const DeviceSampleRow* rows = upload.rows(memory.data());
  EXPECT_EQ(rows[0].num_banned, 2);
  EXPECT_EQ(rows[0].banned_tokens[1], 5);
  EXPECT_EQ(rows[1].changed, nullptr);
  EXPECT_EQ(rows[2].uniform, sampling_uniform(77, 0, 5));
  ASSERT_EQ(rows[3].num_bias, 3);
  EXPECT_EQ(std::memcmp(rows[3].bias_tokens, bias_tokens.data(), 12), 0);
  EXPECT_EQ(rows[3].bias_values[2], 2.5F);
  EXPECT_EQ(reinterpret_cast<std::byte*>(rows[0].changed), changed.data());
  EXPECT_EQ(reinterpret_cast<std::byte*>(rows[3].changed), changed.data() + changed_row_bytes(100));
  EXPECT_EQ(upload.changed_rows(memory.data())[1], 3);
  for (int i = 0; i < 4; ++i) {
    const auto* log_total = reinterpret_cast<const std::byte*>(rows[i].log_total);
    EXPECT_GE(log_total, reinterpret_cast<const std::byte*>(rows + 4));
    EXPECT_LE(log_total + sizeof(double), reinterpret_cast<const std::byte*>(upload.changed_rows(memory.data())));
    EXPECT_EQ(rows[i].log_total, rows[0].log_total + i);
  }
}

}  // namespace
}  // namespace pagoda::kernels::cuda
