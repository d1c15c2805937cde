#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/layers/rotary.hpp"
#include "kernels/device.hpp"
#include "kernels/result.hpp"

namespace pagoda::layers {

/// The way in which a model represents the position of a token.
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

/// The parameters from which the position constants of attention are computed.
struct PositionShape {
  PositionKind kind = PositionKind::rotary;
  RotaryShape rotary;          ///< used by PositionKind::rotary
  std::int64_t num_heads = 0;  ///< used by PositionKind::alibi: heads of the whole model
  /// Used by PositionKind::alibi: the heads of this rank, a part of num_heads; 0 = all.
  std::int64_t first_head = 0;
  std::int64_t heads_of_rank = 0;
};

/// Returns the ALiBi slope of each head (Press et al. 2022). For n heads, n a power of two, the slopes are the
/// geometric sequence 2^(-8/n), 2^(-16/n), ... For another number of heads, they are the slopes of the next lower power
/// of two, followed by every other slope of twice that power.
std::vector<float> alibi_slopes(std::int64_t num_heads);

/// The position constants of attention in a device's memory: a table of rotations, or the slopes of ALiBi. A model has
/// an object for each set of constants that its layers need, and layers share it.
class PositionTables {
 public:
  PositionTables() = default;
  /// Creates the tables for positions below `max_model_len`. Learned positions have none: they are embeddings. Errors:
  /// out_of_memory.
  static Result<PositionTables> create(kernels::Device& device, const PositionShape& shape, std::int64_t max_model_len);
  /// Returns the bytes that create allocates.
  static std::int64_t bytes(const PositionShape& shape, std::int64_t max_model_len);

  // These pointers are device memory. They stay valid as long as the tables live, also after a move.
  const float* cos_sin() const { return cos_sin_.as<float>(); }            ///< [max_model_len, rotary_dim], or null
  const float* alibi_slopes() const { return alibi_slopes_.as<float>(); }  ///< [heads of the rank], or null
  /// Number of elements of a head that are rotated.
  std::int64_t rotary_dim() const { return rotary_dim_; }
  /// See RotaryShape::interleaved.
  bool interleaved() const { return interleaved_; }

 private:
  std::int64_t rotary_dim_ = 0;
  bool interleaved_ = false;
  kernels::Buffer cos_sin_;
  kernels::Buffer alibi_slopes_;
};

}  // namespace pagoda::layers
