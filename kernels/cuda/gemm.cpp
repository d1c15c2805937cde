#include "kernels/cuda/gemm.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include <cublasLt.h>

#include "kernels/cuda/bias.hpp"
#include "kernels/cuda/cuda_check.hpp"

namespace pagoda::kernels::cuda {
namespace {

constexpr std::size_t kWorkspaceBytes = std::size_t{32} << 20;  // size that NVIDIA recommends for Hopper

Status check_blas(cublasStatus_t result, const char* call) {
  if (result == CUBLAS_STATUS_SUCCESS) return {};
  const ErrorCode code = result == CUBLAS_STATUS_NOT_SUPPORTED  ? ErrorCode::unsupported
                         : result == CUBLAS_STATUS_ALLOC_FAILED ? ErrorCode::out_of_memory
                                                                : ErrorCode::internal;
  return fail(code, std::string(call) + ": " + cublasLtGetStatusName(result));
}

cudaDataType_t data_type(DType dtype) {
  return dtype == DType::f32 ? CUDA_R_32F : dtype == DType::f16 ? CUDA_R_16F : CUDA_R_16BF;
}

/// Returns the largest power of two up to 256 that divides the address.
std::uint32_t alignment_of(const void* pointer) {
  const auto address = reinterpret_cast<std::uintptr_t>(pointer) | 256U;
  return static_cast<std::uint32_t>(address & (~address + 1));
}

/// Description of one product for cuBLAS. cuBLAS is column-major: a row-major [rows, in] matrix is an [in, rows] matrix
/// for cuBLAS. So the product is out^T [columns, rows] = weight x^T, where the weight, an [in, columns] matrix for
/// cuBLAS, is transposed.
class Problem {
 public:
  Problem(const GemmParams& p, std::int64_t rows, bool with_bias) : p_(p) {
    status_ = check_blas(cublasLtMatmulDescInit(&desc_, CUBLAS_COMPUTE_32F, CUDA_R_32F), "cublasLtMatmulDescInit");
    set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T);
    set(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N);
    if (with_bias) {
      set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS);
      set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, p.bias);
      set(CUBLASLT_MATMUL_DESC_BIAS_DATA_TYPE, CUDA_R_32F);
    }
    layout(weight_, data_type(p.dtype), p.in, p.columns, p.in);
    layout(x_, data_type(p.dtype), p.in, rows, p.in);
    layout(out_, CUDA_R_32F, p.columns, rows, p.out_stride);
  }

  Result<cublasLtMatmulAlgo_t> choose_algorithm(cublasLtHandle_t handle) {
    cublasLtMatmulPreferenceOpaque_t preference = {};
    const auto prefer = [&](cublasLtMatmulPreferenceAttributes_t attribute, const auto& value) {
      if (!status_) return;
      status_ = check_blas(cublasLtMatmulPreferenceSetAttribute(&preference, attribute, &value, sizeof(value)),
                           "cublasLtMatmulPreferenceSetAttribute");
    };
    if (status_) status_ = check_blas(cublasLtMatmulPreferenceInit(&preference), "cublasLtMatmulPreferenceInit");
    prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, std::uint64_t{kWorkspaceBytes});
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment_of(p_.weight));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment_of(p_.x));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment_of(p_.out));
    prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment_of(p_.out));
    if (!status_) return fail(status_.error());
    cublasLtMatmulHeuristicResult_t found = {};
    int count = 0;
    const Status chosen = check_blas(
        cublasLtMatmulAlgoGetHeuristic(handle, &desc_, &weight_, &x_, &out_, &out_, &preference, 1, &found, &count),
        "cublasLtMatmulAlgoGetHeuristic");
    if (!chosen) return fail(chosen.error());
    if (count == 0) return fail(ErrorCode::unsupported, "cublasLtMatmulAlgoGetHeuristic: no algorithm");
    return found.algo;
  }

  Status run(cublasLtHandle_t handle, cudaStream_t stream, const cublasLtMatmulAlgo_t& algorithm, void* workspace) {
    if (!status_) return status_;
    const float alpha = 1.0F;
    const float beta = p_.accumulate ? 1.0F : 0.0F;
    return check_blas(cublasLtMatmul(handle, &desc_, &alpha, p_.weight, &weight_, p_.x, &x_, &beta, p_.out, &out_,
                                     p_.out, &out_, &algorithm, workspace, kWorkspaceBytes, stream),
                      "cublasLtMatmul");
  }

 private:
  template <class T>
  void set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    if (!status_) return;
    status_ = check_blas(cublasLtMatmulDescSetAttribute(&desc_, attribute, &value, sizeof(value)),
                         "cublasLtMatmulDescSetAttribute");
  }

  void layout(cublasLtMatrixLayoutOpaque_t& of, cudaDataType_t type, std::int64_t rows, std::int64_t columns,
              std::int64_t stride) {
    if (!status_) return;
    status_ = check_blas(cublasLtMatrixLayoutInit(&of, type, static_cast<std::uint64_t>(rows),
                                                  static_cast<std::uint64_t>(columns), stride),
                         "cublasLtMatrixLayoutInit");
  }

  const GemmParams& p_;
  Status status_;
  cublasLtMatmulDescOpaque_t desc_ = {};
  cublasLtMatrixLayoutOpaque_t weight_ = {};
  cublasLtMatrixLayoutOpaque_t x_ = {};
  cublasLtMatrixLayoutOpaque_t out_ = {};
};

}  // namespace

