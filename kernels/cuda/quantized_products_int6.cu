#include "kernels/cuda/quantized_products.cuh"

namespace pagoda::kernels::cuda {

Status multiply_int6(cudaStream_t stream, const QuantizedProduct& product) {
  return multiply_coded<Coding::int6>(stream, product);
}

}  // namespace pagoda::kernels::cuda
