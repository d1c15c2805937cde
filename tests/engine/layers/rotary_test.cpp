#include "engine/layers/rotary.hpp"

#include <cstddef>
#include <vector>

#include <gtest/gtest.h>

namespace pagoda::layers {
namespace {

using Type = RopeScaling::Type;

struct Expected {
  std::int64_t position;
  std::vector<float> cos_sin;
};

/// Compares with rows that LlamaRotaryEmbedding of transformers 5.23 computes.
void expect_rows(const RotaryShape& shape, const std::vector<Expected>& rows, std::int64_t length = 5001) {
  const auto table = rotary_cos_sin(length, shape);
  ASSERT_EQ(table.size(), static_cast<std::size_t>(length * shape.rotary_dim));
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
                   .original_max_position_embeddings = 8192,
                   .low_freq_factor = 1.0,
                   .high_freq_factor = 4.0}},
      {{37,
        {0.76541406F, 0.62789011F, 0.17841288F, 0.96381658F, 0.99981147F, 0.99999923F, 1.0F, 1.0F, -0.64353812F,
         0.77830201F, 0.98395574F, 0.26656625F, 0.019418083F, 0.0012683976F, 0.00024597117F, 4.7699406e-05F}},
       {5000,
        {0.15466841F, -0.41908371F, 0.89363861F, 0.32877859F, -0.86912668F, 0.98534608F, 0.99944764F, 0.99997926F,
         -0.98796642F, 0.9079476F, -0.4487873F, -0.94440705F, 0.49458954F, 0.17056705F, 0.033233229F, 0.0064458209F}}});
}

TEST(Rotary, YarnScalingIsThatOfTransformers) {
  RotaryShape shape{.rotary_dim = 16,
                    .theta = 10000.0,
                    .scaling = {.type = Type::yarn, .factor = 4.0, .original_max_position_embeddings = 64}};
  shape.scaling.attention_factor = 1.138629436111989;
  expect_rows(shape, {{37,
                       {0.871522963F, -0.906817853F, -0.31379506F, 1.09026384F, 1.13376164F, 1.13814235F, 1.13858068F,
                        1.13862455F, -0.732751429F, 0.68859154F, 1.0945363F, 0.328331947F, 0.105173096F, 0.0333013833F,
                        0.0105321715F, 0.00333060813F}},
                      {5000,
                       {0.176109999F, -0.110388115F, 0.274379522F, -0.291139871F, 1.13612247F, -0.784047961F,
                        0.359035343F, 1.05082631F, -1.12492764F, -1.13326585F, -1.10507596F, 1.10077906F, -0.07551606F,
                        -0.825679004F, 1.08054185F, 0.438453138F}}});

  shape.scaling.original_max_position_embeddings = 1024;
  shape.scaling.beta_fast = 20.0;
  shape.scaling.beta_slow = 2.0;
  shape.scaling.truncate = false;
  shape.scaling.attention_factor = 0.9295234923939468;
  expect_rows(shape, {{37,
                       {0.711470306F, 0.602258384F, -0.884738088F, 0.738143384F, 0.925549686F, 0.929125845F,
                        0.929483712F, 0.929519475F, -0.598183811F, -0.708024502F, -0.285047978F, 0.564940929F,
                        0.0858583599F, 0.0271856803F, 0.00859796908F, 0.00271895179F}},
                      {5000,
                       {0.143767908F, -0.564831436F, -0.122593477F, 0.88431555F, 0.927476883F, -0.640059829F,
                        0.293099552F, 0.857845068F, -0.918338001F, -0.738227129F, 0.921403706F, 0.2863563F,
                        -0.0616477579F, -0.674045503F, 0.882103503F, 0.357932508F}}});
}

TEST(Rotary, DynamicScalingIsThatOfTransformersForTheLongestSequenceAndNoneWithinTheOriginalPositions) {
  const RotaryShape shape{.rotary_dim = 8,
                          .theta = 10000.0,
                          .scaling = {.type = Type::dynamic, .factor = 4.0, .original_max_position_embeddings = 512}};
  expect_rows(shape,
              {{37,
                {0.765414059F, -0.0178776234F, 0.997674406F, 0.999995708F, -0.643538117F, 0.9998402F, 0.0681603029F,
                 0.00292887632F}},
               {2000,
                {-0.367459565F, -0.496426195F, -0.854812741F, 0.987493873F, 0.930039525F, -0.868078947F, -0.518936574F,
                 0.157657325F}}},
              2001);
  expect_rows(shape,
              {{37,
                {0.765414059F, -0.848100007F, 0.93232733F, 0.99931556F, -0.643538117F, -0.529836178F, 0.361615449F,
                 0.036991559F}},
               {511,
                {-0.471678883F, 0.671533525F, 0.387216508F, 0.872255862F, 0.881770372F, 0.740974128F, -0.921988785F,
                 0.489049792F}}},
              512);
  EXPECT_EQ(rotary_cos_sin(512, shape), rotary_cos_sin(512, {.rotary_dim = 8, .theta = 10000.0, .scaling = {}}));
}

}  // namespace
}  // namespace pagoda::layers