/// Holds the chosen algorithms. A key contains every value that the choice may depend on; nullopt = no algorithm
/// exists.
struct Gemm::State {
  using Key = std::array<std::int64_t, 10>;

  cublasLtHandle_t handle = nullptr;
  void* workspace = nullptr;
  std::map<Key, std::optional<cublasLtMatmulAlgo_t>> algorithms;

  ~State() {
    if (workspace != nullptr) cudaFree(workspace);
    if (handle != nullptr) cublasLtDestroy(handle);
  }

  /// Returns the algorithm for `rows` rows.
  Result<cublasLtMatmulAlgo_t> algorithm(const GemmParams& p, std::int64_t rows, bool with_bias) {
    const Key key{
        rows,         p.in,      p.columns,         p.out_stride,           static_cast<std::int64_t>(p.dtype),
        p.accumulate, with_bias, alignment_of(p.x), alignment_of(p.weight), alignment_of(p.out)};
    auto known = algorithms.find(key);
    if (known == algorithms.end()) {
      Problem problem(p, rows, with_bias);
      Result<cublasLtMatmulAlgo_t> chosen = problem.choose_algorithm(handle);
      if (!chosen && chosen.error().code != ErrorCode::unsupported) return chosen;
      known = algorithms.emplace(key, chosen ? std::optional(*chosen) : std::nullopt).first;
    }
    if (!known->second) {
      return fail(ErrorCode::unsupported, "cuBLASLt has no algorithm for [" + std::to_string(p.rows) + ", " +
                                              std::to_string(p.in) + "] by [" + std::to_string(p.columns) + ", " +
                                              std::to_string(p.in) + "]");
    }
    return *known->second;
  }

  /// Multiplies with the algorithm of the row bucket, or, if cuBLASLt does not support it, with an algorithm chosen for
  /// exactly these rows.
  Status multiply(cudaStream_t stream, const GemmParams& p, bool with_bias) {
    Status status;
    for (const std::int64_t rows : {gemm_row_bucket(p.rows), p.rows}) {
      const Result<cublasLtMatmulAlgo_t> chosen = algorithm(p, rows, with_bias);
      status =
          chosen ? Problem(p, p.rows, with_bias).run(handle, stream, *chosen, workspace) : Status(fail(chosen.error()));
      if (status || status.error().code != ErrorCode::unsupported) return status;
    }
    return status;
  }
};

Gemm::Gemm(std::unique_ptr<State> state) : state_(std::move(state)) {}
Gemm::~Gemm() = default;

Result<std::unique_ptr<Gemm>> Gemm::create() {
  auto state = std::make_unique<State>();
  Status status = check_blas(cublasLtCreate(&state->handle), "cublasLtCreate");
  if (status) status = check(cudaMalloc(&state->workspace, kWorkspaceBytes), "cudaMalloc of the cuBLASLt workspace");
  if (!status) return fail(status.error());
  return std::unique_ptr<Gemm>(new Gemm(std::move(state)));
}

Status Gemm::multiply(cudaStream_t stream, const GemmParams& params) {
  if (params.rows == 0) return {};
  if (params.bias == nullptr) return state_->multiply(stream, params, false);
  const Status fused = state_->multiply(stream, params, true);
  if (fused || fused.error().code != ErrorCode::unsupported) return fused;
  const Status plain = state_->multiply(stream, params, false);
  return plain ? add_bias(stream, params) : plain;
}

}  // namespace pagoda::kernels::cuda
