#pragma once

/// Atomics on memory that other streams and the host may use at the same time.

#include <atomic>
#include <type_traits>

namespace cuda_emulator {

/// Replaces *address by update(*address); returns the old value.
template <class T, class Update>
T atomic_update(T* address, const Update& update) {
  std::atomic_ref<T> cell(*address);
  T old = cell.load();
  while (!cell.compare_exchange_weak(old, update(old))) {
  }
  return old;
}

template <class T>
T atomicAdd(T* address, std::type_identity_t<T> value) {
  return atomic_update(address, [&](T old) { return static_cast<T>(old + value); });
}
template <class T>
T atomicSub(T* address, std::type_identity_t<T> value) {
  return atomic_update(address, [&](T old) { return static_cast<T>(old - value); });
}
template <class T>
T atomicMin(T* address, std::type_identity_t<T> value) {
  return atomic_update(address, [&](T old) { return value < old ? value : old; });
}
template <class T>
T atomicMax(T* address, std::type_identity_t<T> value) {
  return atomic_update(address, [&](T old) { return old < value ? value : old; });
}
template <class T>
T atomicAnd(T* address, std::type_identity_t<T> value) {
  return atomic_update(address, [&](T old) { return old & value; });
}
template <class T>
T atomicOr(T* address, std::type_identity_t<T> value) {
  return atomic_update(address, [&](T old) { return old | value; });
}
template <class T>
T atomicXor(T* address, std::type_identity_t<T> value) {
  return atomic_update(address, [&](T old) { return old ^ value; });
}
template <class T>
T atomicExch(T* address, std::type_identity_t<T> value) {
  return std::atomic_ref<T>(*address).exchange(value);
}
template <class T>
T atomicCAS(T* address, std::type_identity_t<T> expected, std::type_identity_t<T> value) {
  std::atomic_ref<T>(*address).compare_exchange_strong(expected, value);
  return expected;
}
inline unsigned int atomicInc(unsigned int* address, unsigned int limit) {
  return atomic_update(address, [&](unsigned int old) { return old >= limit ? 0 : old + 1; });
}

}  // namespace cuda_emulator
