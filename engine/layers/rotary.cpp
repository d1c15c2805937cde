#include "engine/layers/rotary.hpp"

#include <cmath>
#include <numbers>

namespace pagoda::layers {
namespace {

/// 1 / theta^(2i / rotary_dim) in float32, as transformers computes it.
std::vector<float> inverse_frequencies(std::int64_t rotary_dim, double theta) {
  std::vector<float> frequencies;
  for (std::int64_t i = 0; i < rotary_dim; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(rotary_dim);
    frequencies.push_back(1.0F / std::pow(static_cast<float>(theta), exponent));
  }
  return frequencies;
}

/// Long waves are stretched by the factor, short ones are kept, those between are blended.
float llama3_frequency(float frequency, const models::RopeScaling& scaling) {
  const auto original = static_cast<float>(scaling.original_max_position_embeddings);
  const auto factor = static_cast<float>(scaling.factor);
  const auto low = static_cast<float>(scaling.low_freq_factor);
  const auto high = static_cast<float>(scaling.high_freq_factor);
  const float wavelength = 2.0F * std::numbers::pi_v<float> / frequency;
  if (wavelength > original / low) return frequency / factor;
  if (wavelength < original / high) return frequency;
  const float smooth = (original / wavelength - low) / (high - low);
  return (1.0F - smooth) * (frequency / factor) + smooth * frequency;
}

float scaled_frequency(float frequency, const models::RopeScaling& scaling) {
  switch (scaling.type) {
    case models::RopeScaling::Type::none:
      return frequency;
    case models::RopeScaling::Type::linear:
      return frequency / static_cast<float>(scaling.factor);
    case models::RopeScaling::Type::llama3:
      return llama3_frequency(frequency, scaling);
  }
  return frequency;
}

}  // namespace

std::vector<float> rotary_cos_sin(std::int64_t max_position, const RotaryShape& shape) {
  const std::int64_t rotary_dim = shape.rotary_dim;
  auto frequencies = inverse_frequencies(rotary_dim, shape.theta);
  for (auto& frequency : frequencies) frequency = scaled_frequency(frequency, shape.scaling);
  const std::int64_t half = rotary_dim / 2;
  std::vector<float> table(static_cast<std::size_t>(max_position * rotary_dim));
  for (std::int64_t position = 0; position < max_position; ++position) {
    float* row = table.data() + position * rotary_dim;
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<float>(position) * frequencies[static_cast<std::size_t>(i)];
      row[i] = static_cast<float>(std::cos(angle));
      row[half + i] = static_cast<float>(std::sin(angle));
    }
  }
  return table;
}

}  // namespace pagoda::layers
