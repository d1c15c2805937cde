#include "kernels/cpu/isa.hpp"

#include <algorithm>
#include <string>

#include "kernels/cpu/kernel_table.hpp"

#if defined(PAGODA_X86_KERNELS)
#include <cpuid.h>
#if defined(__linux__)
#include <sys/syscall.h>
#include <unistd.h>
#endif
#elif defined(PAGODA_ARM_KERNELS) && defined(__linux__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace pagoda::kernels {
namespace {

#if defined(PAGODA_X86_KERNELS)
// Tests for features that __builtin_cpu_supports does not support in some compilers.
bool has_f16c() {
  constexpr unsigned kBit = 1U << 29;
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid(1, &a, &b, &c, &d) != 0 && (c & kBit) != 0;
}

/// Returns whether a bit of CPUID leaf 7, subleaf 1 is set.
bool has_feature_7_1(unsigned bit) {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a >> bit & 1U) != 0;
}

bool has_avx_vnni() {
  return has_feature_7_1(4);
}

bool has_avx512_bf16() {
  return has_feature_7_1(5);
}

/// Returns whether the processor has a matrix unit for bytes and bfloat16, the system lets this process use it, and it
/// computes what it should. Linux gives the tiles' memory to a process that asks for it
/// (Documentation/arch/x86/xstate.rst).
bool has_amx() {
#if defined(__linux__)
  static const bool is_usable = [] {
    if (!processor_has_matrix_unit()) return false;
    constexpr long kRequestPermission = 0x1023;  // ARCH_REQ_XCOMP_PERM
    constexpr long kTileData = 18;               // XFEATURE_XTILEDATA
    return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0 && amx_is_as_emulated();
  }();
  return is_usable;
#else
  return false;
#endif
}
#endif

constexpr CpuIsa kAllIsas[] = {CpuIsa::scalar,     CpuIsa::avx2,        CpuIsa::avx_vnni,
                               CpuIsa::avx512,     CpuIsa::avx512_vnni, CpuIsa::avx512_bf16,
                               CpuIsa::avx512_amx, CpuIsa::neon,        CpuIsa::neon_dotprod};

#if defined(PAGODA_ARM_KERNELS)
bool has_dotprod() {
#if defined(__linux__)
  return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
#else
  return true;  // every 64-bit Mac has it
#endif
}
#endif

bool is_available(CpuIsa isa) {
#if defined(PAGODA_X86_KERNELS)
  const bool avx2 = __builtin_cpu_supports("avx2") != 0 && __builtin_cpu_supports("fma") != 0 && has_f16c();
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") != 0 && __builtin_cpu_supports("avx512bw") != 0 &&
                      __builtin_cpu_supports("avx512dq") != 0 && __builtin_cpu_supports("avx512vl") != 0;
  switch (isa) {
    case CpuIsa::scalar:
      return true;
    case CpuIsa::avx2:
      return avx2;
    case CpuIsa::avx_vnni:
      return avx2 && has_avx_vnni();
    case CpuIsa::avx512:
      return avx512;
    case CpuIsa::avx512_vnni:
      return avx512 && __builtin_cpu_supports("avx512vnni") != 0;
    case CpuIsa::avx512_bf16:
      return avx512 && __builtin_cpu_supports("avx512vnni") != 0 && has_avx512_bf16();
    case CpuIsa::avx512_amx:
      return avx512 && __builtin_cpu_supports("avx512vnni") != 0 && has_amx();
    case CpuIsa::neon:
    case CpuIsa::neon_dotprod:
      return false;
  }
  return false;
#elif defined(PAGODA_ARM_KERNELS)
  return isa == CpuIsa::scalar || isa == CpuIsa::neon || (isa == CpuIsa::neon_dotprod && has_dotprod());
#else
  return isa == CpuIsa::scalar;
#endif
}

/// Returns whether an instruction set may be chosen by default. bfloat16 dots are twice as fast as float32
/// multiply-adds on AMD (from Zen 4 on), but half as fast on Intel, whose matrix unit is meant for them.
bool is_fast(CpuIsa isa) {
#if defined(PAGODA_X86_KERNELS)
  return isa != CpuIsa::avx512_bf16 || __builtin_cpu_is("amd") != 0;
#else
  static_cast<void>(isa);
  return true;
#endif
}

std::string names_of(const std::vector<CpuIsa>& isas) {
  std::string names;
  for (const CpuIsa isa : isas) names.append(names.empty() ? "" : ", ").append(to_string(isa));
  return names;
}

}  // namespace

bool processor_has_matrix_unit() {
#if defined(PAGODA_X86_KERNELS)
  constexpr unsigned kBf16 = 1U << 22, kTile = 1U << 24, kInt8 = 1U << 25;
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  return (d & kBf16) != 0 && (d & kTile) != 0 && (d & kInt8) != 0;
#else
  return false;
#endif
}

std::string_view to_string(CpuIsa isa) {
  switch (isa) {
    case CpuIsa::scalar:
      return "scalar";
    case CpuIsa::avx2:
      return "avx2";
    case CpuIsa::avx_vnni:
      return "avx_vnni";
    case CpuIsa::avx512:
      return "avx512";
    case CpuIsa::avx512_vnni:
      return "avx512_vnni";
    case CpuIsa::avx512_bf16:
      return "avx512_bf16";
    case CpuIsa::avx512_amx:
      return "avx512_amx";
    case CpuIsa::neon:
      return "neon";
    case CpuIsa::neon_dotprod:
      return "neon_dotprod";
  }
  return "?";
}

std::vector<CpuIsa> available_isas() {
  std::vector<CpuIsa> isas;
  std::copy_if(std::begin(kAllIsas), std::end(kAllIsas), std::back_inserter(isas), is_available);
  return isas;
}

Result<CpuIsa> choose_isa(std::string_view name) {
  for (const CpuIsa isa : kAllIsas) {
    if (to_string(isa) == name && is_available(isa)) return isa;
  }
  const std::vector<CpuIsa> available = available_isas();
  if (name.empty()) return *std::find_if(available.rbegin(), available.rend(), is_fast);
  for (const CpuIsa isa : kAllIsas) {
    if (to_string(isa) != name) continue;
    return fail(ErrorCode::bad_config,
                "instruction set " + std::string(name) + " is not available here; available: " + names_of(available),
                "isa");
  }
  return fail(ErrorCode::bad_config,
              "unknown instruction set \"" + std::string(name) + "\"; available: " + names_of(available), "isa");
}

const CpuKernels& kernels_for(CpuIsa isa) {
#if defined(PAGODA_X86_KERNELS)
  switch (isa) {
    case CpuIsa::avx2:
      return avx2_kernels();
    case CpuIsa::avx_vnni:
      return avx_vnni_kernels();
    case CpuIsa::avx512:
      return avx512_kernels();
    case CpuIsa::avx512_vnni:
      return avx512_vnni_kernels();
    case CpuIsa::avx512_bf16:
      return avx512_bf16_kernels();
    case CpuIsa::avx512_amx:
      return avx512_amx_kernels();
    default:
      return portable_kernels();
  }
#elif defined(PAGODA_ARM_KERNELS)
  if (isa == CpuIsa::neon) return neon_kernels();
  if (isa == CpuIsa::neon_dotprod) return neon_dotprod_kernels();
  return portable_kernels();
#else
  static_cast<void>(isa);
  return portable_kernels();
#endif
}

}  // namespace pagoda::kernels
