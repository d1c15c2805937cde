#include "engine/adapters/adapter.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace pagoda::adapters {
namespace {

float element(const AdapterMatrix& matrix, std::int64_t i) {
  float value = 0.0F;
  std::memcpy(&value, matrix.data.data() + i * std::int64_t{sizeof(float)}, sizeof(value));
  return value;
}

/// Rounds a matrix of float32 to T. Returns false if an element is too large.
template <class T>
bool round_to(AdapterMatrix& matrix, DType dtype, T (*round)(float)) {
  if (matrix.dtype != DType::f32) return true;
  const std::int64_t count = matrix.rows * matrix.columns;
  float largest = 0.0F;
  std::vector<std::byte> rounded(static_cast<std::size_t>(count) * sizeof(T));
  for (std::int64_t i = 0; i < count; ++i) {
    const float value = element(matrix, i);
    largest = std::max(largest, std::abs(value));
    const T narrow = round(value);
    std::memcpy(rounded.data() + i * static_cast<std::int64_t>(sizeof(T)), &narrow, sizeof(T));
  }
  if (!std::isfinite(to_float(round(largest)))) return false;
  matrix.data = std::move(rounded);
  matrix.dtype = dtype;
  return true;
}

bool round_matrix(AdapterMatrix& matrix, DType dtype) {
  return dtype == DType::bf16 ? round_to<BFloat16>(matrix, dtype, to_bf16) : round_to<Float16>(matrix, dtype, to_f16);
}

/// A hash over values of any type without padding.
class Hash {
 public:
  template <class T>
  requires std::is_arithmetic_v<T> || std::is_enum_v<T>
  void add(T value) { add(&value, sizeof(value)); }
  void add(const std::string& text) {
    add(text.size());
    add(text.data(), text.size());
  }
  void add(const AdapterMatrix& matrix) {
    add(matrix.dtype);
    add(matrix.rows);
    add(matrix.columns);
    add(matrix.data.data(), matrix.data.size());
  }
  template <class T>
  void add(const std::optional<T>& value) {
    add(value.has_value());
    if (value) add(*value);
  }
  void add(const LoraChange& lora) {
    add(lora.a);
    add(lora.b);
    add(lora.scale);
    add(lora.magnitude);
  }
  void add(const VirtualTokens& tokens) {
    add(tokens.kind);
    add(tokens.rows);
    add(tokens.num_heads);
  }

  std::uint64_t value() const { return value_; }

 private:
  void add(const void* bytes, std::size_t size) { value_ = XXH3_64bits_withSeed(bytes, size, value_); }

  std::uint64_t value_ = 0;
};

}  // namespace

std::uint64_t fingerprint_of(const Adapter& adapter) {
  Hash hash;
  for (const ModuleChange& change : adapter.changes) {
    hash.add(change.module);
    hash.add(change.lora);
    hash.add(change.weight);
    hash.add(change.bias);
  }
  hash.add(adapter.prompt);
  return std::max<std::uint64_t>(hash.value(), 1);
}

std::int64_t largest_rank(const Adapter& adapter) {
  std::int64_t rank = 0;
  for (const ModuleChange& change : adapter.changes) {
    if (change.lora) rank = std::max(rank, change.lora->rank());
  }
  return rank;
}

Status round_matrices(Adapter& adapter, DType dtype) {
  for (ModuleChange& change : adapter.changes) {
    if (!change.lora) continue;
    if (!round_matrix(change.lora->a, dtype) || !round_matrix(change.lora->b, dtype)) {
      return fail(ErrorCode::bad_file, "adapter: module " + change.module +
                                           ": an element of its matrices is too large " + "for " +
                                           std::string(to_string(dtype)) + "; use lora_dtype float32");
    }
  }
  return {};
}

}  // namespace pagoda::adapters
