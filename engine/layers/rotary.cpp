#include "engine/layers/rotary.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <utility>

namespace pagoda::layers {
namespace {

/// Returns theta^(2i / rotary_dim) in float32, as transformers computes it: the inverse frequencies.
std::vector<float> theta_powers(std::int64_t rotary_dim, double theta) {
  std::vector<float> powers;
  for (std::int64_t i = 0; i < rotary_dim; i += 2) {
    const float exponent = static_cast<float>(i) / static_cast<float>(rotary_dim);
    powers.push_back(std::pow(static_cast<float>(theta), exponent));
  }
  return powers;
}

/// Returns the frequency that llama3 scaling gives: long waves are scaled by the factor, short waves are kept, and
/// waves between them are blended.
float llama3_frequency(float frequency, const RopeScaling& scaling) {
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

/// Returns theta for a context of `length` tokens. It is raised so that the longest wave becomes factor * length /
/// original - (factor - 1) times as long.
double dynamic_theta(std::int64_t length, const RotaryShape& shape) {
  const auto original = static_cast<double>(shape.scaling.original_max_position_embeddings);
  const double reached = std::max(static_cast<double>(length), original) / original;
  const auto dim = static_cast<double>(shape.rotary_dim);
  return shape.theta * std::pow(shape.scaling.factor * reached - (shape.scaling.factor - 1.0), dim / (dim - 2.0));
}

/// Returns the (fractional) index of the wave that turns `turns` times within the original positions.
double yarn_index(double turns, const RotaryShape& shape) {
  const auto original = static_cast<double>(shape.scaling.original_max_position_embeddings);
  return static_cast<double>(shape.rotary_dim) * std::log(original / (turns * 2.0 * std::numbers::pi)) /
         (2.0 * std::log(shape.theta));
}

/// Returns the index up to which waves are kept, and the index from which waves are scaled by the whole factor.
std::pair<float, float> yarn_range(const RotaryShape& shape) {
  double low = yarn_index(shape.scaling.beta_fast, shape);
  double high = yarn_index(shape.scaling.beta_slow, shape);
  if (shape.scaling.truncate) {
    low = std::floor(low);
    high = std::ceil(high);
  }
  low = std::max(low, 0.0);
  high = std::min(high, static_cast<double>(shape.rotary_dim - 1));
  if (low == high) high += 0.001;
  return {static_cast<float>(low), static_cast<float>(high)};
}

float yarn_frequency(float power, float index, std::pair<float, float> range, float factor) {
  const float kept = 1.0F - std::clamp((index - range.first) / (range.second - range.first), 0.0F, 1.0F);
  return 1.0F / (factor * power) * (1.0F - kept) + 1.0F / power * kept;
}

std::vector<float> scaled_frequencies(std::int64_t length, const RotaryShape& shape) {
  using Type = RopeScaling::Type;
  const auto& scaling = shape.scaling;
  const auto factor = static_cast<float>(scaling.factor);
  const auto range = scaling.type == Type::yarn ? yarn_range(shape) : std::pair(0.0F, 0.0F);
  const double theta = scaling.type == Type::dynamic ? dynamic_theta(length, shape) : shape.theta;
  std::vector<float> frequencies;
  for (const float power : theta_powers(shape.rotary_dim, theta)) {
    const auto index = static_cast<float>(frequencies.size());
    switch (scaling.type) {
      case Type::none:
      case Type::dynamic:
        frequencies.push_back(1.0F / power);
        break;
      case Type::linear:
        frequencies.push_back(1.0F / power / factor);
        break;
      case Type::llama3:
        frequencies.push_back(llama3_frequency(1.0F / power, scaling));
        break;
      case Type::yarn:
        frequencies.push_back(yarn_frequency(power, index, range, factor));
        break;
      case Type::factors:
        frequencies.push_back(1.0F / power / static_cast<float>(scaling.factors.at(frequencies.size())));
        break;
    }
  }
  return frequencies;
}

}  // namespace

std::vector<float> llama3_factors(const RotaryShape& shape) {
  std::vector<float> factors;
  for (const float power : theta_powers(shape.rotary_dim, shape.theta)) {
    const float frequency = 1.0F / power;
    factors.push_back(frequency / llama3_frequency(frequency, shape.scaling));
  }
  return factors;
}

std::vector<float> rotary_cos_sin(std::int64_t max_position, const RotaryShape& shape) {
  const std::int64_t rotary_dim = shape.rotary_dim;
  const auto frequencies = scaled_frequencies(max_position, shape);
  const auto amplitude = static_cast<float>(shape.scaling.attention_factor);
  const std::int64_t half = rotary_dim / 2;
  std::vector<float> table(static_cast<std::size_t>(max_position * rotary_dim));
  for (std::int64_t position = 0; position < max_position; ++position) {
    float* row = table.data() + position * rotary_dim;
    for (std::int64_t i = 0; i < half; ++i) {
      const double angle = static_cast<float>(position) * frequencies[static_cast<std::size_t>(i)];
      row[i] = amplitude * static_cast<float>(std::cos(angle));
      row[half + i] = amplitude * static_cast<float>(std::sin(angle));
    }
  }
  return table;
}

}  // namespace pagoda::layers
