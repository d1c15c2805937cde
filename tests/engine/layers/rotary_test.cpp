#include "engine/layers/rotary.hpp"

#include <cstddef>
#include <vector>

#include <gtest/gtest.h>

namespace pagoda::layers {
namespace {

using Type = models::RopeScaling::Type;

struct Expected {
  std::int64_t position;
  std::vector<float> cos_sin;
};

/// Rows as LlamaRotaryEmbedding of transformers 5.23 gives them.
void expect_rows(const RotaryShape& shape, const std::vector<Expected>& rows) {
  const auto table = rotary_cos_sin(5001, shape);
  ASSERT_EQ(table.size(), static_cast<std::size_t>(5001 * shape.rotary_dim));
  for (const auto& [position, cos_sin] : rows) {
    ASSERT_EQ(cos_sin.size(), static_cast<std::size_t>(shape.rotary_dim));
    for (std::size_t i = 0; i < cos_sin.size(); ++i) {
      EXPECT_NEAR(table[static_cast<std::size_t>(position * shape.rotary_dim) + i], cos_sin[i], 1e-6)
          << "position " << position << " column " << i;
    }
  }
}

TEST(Rotary, UnscaledAnglesAreThoseOfTransformers) {
  expect_rows(
      {.rotary_dim = 16, .theta = 500000.0, .scaling = {}},
      {{0, {1, 1, 1, 1, 1, 1, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0}},
       {37,
        {0.76541406F, 0.62789011F, 0.17841288F, 0.96381658F, 0.9986313F, 0.9999485F, 0.99999809F, 0.99999994F,
         -0.64353812F, 0.77830201F, 0.98395574F, 0.26656625F, 0.052302022F, 0.010147009F, 0.0019677682F,
         0.00038159525F}},
       {5000,
        {0.15466841F, -0.41908371F, 0.89363861F, 0.32877859F, 0.70534825F, 0.19823353F, 0.96485251F, 0.9986707F,
         -0.98796642F, 0.9079476F, -0.4487873F, -0.94440705F, 0.70886093F, 0.98015481F, 0.26279202F, 0.051544074F}}});
}

TEST(Rotary, LinearScalingIsThatOfTransformers) {
  expect_rows(
      {.rotary_dim = 8, .theta = 10000.0, .scaling = {.type = Type::linear, .factor = 3.0}},
      {{37, {0.97296965F, 0.33109424F, 0.9924041F, 0.99992394F, -0.23093314F, 0.94359767F, 0.12302089F, 0.012333021F}},
       {5000,
        {-0.051822096F, -0.98686451F, -0.57458222F, -0.095723629F, 0.99865633F, -0.16155003F, -0.81844687F,
         0.99540794F}}});
}

TEST(Rotary, Llama3ScalingIsThatOfTransformers) {
  expect_rows(
      {.rotary_dim = 16,
       .theta = 500000.0,
       .scaling = {.type = Type::llama3,
                   .factor = 8.0,
                   .low_freq_factor = 1.0,
                   .high_freq_factor = 4.0,
                   .original_max_position_embeddings = 8192}},
      {{37,
        {0.76541406F, 0.62789011F, 0.17841288F, 0.96381658F, 0.99981147F, 0.99999923F, 1.0F, 1.0F, -0.64353812F,
         0.77830201F, 0.98395574F, 0.26656625F, 0.019418083F, 0.0012683976F, 0.00024597117F, 4.7699406e-05F}},
       {5000,
        {0.15466841F, -0.41908371F, 0.89363861F, 0.32877859F, -0.86912668F, 0.98534608F, 0.99944764F, 0.99997926F,
         -0.98796642F, 0.9079476F, -0.4487873F, -0.94440705F, 0.49458954F, 0.17056705F, 0.033233229F, 0.0064458209F}}});
}

}  // namespace
}  // namespace pagoda::layers
