#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/layers/rotary.hpp"
#include "kernels/device.hpp"
#include "kernels/result.hpp"

namespace pagoda::layers {

/// How a model tells where a token stands.
enum class PositionKind : std::uint8_t { rotary, learned, alibi };

constexpr std::string_view to_string(PositionKind kind) {
  switch (kind) {
    case PositionKind::rotary:
      return "rotary";
    case PositionKind::learned:
      return "learned";
    case PositionKind::alibi:
      return "alibi";
  }
  return "?";
}

/// What the constants of attention follow from.
struct PositionShape {
  PositionKind kind = PositionKind::rotary;
  RotaryShape rotary;          ///< of PositionKind::rotary
  std::int64_t num_heads = 0;  ///< of PositionKind::alibi
};

/// The slopes of ALiBi (Press et al. 2022) for each head: the geometric sequence 2^(-8/n), 2^(-16/n), ... for n heads,
/// and for a number that is no power of two those of the next lower power, followed by every other one of twice that
/// power.
std::vector<float> alibi_slopes(std::int64_t num_heads);

/// The constants in a device's memory by which a model's attention knows positions; shared by all its layers.
class PositionTables {
 public:
  /// None: of learned positions, which are no concern of attention.
  PositionTables() = default;
  /// For positions below `max_model_len`. Errors: out_of_memory.
  static Result<PositionTables> create(kernels::Device& device, const PositionShape& shape, std::int64_t max_model_len);
  /// Bytes that create allocates.
  static std::int64_t bytes(const PositionShape& shape, std::int64_t max_model_len);

  // Device memory, valid as long as the tables live, also after a move.
  const float* cos_sin() const { return cos_sin_.as<float>(); }            ///< [max_model_len, rotary_dim], or null
  const float* alibi_slopes() const { return alibi_slopes_.as<float>(); }  ///< [num_heads], or null
  std::int64_t rotary_dim() const { return rotary_dim_; }                  ///< elements of a head that are turned

 private:
  std::int64_t rotary_dim_ = 0;
  kernels::Buffer cos_sin_;
  kernels::Buffer alibi_slopes_;
};

}  // namespace pagoda::layers
